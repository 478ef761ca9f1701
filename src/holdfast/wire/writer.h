// Writer: appends MessagePack to a message's body, and attachments beside it.
//
// Every value takes its shortest encoding, so equal values are equal bytes in every language's MessagePack.
// A Writer borrows the message and the context, and is used by one thread. What cannot be written (more than
// 4 GiB, deeper than kDepthMax, too many attachments) is a mistake of the user's: it throws InvalidArgument,
// and the message is then fit only to be thrown away. Nothing else throws, but for memory running out.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include <holdfast/wire/big_endian.h>
#include <holdfast/wire/depth.h>
#include <holdfast/wire/message.h>
#include <holdfast/wire/wire_context.h>

namespace holdfast::wire {

// A frame says the length of its body in 32 bits.
inline constexpr size_t kBodyBytesMax = UINT32_MAX;

class Writer {
 public:
  explicit Writer(Message& message, WireContext* context = nullptr) : message_(message), context_(context) {}
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void nil() { byte(0xc0); }
  void boolean(bool value) { byte(value ? 0xc3 : 0xc2); }

  void unsigned_integer(uint64_t value) {
    if (value < 0x80) {
      byte(static_cast<uint8_t>(value));
    } else {
      long_number(value);
    }
  }
  void integer(int64_t value) {
    if (value >= 0) {
      unsigned_integer(static_cast<uint64_t>(value));
    } else if (value >= -32) {
      byte(static_cast<uint8_t>(value));
    } else {
      long_number(value);
    }
  }
  void float32(float value) { tagged(0xca, std::bit_cast<uint32_t>(value)); }
  void float64(double value) { tagged(0xcb, std::bit_cast<uint64_t>(value)); }

  void string(std::string_view text) {
    if (text.size() < 32) {
      uint8_t* at = extend(1 + text.size());
      *at = static_cast<uint8_t>(0xa0 | text.size());
      if (!text.empty()) std::memcpy(at + 1, text.data(), text.size());
    } else {
      long_string(text);
    }
  }
  void binary(ByteView bytes);
  void extension(int8_t type, ByteView bytes);

  // `count` values follow, or `count` pairs of key and value. The counts are size_t so that a caller need
  // not narrow the size of a container itself: too many throws.
  void array_header(size_t count) {
    if (count < 16) {
      byte(static_cast<uint8_t>(0x90 | count));
    } else {
      long_header(0xdc, count);
    }
  }
  void map_header(size_t count) {
    if (count < 16) {
      byte(static_cast<uint8_t>(0x80 | count));
    } else {
      long_header(0xde, count);
    }
  }

  // One value for each number, as by integer, unsigned_integer, float32 or float64, but several times faster.
  template <class T>
  void numbers(std::span<const T> values) {
    constexpr size_t kRun = 128;  // a part of them at a time, so that little room is taken in vain
    while (!values.empty()) {
      const size_t count = values.size() < kRun ? values.size() : kRun;
      uint8_t* at = extend(count * kNumberBytesMax);
      for (const T value : values.first(count)) at = put_number(at, value);
      message_.body.resize(static_cast<size_t>(at - message_.body.data()));
      values = values.subspan(count);
    }
  }

  // Adds bytes that travel beside the body and returns their index, for Reader::attachment. The index is
  // not written: that is for the caller, in whatever form its value has.
  uint32_t attach(Attachment attachment);

  WireContext* context() const { return context_; }

  // For DepthGuard.
  void enter() {
    if (depth_ == kDepthMax) too_deep();
    ++depth_;
  }
  void leave() { --depth_; }

 private:
  static constexpr size_t kNumberBytesMax = 9;

  template <class T>
  static uint8_t* put_tagged(uint8_t* at, uint8_t tag, T value) {
    *at = tag;
    store_big_endian(at + 1, value);
    return at + 1 + sizeof(T);
  }
  // Writes one number at `at`, in its shortest form, and returns where it ends.
  template <class T>
  static uint8_t* put_number(uint8_t* at, T value) {
    if constexpr (std::is_same_v<T, float>) {
      return put_tagged(at, 0xca, std::bit_cast<uint32_t>(value));
    } else if constexpr (std::is_same_v<T, double>) {
      return put_tagged(at, 0xcb, std::bit_cast<uint64_t>(value));
    } else if constexpr (std::is_signed_v<T>) {
      return value < 0 ? put_negative(at, value) : put_unsigned(at, static_cast<uint64_t>(value));
    } else {
      return put_unsigned(at, value);
    }
  }
  static uint8_t* put_unsigned(uint8_t* at, uint64_t value) {
    if (value < 0x80) {
      *at = static_cast<uint8_t>(value);
      return at + 1;
    }
    if (value <= UINT8_MAX) return put_tagged(at, 0xcc, static_cast<uint8_t>(value));
    if (value <= UINT16_MAX) return put_tagged(at, 0xcd, static_cast<uint16_t>(value));
    if (value <= UINT32_MAX) return put_tagged(at, 0xce, static_cast<uint32_t>(value));
    return put_tagged(at, 0xcf, value);
  }
  static uint8_t* put_negative(uint8_t* at, int64_t value) {
    if (value >= -32) {
      *at = static_cast<uint8_t>(value);
      return at + 1;
    }
    if (value >= INT8_MIN) return put_tagged(at, 0xd0, static_cast<uint8_t>(value));
    if (value >= INT16_MIN) return put_tagged(at, 0xd1, static_cast<uint16_t>(value));
    if (value >= INT32_MIN) return put_tagged(at, 0xd2, static_cast<uint32_t>(value));
    return put_tagged(at, 0xd3, static_cast<uint64_t>(value));
  }

  void byte(uint8_t value) {
    Bytes& body = message_.body;
    if (body.capacity() == body.size()) make_room(1);
    body.push_back(value);
  }

  template <class T>
  void tagged(uint8_t tag, T value) {
    put_tagged(extend(1 + sizeof(T)), tag, value);
  }

  // Makes the body longer and returns where the new bytes begin; they hold nothing yet.
  uint8_t* extend(size_t bytes) {
    Bytes& body = message_.body;
    const size_t size = body.size();
    if (body.capacity() - size < bytes) make_room(bytes);
    body.resize(size + bytes);
    return body.data() + size;
  }

  void make_room(size_t bytes);
  void long_number(uint64_t value);
  void long_number(int64_t value);
  void long_string(std::string_view text);
  void long_header(uint8_t tag16, size_t count);
  [[noreturn]] static void too_deep();

  Message& message_;
  WireContext* context_;
  size_t depth_ = 0;
};

}  // namespace holdfast::wire
