#include <holdfast/transport/frame_reader.h>

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/borrower.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;
using transport_detail::kProgressBytes;

uint64_t table_entry(const Bytes& table, size_t i) {
  uint64_t length;
  std::memcpy(&length, table.data() + kFrameTableEntryBytes * i, sizeof(length));
  return length;
}

}  // namespace

FrameReader::FrameReader(std::string peer, uint64_t frame_bytes_max, std::shared_ptr<ReceivePool> pool)
    : peer_(std::move(peer)), frame_bytes_max_(frame_bytes_max), pool_(std::move(pool)) {}

Status FrameReader::take_preface(ByteView& bytes) {
  const size_t count = std::min(bytes.size(), kPreface.size() - have_bytes_);
  if (!std::equal(bytes.begin(), bytes.begin() + count, kPreface.begin() + have_bytes_)) {
    return corrupt(fmt::format(
        "bytes that are not Holdfast's from {}: something else uses that address, or another version", peer_));
  }
  bytes = bytes.subspan(count);
  have_bytes_ += count;
  if (have_bytes_ == kPreface.size()) {
    state_ = State::head;
    have_bytes_ = 0;
  }
  return {};
}

Failure FrameReader::too_large(uint64_t payload_bytes, uint64_t limit_bytes) const {
  return corrupt(fmt::format("a frame of {} bytes (kind {}) from {}: the limit is {}", payload_bytes,
                             layout_.header.kind.value, peer_, limit_bytes));
}

bool FrameReader::begins_with_whole_frame(ByteView bytes) {
  if (!at_boundary() || bytes.size() < kFrameHeaderBytes) return false;
  layout_ = decode_frame_layout(bytes.data());
  return layout_.attachment_count == 0 && layout_.body_bytes <= bytes.size() - kFrameHeaderBytes;
}

Status FrameReader::take_whole_frame(ByteView& bytes, bool trusted, std::vector<InFrame>& frames) {
  if (auto status = check_size(layout_.body_bytes, limit_bytes(trusted)); !status.ok()) return status;
  InFrame& frame = frames.emplace_back();
  frame.header = layout_.header;
  frame.message.kind = layout_.header.kind;
  frame.message.body.append(bytes.subspan(kFrameHeaderBytes, layout_.body_bytes));
  bytes = bytes.subspan(kFrameHeaderBytes + layout_.body_bytes);
  return {};
}

Status FrameReader::begin_frame(bool trusted) {
  layout_ = decode_frame_layout(head_);
  if (!trusted && layout_.attachment_count != 0) {
    return corrupt(fmt::format("a frame with {} attachments (kind {}) from {}, which has not proved who it is",
                               layout_.attachment_count, layout_.header.kind.value, peer_));
  }
  if (auto status = check_size(layout_.body_bytes, limit_bytes(trusted)); !status.ok()) return status;
  have_bytes_ = 0;
  if (layout_.attachment_count == 0) return begin_payload();
  table_.resize(layout_.table_bytes());
  state_ = State::table;
  return {};
}

Status FrameReader::begin_payload() {
  message_ = Message{.kind = layout_.header.kind};
  message_.attachments.resize(layout_.attachment_count);
  uint64_t total = layout_.body_bytes;
  payload_left_bytes_ = layout_.body_bytes;
  for (size_t i = 0; i < layout_.attachment_count; ++i) {
    Attachment& attachment = message_.attachments[i];
    attachment.bytes = table_entry(table_, i);
    if (borrower_ != nullptr && (attachment.bytes & kLoanFlag) != 0) {
      attachment.bytes &= ~kLoanFlag;
      attachment.shared = true;
    }
    // Checked one by one, so that the sum cannot overflow.
    if (auto status = check_size(attachment.bytes, frame_bytes_max_); !status.ok()) return status;
    total += attachment.bytes;
    if (auto status = check_size(total, frame_bytes_max_); !status.ok()) return status;
    payload_left_bytes_ += attachment.shared ? Loan::kBytes : attachment.bytes;
  }
  if (!allocate_payload()) {
    return Failure{.code = Code::overloaded,
                   .message = fmt::format("no memory for a frame of {} bytes from {}", total, peer_)};
  }
  state_ = State::payload;
  part_ = 0;
  progress_bytes_ = 0;
  return {};
}

