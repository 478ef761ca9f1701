// Codec<T>: how a C++ type looks on the wire. Here are the frame of it, numbers, strings, bytes and enums;
// codec_containers.h, codec_time.h and fields.h hold the rest, codecs.h includes all of them.
//
// A type has a codec if Codec<T> is specialised with
//   static void encode(Writer&, const T&);
//   static void decode(Reader&, T& out);       // any bytes: on nonsense fail the reader, never throw
//   static std::string type_name();            // see type_name.h
//   static constexpr bool kMayBeNil = true;    // only if encode may write nil (optional<T> cannot hold it)
// What is decoded into may hold an old value: decode replaces it. After a failure it holds anything valid.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include <holdfast/base/error.h>
#include <holdfast/wire/reader.h>
#include <holdfast/wire/type_name.h>
#include <holdfast/wire/writer.h>

namespace holdfast::wire {

// No codec. Left complete, so that asking whether there is one is not itself an error.
template <class T>
struct Codec {};

template <class T>
concept Encodable = requires(Writer& writer, Reader& reader, const T& in, T& out) {
  Codec<T>::encode(writer, in);
  Codec<T>::decode(reader, out);
  { Codec<T>::type_name() } -> std::convertible_to<std::string>;
};

#define HOLDFAST_REQUIRE_CODEC(T)                                                                            \
  static_assert(::holdfast::wire::Encodable<T>,                                                              \
                "Holdfast cannot send this type. If it is a struct, list its fields: HOLDFAST_FIELDS(Type, " \
                "field, ...) inside it, or HOLDFAST_FIELDS_OF(Type, field, ...) beside it. If it is a "      \
                "container, do that for what it holds. Pointers and references cannot be sent.")

template <class T>
void encode(Writer& writer, const T& value) {
  HOLDFAST_REQUIRE_CODEC(T);
  if constexpr (Encodable<T>) Codec<T>::encode(writer, value);
}

template <class T>
void decode(Reader& reader, T& out) {
  HOLDFAST_REQUIRE_CODEC(T);
  static_assert(std::default_initializable<T>,
                "Holdfast cannot receive this type: it needs a default constructor, for values are decoded "
                "into an object that exists.");
  if constexpr (Encodable<T>) Codec<T>::decode(reader, out);
}

template <class T>
std::string type_name() {
  HOLDFAST_REQUIRE_CODEC(std::remove_cvref_t<T>);
  return Codec<std::remove_cvref_t<T>>::type_name();
}

// The names of a list of types, with commas between.
template <class... T>
std::string type_names() {
  std::string text;
  ((text += (text.empty() ? "" : ","), text += type_name<T>()), ...);
  return text;
}

// A message whose body is `value`.
template <class T>
Message encode_message(Kind kind, const T& value, WireContext* context = nullptr) {
  Message message{.kind = kind, .body = {}, .attachments = {}};
  Writer writer(message, context);
  encode(writer, value);
  return message;
}

// The body of `message`, all of it, as a T; or why it is none, with Code::corrupt.
template <class T>
Result<T> decode_message(const Message& message, WireContext* context = nullptr) {
  Reader reader(message, context);
  T value{};
  decode(reader, value);
  reader.finish();
  if (!reader.ok()) return Failure{.code = Code::corrupt, .message = reader.error()};
  return value;
}

// The integer types of C++ that are numbers: not bool, not the character types.
template <class T>
concept Number = std::integral<T> && sizeof(T) <= 8 && !std::same_as<T, bool> && !std::same_as<T, char> &&
                 !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> && !std::same_as<T, char16_t> &&
                 !std::same_as<T, char32_t>;

template <>
struct Codec<bool> {
  static void encode(Writer& writer, bool value) { writer.boolean(value); }
  static void decode(Reader& reader, bool& out) { out = reader.boolean(); }
  static std::string type_name() { return "bool"; }
};

template <Number T>
struct Codec<T> {
  static void encode(Writer& writer, T value) {
    if constexpr (std::is_signed_v<T>) {
      writer.integer(value);
    } else {
      writer.unsigned_integer(value);
    }
  }
  static void decode(Reader& reader, T& out) {
    if constexpr (std::is_signed_v<T>) {
      out = narrow(reader, reader.integer());
    } else {
      out = narrow(reader, reader.unsigned_integer());
    }
  }
  static std::string type_name() { return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)); }

 private:
  template <class Wide>
  static T narrow(Reader& reader, Wide value) {
    if (!std::in_range<T>(value)) {
      reader.fail("expected an " + type_name() + ", found " + std::to_string(value) + ", which is out of its range");
      return 0;
    }
    return static_cast<T>(value);
  }
};

// Signed on some machines, unsigned on others: sent as the number of the unsigned one.
template <>
struct Codec<char> {
  static void encode(Writer& writer, char value) { writer.unsigned_integer(static_cast<unsigned char>(value)); }
  static void decode(Reader& reader, char& out) {
    unsigned char number = 0;
    Codec<unsigned char>::decode(reader, number);
    out = static_cast<char>(number);
  }
  static std::string type_name() { return "char"; }
};

template <>
struct Codec<float> {
  static void encode(Writer& writer, float value) { writer.float32(value); }
  static void decode(Reader& reader, float& out) { out = reader.float32(); }
  static std::string type_name() { return "f32"; }
};

template <>
struct Codec<double> {
  static void encode(Writer& writer, double value) { writer.float64(value); }
  static void decode(Reader& reader, double& out) { out = reader.float64(); }
  static std::string type_name() { return "f64"; }
};

template <>
struct Codec<std::string> {
  static void encode(Writer& writer, const std::string& value) { writer.string(value); }
  static void decode(Reader& reader, std::string& out) { out = reader.string(); }
  static std::string type_name() { return "str"; }
};

template <>
struct Codec<Bytes> {
  static void encode(Writer& writer, const Bytes& value) { writer.binary(value); }
  static void decode(Reader& reader, Bytes& out) {
    const ByteView bytes = reader.binary();
    out.resize(bytes.size());
    if (!bytes.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  }
  static std::string type_name() { return "bytes"; }
};

// An enum travels as its number. A number that no enumerator has is let through, as C++ itself does: the
// peer may be newer.
template <class T>
requires std::is_enum_v<T>
struct Codec<T> {
  using Underlying = std::underlying_type_t<T>;
  static_assert(
      requires { T{Underlying{}}; },
      "Holdfast sends an enum as its underlying type, which must be written down: enum Color : int {...}");

  static void encode(Writer& writer, T value) { wire::encode(writer, static_cast<Underlying>(value)); }
  static void decode(Reader& reader, T& out) {
    Underlying number{};
    wire::decode(reader, number);
    out = static_cast<T>(number);
  }
  static std::string type_name() { return "enum " + std::string(enum_name<T>()) + ":" + wire::type_name<Underlying>(); }
};

}  // namespace holdfast::wire
