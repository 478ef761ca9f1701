// Frames: any bytes as a stream, in pieces of any size, from a peer that is trusted or is not. What is accepted must be
// the same however the stream was cut, must keep to the limits, and must be the bytes that came when it is written
// again.
//
//   input   flags (1 byte), seed of the pieces (1), the stream
#include <sys/uio.h>

#include <array>
#include <cstring>

#include <holdfast/base/check.h>
#include <holdfast/base/random.h>
#include <holdfast/transport/frame_reader.h>
#include <holdfast/transport/frame_writer.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr uint64_t kFrameBytesMax = 256 * 1024;

struct Flags {
  bool with_preface;  // the stream begins with it, without being in the input
  bool trusted;       // from the beginning; else from the third frame on
  bool never_trusted;
};

struct Outcome {
  std::vector<InFrame> frames;
  bool ok = true;
};

void check_frame(const InFrame& frame, bool trusted) {
  HOLDFAST_CHECK(frame.header.kind == frame.message.kind);
  HOLDFAST_CHECK(frame.message.total_bytes() <= kFrameBytesMax);
  if (trusted) return;
  HOLDFAST_CHECK(frame.message.attachments.empty());
  HOLDFAST_CHECK(frame.message.body.size() <= kUntrustedFrameBytesMax);
}

// As a connection does: straight into the frame's memory where the reader wants that, else through feed().
Outcome read_all(ByteView stream, Random random, const Flags& flags) {
  FrameReader reader("fuzz", kFrameBytesMax);
  Outcome outcome;
  while (!stream.empty()) {
    const size_t frames_before = outcome.frames.size();
    const bool trusted = flags.trusted || (frames_before > 2 && !flags.never_trusted);
    std::array<iovec, 4> pieces;
    if (const size_t count = reader.direct_targets(pieces.data(), pieces.size()); count > 0 && random.chance(0.7)) {
      size_t filled = 0;
      for (size_t i = 0; i < count && !stream.empty(); ++i) {
        const size_t bytes = std::min(pieces[i].iov_len, stream.size());
        std::memcpy(pieces[i].iov_base, stream.data(), bytes);
        stream = stream.subspan(bytes);
        filled += bytes;
      }
      if (!reader.advance_direct(filled, outcome.frames).ok()) {
        outcome.ok = false;
        break;
      }
    } else {
      const size_t size = random.chance(0.3) ? stream.size() : std::min<size_t>(stream.size(), random.between(1, 80));
      ByteView piece = stream.first(size);
      const Status status = reader.feed(piece, trusted, outcome.frames);
      stream = stream.subspan(size - piece.size());
      if (!status.ok()) {
        outcome.ok = false;
        break;
      }
    }
    if (!trusted) HOLDFAST_CHECK(outcome.frames.size() <= frames_before + 1);
    for (size_t i = frames_before; i < outcome.frames.size(); ++i) check_frame(outcome.frames[i], trusted);
  }
  return outcome;
}

Bytes written(const std::vector<InFrame>& frames, Random random) {
  FrameWriter writer;
  for (const InFrame& frame : frames) writer.add({frame.header, std::make_shared<const Message>(frame.message)});
  Bytes out;
  while (!writer.empty()) {
    std::array<iovec, 3> pieces;
    const size_t count = writer.fill(pieces.data(), pieces.size());
    HOLDFAST_CHECK(count > 0);
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t part = random.chance(0.8) ? pieces[i].iov_len : random.below(pieces[i].iov_len + 1);
      out.append(static_cast<const uint8_t*>(pieces[i].iov_base), part);
      bytes += part;
      if (part < pieces[i].iov_len) break;
    }
    writer.advance(bytes);
  }
  return out;
}

void check(ByteView input) {
  Input in(input.data(), input.size());
  const uint8_t bits = in.byte();
  const Flags flags = {.with_preface = (bits & 1) == 0, .trusted = (bits & 2) != 0, .never_trusted = (bits & 4) != 0};
  const Random random(in.byte());
  Bytes stream;
  if (flags.with_preface) stream.append(kPreface);
  stream.append(in.rest());

  const Outcome outcome = read_all(stream, random, flags);
  const Outcome whole = read_all(stream, Random(1), flags);
  HOLDFAST_CHECK(outcome.ok == whole.ok && outcome.frames.size() == whole.frames.size());
  if (outcome.frames.empty()) return;
  const Bytes again = written(outcome.frames, random);
  HOLDFAST_CHECK(again == written(whole.frames, Random(2)));
  HOLDFAST_CHECK(again.size() <= stream.size() && std::equal(again.begin(), again.end(), stream.begin()));

  // The same frame alone, as transports that carry one at a time read it.
  const InFrame& last = outcome.frames.back();
  const Bytes one = encode_frame({last.header, std::make_shared<const Message>(last.message)});
  const auto decoded = decode_frame(one);
  HOLDFAST_CHECK(decoded && encode_frame({decoded->header, std::make_shared<const Message>(decoded->message)}) == one);
}

void check_alone(ByteView input) {
  const Bytes exact(input.begin(), input.end());
  if (const auto frame = decode_frame(exact)) {
    HOLDFAST_CHECK(encode_frame({frame->header, std::make_shared<const Message>(frame->message)}) == exact);
  }
}

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::check({data, size});
  holdfast::fuzz::check_alone({data, size});
  return 0;
}
