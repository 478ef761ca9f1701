#include <holdfast/wire/writer.h>

#include <algorithm>
#include <string>
#include <utility>

#include <holdfast/base/error.h>
#include <holdfast/wire/frame.h>

namespace holdfast::wire {

namespace {

[[noreturn]] void refuse(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

// Lengths and counts are at most 32 bits in MessagePack.
uint32_t checked_length(size_t length, const char* what) {
  if (length > UINT32_MAX) {
    refuse(std::string("cannot send ") + what + " of " + std::to_string(length) + ": the limit is " +
           std::to_string(UINT32_MAX));
  }
  return static_cast<uint32_t>(length);
}

}  // namespace

void Writer::make_room(size_t bytes) {
  Bytes& body = message_.body;
  const size_t size = body.size();
  if (size > kBodyBytesMax || bytes > kBodyBytesMax - size) {
    refuse("cannot send a message with a body of more than " + std::to_string(kBodyBytesMax) +
           " bytes; send large data as a tensor, or in parts");
  }
  constexpr size_t kFirstBytes = 128;
  const size_t doubled = std::min(2 * body.capacity(), kBodyBytesMax);
  body.reserve(std::max({kFirstBytes, doubled, size + bytes}));
}

void Writer::long_number(uint64_t value) {
  if (value > UINT32_MAX) return tagged(0xcf, value);
  uint8_t number[kNumberBytesMax];
  const auto bytes = static_cast<size_t>(put_unsigned(number, value) - number);
  std::memcpy(extend(bytes), number, bytes);
}

void Writer::long_number(int64_t value) {
  uint8_t number[kNumberBytesMax];
  const auto bytes = static_cast<size_t>(put_negative(number, value) - number);
  std::memcpy(extend(bytes), number, bytes);
}

void Writer::long_string(std::string_view text) {
  const uint32_t length = checked_length(text.size(), "a string");
  if (length <= UINT8_MAX) {
    tagged(0xd9, static_cast<uint8_t>(length));
  } else if (length <= UINT16_MAX) {
    tagged(0xda, static_cast<uint16_t>(length));
  } else {
    tagged(0xdb, length);
  }
  std::memcpy(extend(length), text.data(), length);
}

void Writer::binary(ByteView bytes) {
  const uint32_t length = checked_length(bytes.size(), "bytes");
  if (length <= UINT8_MAX) {
    tagged(0xc4, static_cast<uint8_t>(length));
  } else if (length <= UINT16_MAX) {
    tagged(0xc5, static_cast<uint16_t>(length));
  } else {
    tagged(0xc6, length);
  }
  if (length != 0) std::memcpy(extend(length), bytes.data(), length);
}

void Writer::extension(int8_t type, ByteView bytes) {
  const uint32_t length = checked_length(bytes.size(), "an extension");
  switch (length) {
    case 1: byte(0xd4); break;
    case 2: byte(0xd5); break;
    case 4: byte(0xd6); break;
    case 8: byte(0xd7); break;
    case 16: byte(0xd8); break;
    default:
      if (length <= UINT8_MAX) {
        tagged(0xc7, static_cast<uint8_t>(length));
      } else if (length <= UINT16_MAX) {
        tagged(0xc8, static_cast<uint16_t>(length));
      } else {
        tagged(0xc9, length);
      }
  }
  byte(static_cast<uint8_t>(type));
  if (length != 0) std::memcpy(extend(length), bytes.data(), length);
}

void Writer::long_header(uint8_t tag16, size_t count) {
  const uint32_t length = checked_length(count, "a container");
  if (length <= UINT16_MAX) {
    tagged(tag16, static_cast<uint16_t>(length));
  } else {
    tagged(static_cast<uint8_t>(tag16 + 1), length);
  }
}

uint32_t Writer::attach(Attachment attachment) {
  const size_t index = message_.attachments.size();
  if (index >= kAttachmentsMax) {
    refuse("cannot send more than " + std::to_string(kAttachmentsMax) + " attachments (tensors) in one message");
  }
  message_.attachments.push_back(std::move(attachment));
  return static_cast<uint32_t>(index);
}

void Writer::too_deep() {
  refuse("cannot send a value that nests deeper than " + std::to_string(kDepthMax) + " levels");
}

}  // namespace holdfast::wire
