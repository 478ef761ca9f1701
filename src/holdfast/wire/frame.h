// Frame: a message with its place on a link, and how that looks as bytes.
//
//   offset  bytes  field (all little-endian)
//        0      2  kind
//        2      2  number of attachments
//        4      4  body bytes
//        8      8  sequence number on the link; 0: not sequenced (handshake, acknowledgement, coordinator)
//       16      8  acknowledged: every sequence number up to this one has arrived
//       24      8  credit: bytes of calls that the sender of this frame has started to run, since the link began
//       32      8  for each attachment: its length
//        .         the body, then the attachments, without padding
//
// A stream begins with the 8 bytes of kPreface in each direction, so that a stranger is told at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/wire/message.h>

namespace holdfast {

inline constexpr std::array<uint8_t, 8> kPreface = {'H', 'O', 'L', 'D', 'F', 'S', 'T', 1};
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr size_t kFrameTableEntryBytes = 8;
// In an attachment's length: its bytes are not in the stream, but in shared memory. See docs/shared_memory.md.
inline constexpr uint64_t kLoanFlag = uint64_t{1} << 63;
inline constexpr size_t kAttachmentsMax = 65535;

struct FrameHeader {
  Kind kind;
  uint64_t sequence = 0;
  uint64_t acknowledged = 0;
  uint64_t credit_bytes = 0;
};

struct OutFrame {
  FrameHeader header;
  MessagePtr message;
};

struct InFrame {
  FrameHeader header;
  Message message;
};

// The fixed part of a frame as it stands in a stream: what must be known to read the rest.
struct FrameLayout {
  FrameHeader header;
  uint16_t attachment_count = 0;
  uint32_t body_bytes = 0;

  uint64_t table_bytes() const { return attachment_count * uint64_t{kFrameTableEntryBytes}; }
};

// Appends header and attachment table (not the body, not the attachments) to `out`.
void encode_frame_head(const OutFrame& frame, Bytes& out);
// Reads the fixed 32 bytes. Never fails: the limits are the reader's to check.
FrameLayout decode_frame_layout(const uint8_t* at);

// The whole frame in one run of bytes, and back: for transports that carry frames one at a time (sim),
// for tests and for fuzzing. decode_frame answers nullopt unless `bytes` is exactly one frame.
Bytes encode_frame(const OutFrame& frame);
std::optional<InFrame> decode_frame(ByteView bytes);

}  // namespace holdfast
