#include <holdfast/transport/frame_writer.h>

#include <sys/uio.h>

#include <algorithm>

#include <holdfast/base/check.h>
#include <holdfast/transport/lender.h>

namespace holdfast {

FrameWriter::FrameWriter() {
  staging_.append(kPreface);
  add_staged(0);
}

// Bytes of staging_ from `offset` to its end have been added.
void FrameWriter::add_staged(size_t offset) {
  const size_t bytes = staging_.size() - offset;
  if (!pieces_.empty() && next_ < pieces_.size() && pieces_.back().data == nullptr) {
    pieces_.back().bytes += bytes;
  } else {
    pieces_.push_back({.staging_offset = offset, .bytes = bytes});
  }
}

void FrameWriter::add_memory(const uint8_t* data, size_t bytes, const MessagePtr& keep) {
  if (bytes != 0) pieces_.push_back({.data = data, .bytes = bytes, .keep = keep});
}

// In place of an attachment's bytes; its length, `entry` bytes into staging_, says so.
void FrameWriter::add_loan(const Loan& loan, size_t entry) {
  staging_[entry + 7] |= kLoanFlag >> 56;
  const size_t offset = staging_.size();
  staging_.append(reinterpret_cast<const uint8_t*>(&loan), sizeof(loan));
  add_staged(offset);
}

void FrameWriter::add(const OutFrame& frame, Lender* lender) {
  const Message& message = *frame.message;
  const size_t start = staging_.size();
  encode_frame_head(frame, staging_);
  const bool copy_body = message.body.size() <= kCopiedBodyBytesMax;
  if (copy_body) staging_.append(message.body);
  add_staged(start);
  if (!copy_body) add_memory(message.body.data(), message.body.size(), frame.message);
  size_t entry = start + kFrameHeaderBytes;
  for (const Attachment& attachment : message.attachments) {
    const auto loan = lender != nullptr ? lender->lend(attachment) : std::nullopt;
    if (loan) {
      add_loan(*loan, entry);
    } else if (attachment.bytes <= kCopiedBodyBytesMax) {
      const size_t offset = staging_.size();
      staging_.append(attachment.data, attachment.bytes);
      if (attachment.bytes != 0) add_staged(offset);
    } else {
      add_memory(attachment.data, attachment.bytes, frame.message);
    }
    entry += kFrameTableEntryBytes;
  }
}

size_t FrameWriter::fill(iovec* pieces, size_t count_max) const {
  const size_t count = std::min(count_max, pieces_.size() - next_);
  for (size_t i = 0; i < count; ++i) {
    const Piece& piece = pieces_[next_ + i];
    const size_t skip = i == 0 ? written_bytes_ : 0;
    const uint8_t* data = piece.data != nullptr ? piece.data : staging_.data() + piece.staging_offset;
    pieces[i] = {.iov_base = const_cast<uint8_t*>(data) + skip, .iov_len = piece.bytes - skip};
  }
  return count;
}

void FrameWriter::advance(size_t bytes) {
  while (bytes > 0) {
    HOLDFAST_CHECK(next_ < pieces_.size());
    Piece& piece = pieces_[next_];
    const size_t step = std::min(bytes, piece.bytes - written_bytes_);
    written_bytes_ += step;
    bytes -= step;
    if (written_bytes_ == piece.bytes) {
      piece.keep.reset();
      written_bytes_ = 0;
      ++next_;
    }
  }
  if (empty()) clear();
}

void FrameWriter::clear() {
  // One large batch must not leave every idle connection with a large buffer.
  if (staging_.capacity() > 512 * 1024) staging_ = {};
  staging_.clear();
  pieces_.clear();
  next_ = 0;
  written_bytes_ = 0;
}

}  // namespace holdfast