bool FrameReader::allocate_payload() {
  try {
    message_.body.resize(layout_.body_bytes);
    loans_.resize(message_.attachments.size());
    parts_.clear();
    parts_.push_back({message_.body.data(), layout_.body_bytes});
    for (size_t i = 0; i < message_.attachments.size(); ++i) {
      Attachment& attachment = message_.attachments[i];
      if (attachment.shared) {
        parts_.push_back({reinterpret_cast<uint8_t*>(&loans_[i]), Loan::kBytes});
        continue;
      }
      auto memory = attachment.bytes != 0 ? pool_->allocate(attachment.bytes) : nullptr;
      if (attachment.bytes != 0 && memory == nullptr) return false;
      parts_.push_back({memory.get(), attachment.bytes});
      attachment.data = memory.get();
      attachment.owner = std::move(memory);
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void FrameReader::advance_payload(size_t bytes) {
  payload_left_bytes_ -= bytes;
  progress_bytes_ += bytes;
  while (progress_bytes_ >= kProgressBytes) {
    progress_bytes_ -= kProgressBytes;
    ++progress_steps_;
  }
  while (bytes > 0) {
    Part& part = parts_[part_];
    const uint64_t step = std::min<uint64_t>(part.left_bytes, bytes);
    part.at += step;
    part.left_bytes -= step;
    bytes -= step;
    if (part.left_bytes == 0) ++part_;
  }
}

void FrameReader::take_payload(ByteView& bytes) {
  while (!bytes.empty() && payload_left_bytes_ > 0) {
    const Part& part = parts_[part_];
    if (part.left_bytes == 0) {
      ++part_;
      continue;
    }
    const size_t count = std::min<uint64_t>(bytes.size(), part.left_bytes);
    std::memcpy(part.at, bytes.data(), count);
    advance_payload(count);
    bytes = bytes.subspan(count);
  }
}

Status FrameReader::finish_frame(std::vector<InFrame>& frames) {
  for (size_t i = 0; i < message_.attachments.size(); ++i) {
    Attachment& attachment = message_.attachments[i];
    if (!attachment.shared) continue;
    Result<Attachment> borrowed = borrower_->borrow(loans_[i], attachment.bytes);
    if (!borrowed) {
      const Failure& why = borrowed.failure();
      return Failure{.code = why.code, .message = fmt::format("from {}: {}", peer_, why.message)};
    }
    attachment = std::move(*borrowed);
  }
  frames.push_back({.header = layout_.header, .message = std::move(message_)});
  message_ = {};
  state_ = State::head;
  have_bytes_ = 0;
  return {};
}

Status FrameReader::feed(ByteView& bytes, bool trusted, std::vector<InFrame>& frames) {
  while (!bytes.empty()) {
    if (state_ == State::preface) {
      if (auto status = take_preface(bytes); !status.ok()) return status;
      continue;
    }
    if (begins_with_whole_frame(bytes)) {
      if (auto status = take_whole_frame(bytes, trusted, frames); !status.ok()) return status;
      if (!trusted) return {};
      continue;
    }
    if (state_ == State::payload) {
      take_payload(bytes);
    } else {
      uint8_t* to = state_ == State::head ? head_ : table_.data();
      const size_t want = state_ == State::head ? kFrameHeaderBytes : table_.size();
      const size_t count = std::min(bytes.size(), want - have_bytes_);
      std::memcpy(to + have_bytes_, bytes.data(), count);
      have_bytes_ += count;
      bytes = bytes.subspan(count);
      if (have_bytes_ < want) continue;
      auto status = state_ == State::head ? begin_frame(trusted) : begin_payload();
      if (!status.ok()) return status;
    }
    if (state_ == State::payload && payload_left_bytes_ == 0) {
      if (auto status = finish_frame(frames); !status.ok()) return status;
      if (!trusted) return {};
    }
  }
  return {};
}

size_t FrameReader::direct_targets(iovec* pieces, size_t count_max) {
  if (state_ != State::payload || payload_left_bytes_ <= kDirectReadBytesMin) return 0;
  size_t count = 0;
  for (size_t i = part_; i < parts_.size() && count < count_max; ++i) {
    if (parts_[i].left_bytes != 0) pieces[count++] = {.iov_base = parts_[i].at, .iov_len = parts_[i].left_bytes};
  }
  return count;
}

Status FrameReader::advance_direct(size_t bytes, std::vector<InFrame>& frames) {
  HOLDFAST_CHECK(bytes <= payload_left_bytes_);
  advance_payload(bytes);
  return payload_left_bytes_ == 0 ? finish_frame(frames) : Status();
}

}  // namespace holdfast
