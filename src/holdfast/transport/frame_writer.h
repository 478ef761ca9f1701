// FrameWriter: the frames that a connection has collected and not yet written, as pieces of memory for
// sendmsg. Small bodies are copied next to their heads, so that many small frames are one piece; large
// bodies and attachments are sent from their own memory, which the message keeps alive until it is written.
// Does no I/O. Used by the thread that has the connection's WriteTurn.
#pragma once

#include <cstddef>
#include <vector>

#include <holdfast/wire/frame.h>

struct iovec;

namespace holdfast {

inline constexpr size_t kCopiedBodyBytesMax = 8 * 1024;

class Lender;
struct Loan;

class FrameWriter {
 public:
  FrameWriter();  // starts with the preface

  // With a lender, large attachments lie where the other side finds them, and are not written.
  void add(const OutFrame& frame, Lender* lender = nullptr);
  bool empty() const { return next_ == pieces_.size(); }
  // The next bytes to write, in up to `count_max` pieces; answers how many.
  size_t fill(iovec* pieces, size_t count_max) const;
  // The first `bytes` of those have been written.
  void advance(size_t bytes);
  // Forgets everything: the connection is broken.
  void clear();

 private:
  struct Piece {
    const uint8_t* data = nullptr;  // null: bytes of staging_, from staging_offset on
    size_t staging_offset = 0;
    size_t bytes = 0;
    MessagePtr keep;
  };
  void add_staged(size_t offset);
  void add_loan(const Loan& loan, size_t entry);
  void add_memory(const uint8_t* data, size_t bytes, const MessagePtr& keep);

  Bytes staging_;
  std::vector<Piece> pieces_;
  size_t next_ = 0;           // the first piece that is not wholly written
  size_t written_bytes_ = 0;  // of it
};

}  // namespace holdfast
