#include <holdfast/transport/frame_reader.h>

#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;
using transport_detail::kProgressBytes;

uint64_t table_entry(const Bytes& table, size_t i) {
  uint64_t length;
  std::memcpy(&length, table.data() + 8 * i, sizeof(length));
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

Status FrameReader::check_size(uint64_t payload_bytes, uint64_t limit_bytes) const {
  if (payload_bytes <= limit_bytes) return {};
  return corrupt(fmt::format("a frame of {} bytes (kind {}) from {}: the limit is {}", payload_bytes,
                             layout_.header.kind.value, peer_, limit_bytes));
}

Status FrameReader::begin_frame(bool trusted) {
  layout_ = decode_frame_layout(head_);
  if (!trusted && layout_.attachment_count != 0) {
    return corrupt(fmt::format("a frame with {} attachments (kind {}) from {}, which has not proved who it is",
                               layout_.attachment_count, layout_.header.kind.value, peer_));
  }
  // The untrusted limit also binds when the option is larger; the option also binds when it is smaller.
  const uint64_t limit = trusted ? frame_bytes_max_ : std::min<uint64_t>(frame_bytes_max_, kUntrustedFrameBytesMax);
  if (auto status = check_size(layout_.body_bytes, limit); !status.ok()) return status;
  have_bytes_ = 0;
  if (layout_.attachment_count == 0) return begin_payload();
  table_.resize(layout_.table_bytes());
  state_ = State::table;
  return {};
}

Status FrameReader::begin_payload() {
  uint64_t total = layout_.body_bytes;
  for (size_t i = 0; i < layout_.attachment_count; ++i) {
    const uint64_t length = table_entry(table_, i);
    // Checked one by one, so that the sum cannot overflow.
    if (auto status = check_size(length, frame_bytes_max_); !status.ok()) return status;
    total += length;
    if (auto status = check_size(total, frame_bytes_max_); !status.ok()) return status;
  }
  message_ = Message{.kind = layout_.header.kind};
  bool enough = true;
  try {
    message_.body.resize(layout_.body_bytes);
    message_.attachments.resize(layout_.attachment_count);
    for (size_t i = 0; i < layout_.attachment_count && enough; ++i) {
      Attachment& attachment = message_.attachments[i];
      attachment.bytes = table_entry(table_, i);
      if (attachment.bytes == 0) continue;
      auto memory = pool_->allocate(attachment.bytes);
      enough = memory != nullptr;
      attachment.data = memory.get();
      attachment.owner = std::move(memory);
    }
  } catch (const std::bad_alloc&) {
    enough = false;
  }
  if (!enough) {
    return Failure{.code = Code::overloaded,
                   .message = fmt::format("no memory for a frame of {} bytes from {}", total, peer_)};
  }
  state_ = State::payload;
  part_ = 0;
  part_have_bytes_ = 0;
  payload_left_bytes_ = total;
  progress_bytes_ = 0;
  return {};
}

uint8_t* FrameReader::payload_at(size_t part, uint64_t& left_bytes) const {
  const uint64_t have = part == part_ ? part_have_bytes_ : 0;
  if (part == 0) {
    left_bytes = message_.body.size() - have;
    return const_cast<uint8_t*>(message_.body.data()) + have;
  }
  // The attachment is const for those who receive it; until it is whole it is ours to fill.
  const Attachment& attachment = message_.attachments[part - 1];
  left_bytes = attachment.bytes - have;
  return left_bytes == 0 ? nullptr : const_cast<uint8_t*>(attachment.data) + have;
}

void FrameReader::advance_payload(size_t bytes) {
  payload_left_bytes_ -= bytes;
  progress_bytes_ += bytes;
  while (progress_bytes_ >= kProgressBytes) {
    progress_bytes_ -= kProgressBytes;
    ++progress_steps_;
  }
  while (bytes > 0) {
    uint64_t left = 0;
    payload_at(part_, left);
    const uint64_t step = std::min<uint64_t>(left, bytes);
    part_have_bytes_ += step;
    bytes -= step;
    if (step == left && bytes > 0) {
      ++part_;
      part_have_bytes_ = 0;
    }
  }
}

void FrameReader::take_payload(ByteView& bytes) {
  while (!bytes.empty() && payload_left_bytes_ > 0) {
    uint64_t left = 0;
    uint8_t* at = payload_at(part_, left);
    if (left == 0) {
      ++part_;
      part_have_bytes_ = 0;
      continue;
    }
    const size_t count = std::min<uint64_t>(bytes.size(), left);
    std::memcpy(at, bytes.data(), count);
    advance_payload(count);
    bytes = bytes.subspan(count);
  }
}

void FrameReader::finish_frame(std::vector<InFrame>& frames) {
  frames.push_back({.header = layout_.header, .message = std::move(message_)});
  message_ = {};
  state_ = State::head;
  have_bytes_ = 0;
}

Status FrameReader::feed(ByteView& bytes, bool trusted, std::vector<InFrame>& frames) {
  while (!bytes.empty()) {
    if (state_ == State::preface) {
      if (auto status = take_preface(bytes); !status.ok()) return status;
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
      finish_frame(frames);
      if (!trusted) return {};
    }
  }
  return {};
}

size_t FrameReader::direct_targets(iovec* pieces, size_t count_max) {
  if (state_ != State::payload || payload_left_bytes_ <= kDirectReadBytesMin) return 0;
  size_t count = 0;
  for (size_t part = part_; part <= message_.attachments.size() && count < count_max; ++part) {
    uint64_t left = 0;
    uint8_t* at = payload_at(part, left);
    if (left != 0) pieces[count++] = {.iov_base = at, .iov_len = left};
  }
  return count;
}

void FrameReader::advance_direct(size_t bytes, std::vector<InFrame>& frames) {
  HOLDFAST_CHECK(bytes <= payload_left_bytes_);
  advance_payload(bytes);
  if (payload_left_bytes_ == 0) finish_frame(frames);
}

}  // namespace holdfast
