// Codecs of the standard library's containers. On the wire:
//   optional: nil, or the value        variant: [index, value]      monostate: nil
//   pair, tuple, array: an array of exactly that length
//   vector, deque, list, set, unordered_set: an array                map, unordered_map: a map
// A key that comes twice is an error: a map that was sent has none. Room for elements is taken as they
// arrive, for a peer may announce more than it sends.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <holdfast/wire/codec.h>

namespace holdfast::wire {

// The most elements for which a decoder makes room before they have arrived.
inline constexpr size_t kReserveMax = 4096;

template <class T>
inline constexpr bool kMayBeNil = requires {
  requires Codec<T>::kMayBeNil;
};

template <>
struct Codec<std::monostate> {
  static constexpr bool kMayBeNil = true;
  static void encode(Writer& writer, std::monostate) { writer.nil(); }
  static void decode(Reader& reader, std::monostate&) { reader.nil(); }
  static std::string type_name() { return "nil"; }
};

template <class T>
requires Encodable<T>
struct Codec<std::optional<T>> {
  static_assert(!wire::kMayBeNil<T>,
                "Holdfast sends an empty optional as nil, which this type may be itself: wrap it in a struct");
  static constexpr bool kMayBeNil = true;

  static void encode(Writer& writer, const std::optional<T>& value) {
    if (value) {
      wire::encode(writer, *value);
    } else {
      writer.nil();
    }
  }
  static void decode(Reader& reader, std::optional<T>& out) {
    out.reset();
    if (!reader.try_nil()) wire::decode(reader, out.emplace());
  }
  static std::string type_name() { return "optional<" + wire::type_name<T>() + ">"; }
};

template <class... T>
requires(Encodable<T>&&...) struct Codec<std::variant<T...>> {
  using Variant = std::variant<T...>;

  static void encode(Writer& writer, const Variant& value) {
    if (value.valueless_by_exception()) {
      throw_failure({.code = Code::invalid_argument, .message = "cannot send a variant that has lost its value"});
    }
    DepthGuard depth(writer);
    writer.array_header(2);
    writer.unsigned_integer(value.index());
    std::visit([&](const auto& held) { wire::encode(writer, held); }, value);
  }
  static void decode(Reader& reader, Variant& out) {
    DepthGuard depth(reader);
    if (!reader.array_header_of(2, "a variant")) return;
    const uint64_t index = reader.unsigned_integer();
    if (index >= sizeof...(T)) {
      reader.fail("expected the index of a variant of " + std::to_string(sizeof...(T)) + ", found " +
                  std::to_string(index));
    }
    if (reader.ok()) decode_alternative(reader, out, index, std::index_sequence_for<T...>());
  }
  static std::string type_name() { return "variant<" + type_names<T...>() + ">"; }

 private:
  template <size_t... I>
  static void decode_alternative(Reader& reader, Variant& out, uint64_t index, std::index_sequence<I...>) {
    ((index == I ? wire::decode(reader, out.template emplace<I>()) : void()), ...);
  }
};

// Elements may be references, so that arguments can be written where they stand: std::tie, forward_as_tuple.
template <class... T>
requires(Encodable<std::remove_cvref_t<T>>&&...) struct Codec<std::tuple<T...>> {
  static void encode(Writer& writer, const std::tuple<T...>& value) {
    DepthGuard depth(writer);
    writer.array_header(sizeof...(T));
    std::apply([&](const auto&... element) { (wire::encode(writer, element), ...); }, value);
  }
  static void decode(Reader& reader, std::tuple<T...>& out) {
    DepthGuard depth(reader);
    if (!reader.array_header_of(sizeof...(T), "a tuple")) return;
    std::apply([&](auto&... element) { (wire::decode(reader, element), ...); }, out);
  }
  static std::string type_name() { return "tuple<" + type_names<T...>() + ">"; }
};

template <class A, class B>
requires(Encodable<A>&& Encodable<B>) struct Codec<std::pair<A, B>> {
  static void encode(Writer& writer, const std::pair<A, B>& value) {
    DepthGuard depth(writer);
    writer.array_header(2);
    wire::encode(writer, value.first);
    wire::encode(writer, value.second);
  }
  static void decode(Reader& reader, std::pair<A, B>& out) {
    DepthGuard depth(reader);
    if (!reader.array_header_of(2, "a pair")) return;
    wire::decode(reader, out.first);
    wire::decode(reader, out.second);
  }
  static std::string type_name() { return "tuple<" + type_names<A, B>() + ">"; }
};

template <class T, size_t N>
requires Encodable<T>
struct Codec<std::array<T, N>> {
  static void encode(Writer& writer, const std::array<T, N>& value) {
    DepthGuard depth(writer);
    writer.array_header(N);
    for (const T& element : value) wire::encode(writer, element);
  }
  static void decode(Reader& reader, std::array<T, N>& out) {
    static_assert(N <= UINT32_MAX);
    DepthGuard depth(reader);
    if (!reader.array_header_of(N, "an array of fixed length")) return;
    for (T& element : out) wire::decode(reader, element);
  }
  static std::string type_name() { return "array<" + wire::type_name<T>() + "," + std::to_string(N) + ">"; }
};

// vector, deque and list.
template <class Sequence>
struct SequenceCodec {
  using T = typename Sequence::value_type;

