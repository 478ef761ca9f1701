// The name of a C++ type for signatures and for people: of objects that live remotely, which need no codec.
#pragma once

#include <string>
#include <typeinfo>

#include <holdfast/wire/codecs.h>

namespace holdfast {

// "ns::Counter", demangled.
std::string cpp_type_name(const std::type_info& type);

// In the wire's words if it can be sent, so that every compiler says the same; otherwise as C++ calls it.
template <class T>
std::string object_name() {
  if constexpr (std::is_void_v<T>) {
    return "nil";
  } else if constexpr (wire::Encodable<T>) {
    return wire::type_name<T>();
  } else {
    return cpp_type_name(typeid(T));
  }
}

}  // namespace holdfast
