// Reader: pulls MessagePack values out of a body, one after the other, in the order in which they were
// written. No tree is built; strings and bytes are views into the body.
//
// The bytes come from a peer and may be anything. The first error sticks: `ok()` is false from then on, and
// every read after it returns a default (0, empty) and reads nothing. So a codec need not look at ok() after
// every read, only where it loops. The text of an error says where, what was expected and what was found.
// A Reader borrows the body, the attachments and the context, and is used by one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <holdfast/wire/big_endian.h>
#include <holdfast/wire/depth.h>
#include <holdfast/wire/message.h>
#include <holdfast/wire/wire_context.h>

namespace holdfast::wire {

// What the next value is. `invalid` is the one byte that MessagePack never uses; `end`: nothing is left.
enum class Type : uint8_t { nil, boolean, integer, floating, string, binary, array, map, extension, invalid, end };

struct Extension {
  int8_t type = 0;
  ByteView bytes;
};

class Reader {
 public:
  explicit Reader(ByteView body, std::span<const Attachment> attachments = {}, WireContext* context = nullptr)
      : begin_(body.data()),
        end_(body.data() + body.size()),
        at_(begin_),
        value_(begin_),
        attachments_(attachments),
        context_(context) {}
  explicit Reader(const Message& message, WireContext* context = nullptr)
      : Reader(message.body, message.attachments, context) {}
  // A view into a temporary would dangle.
  explicit Reader(const Message&&, WireContext* = nullptr) = delete;
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  bool ok() const { return !failed_; }
  const std::string& error() const { return error_; }
  // Says that the value read last is not acceptable. Later calls change nothing.
  void fail(std::string_view text);

  Type peek() const;
  // Reads the next value if it is nil.
  bool try_nil() {
    if (at_ == end_ || *at_ != 0xc0) return false;
    value_ = at_++;
    return true;
  }
  void nil() {
    if (!try_nil()) mismatch("nil");
  }
  bool boolean() {
    if (at_ != end_ && (*at_ & 0xfe) == 0xc2) {
      value_ = at_++;
      return *value_ == 0xc3;
    }
    mismatch("bool");
    return false;
  }
  // Integers are taken from any encoding in which the value fits.
  int64_t integer() {
    if (at_ != end_ && static_cast<int8_t>(*at_) >= -32) {
      value_ = at_++;
      return static_cast<int8_t>(*value_);
    }
    return integer_long_form();
  }
  uint64_t unsigned_integer() {
    if (at_ != end_ && *at_ < 0x80) {
      value_ = at_++;
      return *value_;
    }
    if (remaining() >= 9 && *at_ == 0xcf) {
      value_ = at_;
      at_ += 9;
      return load_big_endian<uint64_t>(value_ + 1);
    }
    return unsigned_long_form();
  }
  // Also takes a float32, and an integer that a double holds exactly.
  double float64() {
    if (remaining() >= 9 && *at_ == 0xcb) {
      value_ = at_;
      at_ += 9;
      return std::bit_cast<double>(load_big_endian<uint64_t>(value_ + 1));
    }
    return float64_other_form();
  }
  // Also takes a float64, rounded (many languages have no other float) but not out of range, and an integer
  // that a float holds exactly.
  float float32() {
    if (remaining() >= 5 && *at_ == 0xca) {
      value_ = at_;
      at_ += 5;
      return std::bit_cast<float>(load_big_endian<uint32_t>(value_ + 1));
    }
    return float32_other_form();
  }
  // The views live as long as the body.
  std::string_view string() {
    if (at_ != end_ && (*at_ & 0xe0) == 0xa0) {
      const size_t length = *at_ & 0x1f;
      if (remaining() > length) {
        value_ = at_;
        at_ += 1 + length;
        return {reinterpret_cast<const char*>(value_ + 1), length};
      }
    }
    return long_string();
  }
  ByteView binary();
  Extension extension();
  // Fails if the extension is of another type.
  ByteView extension(int8_t expected_type);
  bool next_is_extension(int8_t type) const;

  // How many values (of a map: pairs) follow. Never more than the bytes that are left can hold, so a loop
  // up to it is bounded by what the peer really sent.
  uint32_t array_header() {
    if (at_ != end_ && (*at_ & 0xf0) == 0x90) {
      const uint32_t count = *at_ & 0x0f;
      if (remaining() > count) {
        value_ = at_++;
        return count;
      }
    }
    return long_array_header();
  }
  // The same, and fails unless it is `expected`. `what` names the type for the error.
  bool array_header_of(uint32_t expected, std::string_view what);
  uint32_t map_header();

  // Reads one value, whatever it is. Does not recurse: any depth is fine.
  void skip();
  // Null, and the reader fails, if there is no such attachment.
  const Attachment* attachment(uint64_t index);
  size_t attachment_count() const { return attachments_.size(); }

  size_t remaining() const { return static_cast<size_t>(end_ - at_); }
  // Nothing may be left. Call after the last value.
  void finish();

  WireContext* context() const { return context_; }

  // For DepthGuard.
  void enter() {
    if (++depth_ > kDepthMax) too_deep();
  }
  void leave() { --depth_; }

 private:
  struct Integer {
    bool negative = false;
    uint64_t bits = 0;  // two's complement if negative
  };

  void mismatch(std::string_view expected);
  void truncated(std::string_view what, uint64_t bytes);
  void too_deep();
  // Each reads all of a value or fails; `expected` is for the error. False: failed.
  bool any_integer(std::string_view expected, Integer& out);
  bool length(size_t width, std::string_view what, uint32_t& out);
  bool header(uint8_t fixed_tag, uint8_t tag16, uint32_t bytes_each, std::string_view what, uint32_t& out);
  ByteView payload(std::string_view what, uint64_t bytes);

  int64_t integer_long_form();
  uint64_t unsigned_long_form();
  double float64_other_form();
  float float32_other_form();
  std::string_view long_string();
  uint32_t long_array_header();

  const uint8_t* begin_;
  const uint8_t* end_;  // after an error: at_, so that nothing more is read
  const uint8_t* at_;
  const uint8_t* value_;  // where the value read last begins: what an error speaks of
  std::span<const Attachment> attachments_;
  WireContext* context_;
  size_t depth_ = 0;
  bool failed_ = false;
  std::string error_;
};

}  // namespace holdfast::wire
