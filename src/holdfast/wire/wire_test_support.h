// What several tests of this layer need. Not part of the library.
#pragma once

#include <string>

#include <holdfast/base/random.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::wire {

// "93 01 c0 a1 78": so that a failed comparison of bytes can be read.
inline std::string hex(ByteView bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) {
    if (!text.empty()) text += ' ';
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// What `write(writer)` puts into a body.
template <class F>
Bytes written(F write) {
  Message message;
  Writer writer(message);
  write(writer);
  return message.body;
}

template <class T>
Bytes encoded(const T& value) {
  return encode_message({}, value).body;
}

template <class T>
Result<T> decoded(Bytes body) {
  return decode_message<T>(Message{.kind = {}, .body = std::move(body), .attachments = {}});
}

// The error of decoding `body` as a T; "" if there is none.
template <class T>
std::string decode_error(Bytes body) {
  const Result<T> result = decoded<T>(std::move(body));
  return result.ok() ? std::string() : result.failure().message;
}

// Random integers of every length: uniform ones would nearly all need 8 bytes.
inline uint64_t random_magnitude(Random& random) {
  const uint64_t bits = random.below(65);
  return bits == 0 ? 0 : random.next() >> (64 - bits);
}

inline std::string random_text(Random& random, uint64_t length) {
  std::string text(length, '\0');
  for (char& c : text) c = static_cast<char>(random.below(256));
  return text;
}

inline Bytes random_bytes(Random& random, uint64_t length) {
  Bytes bytes(length);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
  return bytes;
}

}  // namespace holdfast::wire
