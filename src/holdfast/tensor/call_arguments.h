// The arguments of an operator or a script: values by position, then by keyword. In C++ they are whatever converts to a
// c10::IValue, and last, if there are any, Kwargs.
#pragma once

#include <complex>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <holdfast/tensor/ivalue_codec.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

namespace call_detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsStdComplex : std::false_type {};
template <class T>
struct IsStdComplex<std::complex<T>> : std::true_type {};

// The type of TorchScript that a C++ value of type T becomes.
template <class T>
c10::TypePtr script_type() {
  if constexpr (std::same_as<T, bool>) {
    return c10::BoolType::get();
  } else if constexpr (std::integral<T>) {
    return c10::IntType::get();
  } else if constexpr (std::floating_point<T>) {
    return c10::FloatType::get();
  } else if constexpr (IsStdComplex<T>::value) {
    return c10::ComplexType::get();
  } else if constexpr (std::same_as<T, c10::IValue>) {
    return c10::AnyType::get();
  } else if constexpr (IsVector<T>::value) {
    return c10::ListType::create(script_type<typename T::value_type>());
  } else if constexpr (IsOptional<T>::value) {
    return c10::OptionalType::create(script_type<typename T::value_type>());
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return c10::StringType::get();
  } else {
    return c10::getTypePtr<T>();
  }
}

}  // namespace call_detail

// Every integer is an int, every floating-point number a float, a vector a list.
template <class T>
c10::IValue to_ivalue(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value;
  } else if constexpr (std::integral<T>) {
    return static_cast<int64_t>(value);
  } else if constexpr (std::floating_point<T>) {
    return static_cast<double>(value);
  } else if constexpr (call_detail::IsStdComplex<T>::value) {
    return c10::complex<double>(value.real(), value.imag());
  } else if constexpr (std::same_as<T, std::nullopt_t>) {
    return {};
  } else if constexpr (call_detail::IsOptional<T>::value) {
    return value ? to_ivalue(*value) : c10::IValue();
  } else if constexpr (call_detail::IsVector<T>::value) {
    c10::impl::GenericList list(call_detail::script_type<typename T::value_type>());
    list.reserve(value.size());
    for (const typename T::value_type& item : value) list.push_back(to_ivalue(item));
    return list;
  } else if constexpr (!std::is_convertible_v<const T&, c10::IValue> && std::is_convertible_v<const T&, std::string>) {
    return std::string(value);
  } else {
    static_assert(std::is_constructible_v<c10::IValue, const T&>, "an argument does not convert to a c10::IValue");
    return c10::IValue(value);
  }
}

// One argument by keyword.
struct Kwarg {
  template <class T>
  Kwarg(std::string name, const T& value) : name(std::move(name)), value(to_ivalue(value)) {}
  std::string name;
  c10::IValue value;
};

// Arguments by keyword: Kwargs{{"alpha", 2}, {"dtype", at::kFloat}}.
class Kwargs {
 public:
  Kwargs() = default;
  Kwargs(std::initializer_list<Kwarg> all) : all_(all) {}
  Kwargs& add(Kwarg one) {
    all_.push_back(std::move(one));
    return *this;
  }
  const std::vector<Kwarg>& all() const { return all_; }

 private:
  std::vector<Kwarg> all_;
};

struct CallArguments {
  std::vector<c10::IValue> positional;
  std::vector<std::pair<std::string, c10::IValue>> keyword;
  HOLDFAST_FIELDS(CallArguments, positional, keyword)

  template <class... Args>
  static CallArguments of(const Args&... args) {
    CallArguments arguments;
    (arguments.add(args), ...);
    return arguments;
  }
  template <class T>
  void add(const T& argument) {
    if constexpr (std::same_as<T, Kwargs>) {
      for (const Kwarg& one : argument.all()) keyword.emplace_back(one.name, one.value);
    } else {
      positional.push_back(to_ivalue(argument));
    }
  }
};

}  // namespace holdfast
