// FrameReader: turns the bytes of one stream into frames. Does no I/O: bytes are fed to it, or it says where
// the rest of a large frame should be read straight to. Used by one thread at a time.
//
// Everything that arrives is checked before memory is taken for it. Nothing is buffered: what is incomplete
// lies in its final place (the header, the table, the body, an attachment).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/base/error.h>
#include <holdfast/transport/receive_pool.h>
#include <holdfast/transport/shared_area.h>
#include <holdfast/transport/transport.h>

struct iovec;

namespace holdfast {

// More than this still missing of a frame: read straight into its memory instead of through a buffer.
inline constexpr size_t kDirectReadBytesMin = 64 * 1024;

class Borrower;

class FrameReader {
 public:
  // `peer` is for messages: the address of the other side. Attachments lie in memory of `pool`.
  FrameReader(std::string peer, uint64_t frame_bytes_max,
              std::shared_ptr<ReceivePool> pool = std::make_shared<ReceivePool>());

  // From now on attachments may lie in shared memory, of which `borrower` knows. Without one such a frame is Corrupt.
  void borrow_from(Borrower* borrower) { borrower_ = borrower; }

  // Consumes from the front of `bytes`, which is moved along, and appends the frames that became whole.
  // Consumes everything, unless `trusted` is false: then it stops behind the first whole frame, so that the
  // caller can ask again whether the peer has proved itself.
  Status feed(ByteView& bytes, bool trusted, std::vector<InFrame>& frames);

  // Where the next bytes of the stream belong, if a large part of a frame is missing: up to `count_max`
  // pieces of memory; answers how many. 0: use feed().
  size_t direct_targets(iovec* pieces, size_t count_max);
  // The first `bytes` of those pieces have been filled.
  Status advance_direct(size_t bytes, std::vector<InFrame>& frames);

  // True when the stream stands between two frames.
  bool at_boundary() const { return state_ == State::head && have_bytes_ == 0; }
  bool preface_seen() const { return state_ != State::preface; }
  // Counts, over the whole stream, the MiB of frames that were not yet whole when they arrived.
  uint64_t progress_steps() const { return progress_steps_; }

 private:
  enum class State { preface, head, table, payload };

  Status take_preface(ByteView& bytes);
  // A whole frame without attachments, as most are, needs none of what is kept of an incomplete one.
  bool begins_with_whole_frame(ByteView bytes);
  Status take_whole_frame(ByteView& bytes, bool trusted, std::vector<InFrame>& frames);
  // The option also binds a stranger when it is smaller than the limit for strangers.
  uint64_t limit_bytes(bool trusted) const {
    return trusted ? frame_bytes_max_ : std::min<uint64_t>(frame_bytes_max_, kUntrustedFrameBytesMax);
  }
  Status begin_frame(bool trusted);
  Status begin_payload();
  Status check_size(uint64_t payload_bytes, uint64_t limit_bytes) const {
    if (payload_bytes <= limit_bytes) return {};
    return too_large(payload_bytes, limit_bytes);
  }
  Failure too_large(uint64_t payload_bytes, uint64_t limit_bytes) const;
  bool allocate_payload();
  void take_payload(ByteView& bytes);
  void advance_payload(size_t bytes);
  Status finish_frame(std::vector<InFrame>& frames);

  const std::string peer_;
  const uint64_t frame_bytes_max_;
  const std::shared_ptr<ReceivePool> pool_;
  Borrower* borrower_ = nullptr;

  State state_ = State::preface;
  size_t have_bytes_ = 0;  // of the preface, head or table
  uint8_t head_[kFrameHeaderBytes] = {};
  FrameLayout layout_;
  Bytes table_;

  // The frame being filled. Part 0 is the body, part i the attachment i - 1, or where that lies (loans_[i - 1]).
  struct Part {
    uint8_t* at;
    uint64_t left_bytes;
  };
  Message message_;
  std::vector<Part> parts_;
  size_t part_ = 0;  // the first that is not whole
  std::vector<Loan> loans_;
  uint64_t payload_left_bytes_ = 0;

  uint64_t progress_bytes_ = 0;
  uint64_t progress_steps_ = 0;
};

}  // namespace holdfast
