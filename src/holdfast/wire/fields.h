// Structs on the wire: list the fields once.
//
//   struct Point {
//     double x = 0, y = 0;
//     HOLDFAST_FIELDS(Point, x, y)
//   };
//
// or, for a struct that cannot be edited, in the namespace that it is in:
//
//   namespace geo { HOLDFAST_FIELDS_OF(Point, x, y) }
//
// A struct travels as an array of its fields in that order; the receiver must have as many. Fields may be
// private with the first macro. A class derived from such a struct needs a list of its own, which may name
// inherited fields. Up to 250 fields. Bit-fields cannot be listed.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include <holdfast/wire/codec.h>

namespace holdfast::wire {

// What a struct says of itself: T guards against a derived class passing for its base.
template <class T>
struct FieldList {
  std::string_view type;
  std::string_view fields;  // "x, y"
};

// The friend of every struct that lists its fields.
struct FieldAccess {
  template <class T>
  static consteval bool listed_inside() {
    return requires {
      { T::holdfast_field_list() } -> std::same_as<FieldList<T>>;
    };
  }
  template <class T>
  static consteval bool listed_beside() {
    return requires(const T* type) {
      { holdfast_field_list(type) } -> std::same_as<FieldList<T>>;
    };
  }
  template <class T>
  static constexpr FieldList<T> list() {
    if constexpr (listed_inside<T>()) {
      return T::holdfast_field_list();
    } else {
      return holdfast_field_list(static_cast<const T*>(nullptr));
    }
  }
  // A tuple of references to the fields.
  template <class T>
  static auto tie(T& value) {
    if constexpr (listed_inside<std::remove_const_t<T>>()) {
      return value.holdfast_fields();
    } else {
      return holdfast_fields(value);
    }
  }
};

template <class T>
concept HasFields = std::is_class_v<T> &&(FieldAccess::listed_inside<T>() || FieldAccess::listed_beside<T>());

// "Point{x:f64,y:f64}" from "Point", "x, y" and the types of the fields.
std::string describe_struct(std::string_view type, std::string_view fields, const std::string* types);

template <HasFields T>
struct Codec<T> {
  static void encode(Writer& writer, const T& value) {
    DepthGuard depth(writer);
    writer.array_header(kCount);
    std::apply([&](const auto&... field) { (wire::encode(writer, field), ...); }, FieldAccess::tie(value));
  }
  static void decode(Reader& reader, T& out) {
    DepthGuard depth(reader);
    constexpr std::string_view kName = name();
    if (!reader.array_header_of(kCount, kName)) return;
    std::apply([&](auto&... field) { (wire::decode(reader, field), ...); }, FieldAccess::tie(out));
  }
  static std::string type_name() {
    static constexpr char kIdentity = 0;
    const DescribingStruct describing(&kIdentity);
    if (!describing.first()) return std::string(name());
    return describe(static_cast<Tuple*>(nullptr));
  }

 private:
  using Tuple = decltype(FieldAccess::tie(std::declval<T&>()));
  static constexpr size_t kCount = std::tuple_size_v<Tuple>;

  static constexpr std::string_view name() { return unqualified(FieldAccess::list<T>().type); }

  template <class... Field>
  static std::string describe(std::tuple<Field...>*) {
    // One more than there are, for there may be none.
    const std::string types[] = {wire::type_name<Field>()..., std::string()};
    return describe_struct(name(), FieldAccess::list<T>().fields, types);
  }
};

}  // namespace holdfast::wire

#define HOLDFAST_FIELDS(Type, ...)                                                                           \
  friend struct ::holdfast::wire::FieldAccess;                                                               \
  static constexpr ::holdfast::wire::FieldList<Type> holdfast_field_list() { return {#Type, #__VA_ARGS__}; } \
  auto holdfast_fields() { return ::std::tie(__VA_ARGS__); }                                                 \
  auto holdfast_fields() const { return ::std::tie(__VA_ARGS__); }

#define HOLDFAST_FIELDS_OF(Type, ...)                                                                            \
  constexpr ::holdfast::wire::FieldList<Type> holdfast_field_list(const Type*) { return {#Type, #__VA_ARGS__}; } \
  inline auto holdfast_fields([[maybe_unused]] Type& self) {                                                     \
    return ::std::tie(__VA_OPT__(HOLDFAST_EXPAND_(HOLDFAST_SELF_(__VA_ARGS__, ))));                              \
  }                                                                                                              \
  inline auto holdfast_fields([[maybe_unused]] const Type& self) {                                               \
    return ::std::tie(__VA_OPT__(HOLDFAST_EXPAND_(HOLDFAST_SELF_(__VA_ARGS__, ))));                              \
  }

// "a, b, " -> "self.a, self.b". A macro cannot call itself, but one that is put together only when the text
// is read again can be: each HOLDFAST_EXPAND_ reads it again 256 times.
#define HOLDFAST_SELF_(first, ...) self.first __VA_OPT__(, HOLDFAST_SELF_AGAIN_ HOLDFAST_PARENTHESES_(__VA_ARGS__))
#define HOLDFAST_SELF_AGAIN_() HOLDFAST_SELF_
#define HOLDFAST_PARENTHESES_ ()
#define HOLDFAST_EXPAND_(...) \
  HOLDFAST_EXPAND_64_(HOLDFAST_EXPAND_64_(HOLDFAST_EXPAND_64_(HOLDFAST_EXPAND_64_(__VA_ARGS__))))
#define HOLDFAST_EXPAND_64_(...) \
  HOLDFAST_EXPAND_16_(HOLDFAST_EXPAND_16_(HOLDFAST_EXPAND_16_(HOLDFAST_EXPAND_16_(__VA_ARGS__))))
#define HOLDFAST_EXPAND_16_(...) \
  HOLDFAST_EXPAND_4_(HOLDFAST_EXPAND_4_(HOLDFAST_EXPAND_4_(HOLDFAST_EXPAND_4_(__VA_ARGS__))))
#define HOLDFAST_EXPAND_4_(...) \
  HOLDFAST_EXPAND_1_(HOLDFAST_EXPAND_1_(HOLDFAST_EXPAND_1_(HOLDFAST_EXPAND_1_(__VA_ARGS__))))
#define HOLDFAST_EXPAND_1_(...) __VA_ARGS__