  static void encode(Writer& writer, const Sequence& value) {
    DepthGuard depth(writer);
    writer.array_header(value.size());
    if constexpr ((Number<T> || std::floating_point<T>)&&requires { value.data(); }) {
      writer.numbers(std::span<const T>(value));
    } else {
      // For vector<bool>, whose elements are no objects, const T& binds to a copy.
      for (const T& element : value) wire::encode(writer, element);
    }
  }
  static void decode(Reader& reader, Sequence& out) {
    DepthGuard depth(reader);
    out.clear();
    const uint32_t count = reader.array_header();
    if constexpr (requires { out.reserve(0); }) out.reserve(std::min<size_t>(count, kReserveMax));
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      if constexpr (std::is_arithmetic_v<T>) {
        T element{};
        wire::decode(reader, element);
        out.push_back(element);
      } else {
        wire::decode(reader, out.emplace_back());
      }
    }
  }
  static std::string type_name() { return "list<" + wire::type_name<T>() + ">"; }
};

template <class T, class Allocator>
requires Encodable<T>
struct Codec<std::vector<T, Allocator>> : SequenceCodec<std::vector<T, Allocator>> {
};
template <class T, class Allocator>
requires Encodable<T>
struct Codec<std::deque<T, Allocator>> : SequenceCodec<std::deque<T, Allocator>> {
};
template <class T, class Allocator>
requires Encodable<T>
struct Codec<std::list<T, Allocator>> : SequenceCodec<std::list<T, Allocator>> {
};

template <class Set>
struct SetCodec {
  using T = typename Set::value_type;

  static void encode(Writer& writer, const Set& value) {
    DepthGuard depth(writer);
    writer.array_header(value.size());
    for (const T& element : value) wire::encode(writer, element);
  }
  static void decode(Reader& reader, Set& out) {
    DepthGuard depth(reader);
    out.clear();
    const uint32_t count = reader.array_header();
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      T element{};
      wire::decode(reader, element);
      if (!reader.ok()) return;
      if (!out.insert(std::move(element)).second) reader.fail("the same element is in a set twice");
    }
  }
  static std::string type_name() { return "set<" + wire::type_name<T>() + ">"; }
};

template <class T, class Compare, class Allocator>
requires Encodable<T>
struct Codec<std::set<T, Compare, Allocator>> : SetCodec<std::set<T, Compare, Allocator>> {
};
template <class T, class Hash, class Equal, class Allocator>
requires Encodable<T>
struct Codec<std::unordered_set<T, Hash, Equal, Allocator>> : SetCodec<std::unordered_set<T, Hash, Equal, Allocator>> {
};

template <class Map>
struct MapCodec {
  using Key = typename Map::key_type;
  using Mapped = typename Map::mapped_type;

  static void encode(Writer& writer, const Map& value) {
    DepthGuard depth(writer);
    writer.map_header(value.size());
    for (const auto& [key, mapped] : value) {
      wire::encode(writer, key);
      wire::encode(writer, mapped);
    }
  }
  static void decode(Reader& reader, Map& out) {
    DepthGuard depth(reader);
    out.clear();
    const uint32_t count = reader.map_header();
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      Key key{};
      wire::decode(reader, key);
      if (!reader.ok()) return;
      const auto [place, is_new] = out.try_emplace(std::move(key));
      if (!is_new) {
        reader.fail("the same key is in a map twice");
        return;
      }
      wire::decode(reader, place->second);
    }
  }
  static std::string type_name() { return "map<" + type_names<Key, Mapped>() + ">"; }
};

template <class Key, class T, class Compare, class Allocator>
requires(Encodable<Key>&& Encodable<T>) struct Codec<std::map<Key, T, Compare, Allocator>>
    : MapCodec<std::map<Key, T, Compare, Allocator>> {
};
template <class Key, class T, class Hash, class Equal, class Allocator>
requires(Encodable<Key>&& Encodable<T>) struct Codec<std::unordered_map<Key, T, Hash, Equal, Allocator>>
    : MapCodec<std::unordered_map<Key, T, Hash, Equal, Allocator>> {
};

}  // namespace holdfast::wire
