// Input: takes the bytes of a fuzzer apart into choices and messages, and Output puts them together again, for the
// first inputs (make_corpus.cc). Where nothing is left a choice is 0, so every run of bytes is a whole input. One
// thread.
//
//   message   kind (1 byte), number of attachments (1), length of the body (2, little-endian), the body;
//             for each attachment its length (2) and its bytes
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <holdfast/wire/message.h>

namespace holdfast::fuzz {

inline constexpr size_t kAttachmentsPerMessageMax = 3;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(data, size) {}

  bool empty() const { return left_.empty(); }
  ByteView rest() const { return left_; }
  uint8_t byte() {
    if (left_.empty()) return 0;
    const uint8_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  // 0 to bound - 1; at most 256.
  uint32_t below(uint32_t bound) { return byte() % bound; }
  uint32_t two_bytes() {
    const uint32_t low = byte();
    return low | uint32_t{byte()} << 8;
  }
  ByteView take(size_t count) {
    const ByteView taken = left_.first(std::min(count, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  Message message() {
    Message message;
    message.kind = {byte()};
    const size_t attachments = std::min<size_t>(byte(), kAttachmentsPerMessageMax);
    message.body = copy(take(two_bytes()));
    for (size_t i = 0; i < attachments; ++i) {
      const auto owner = std::make_shared<Bytes>(copy(take(two_bytes())));
      message.attachments.push_back({.owner = owner, .data = owner->data(), .bytes = owner->size()});
    }
    return message;
  }

 private:
  // In memory of exactly that size, so that AddressSanitizer sees every byte too many.
  static Bytes copy(ByteView bytes) { return Bytes(bytes.begin(), bytes.end()); }

  ByteView left_;
};

class Output {
 public:
  Output& byte(size_t value) {
    bytes_.push_back(static_cast<uint8_t>(value));
    return *this;
  }
  Output& two_bytes(size_t value) { return byte(value & 0xff).byte(value >> 8); }
  Output& append(ByteView bytes) {
    bytes_.append(bytes);
    return *this;
  }
  Output& message(const Message& message) {
    byte(message.kind.value).byte(message.attachments.size()).two_bytes(message.body.size()).append(message.body);
    for (const Attachment& attachment : message.attachments) {
      two_bytes(attachment.bytes).append({attachment.data, attachment.bytes});
    }
    return *this;
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace holdfast::fuzz
