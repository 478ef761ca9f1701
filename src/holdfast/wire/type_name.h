// Wire types as text, the same from every compiler: what two workers compare to see that they mean the same
// function. The grammar:
//
//   nil  bool  char  i8 .. i64  u8 .. u64  f32  f64  str  bytes  duration
//   optional<T>  variant<A,B>  tuple<A,B>  list<T>  array<T,N>  set<T>  map<K,V>
//   enum Color:i32           an enum, by its own name and its underlying type
//   Point{x:f64,y:f64}       a struct, by its own name and its fields
//   Point                    a struct inside its own description, so that recursive structs come to an end
//
// Names of enums and structs go without namespace and template arguments. Containers of one kind share a
// name (vector, deque and list are all list<T>), for they look the same on the wire.
#pragma once

#include <string>
#include <string_view>

namespace holdfast::wire {

// "geo::Box<int>" -> "Box".
constexpr std::string_view unqualified(std::string_view name) {
  name = name.substr(0, name.find('<'));
  const size_t colons = name.rfind("::");
  return colons == std::string_view::npos ? name : name.substr(colons + 2);
}

// "T = ns::Color" inside what the compiler calls this function -> "Color"; "" for an enum without a name.
// Only for enums: their own name is an identifier, which every compiler prints alike.
template <class T>
std::string_view enum_name();
std::string_view enum_name_in(std::string_view function);

template <class T>
std::string_view enum_name() {
  return enum_name_in(__PRETTY_FUNCTION__);
}

// Held while a struct is being described; `first()` is false if it already is, further out on this thread.
// The mark is kept per thread and not passed along, so that a codec's type_name() takes no arguments.
class DescribingStruct {
 public:
  // `type`: an address that only this type has.
  explicit DescribingStruct(const void* type);
  ~DescribingStruct();
  DescribingStruct(const DescribingStruct&) = delete;
  DescribingStruct& operator=(const DescribingStruct&) = delete;
  bool first() const { return first_; }

 private:
  const void* type_;
  const DescribingStruct* outer_;
  bool first_ = true;
};

}  // namespace holdfast::wire
