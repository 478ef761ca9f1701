// c10::IValue as an argument or a result: what operators and scripts of libtorch take and give. docs/operators.md says
// which values travel. On the wire None, bools, numbers, strings and tensors are themselves; the rest is an array that
// begins with the kind of value.
//
// A list that is in two places arrives as two. Classes and enums are looked up among the scripts that the receiver has
// loaded (tensor/script.h).
#pragma once

#include <string>

#include <ATen/core/ivalue.h>

#include <holdfast/tensor/codec.h>
#include <holdfast/wire/codec.h>

namespace holdfast {

template <>
struct wire::Codec<c10::IValue> {
  static constexpr bool kMayBeNil = true;
  // Throws InvalidArgument for what is not sent: modules, streams, futures, values nested too deep.
  static void encode(Writer& writer, const c10::IValue& value);
  static void decode(Reader& reader, c10::IValue& out);
  static std::string type_name() { return "ivalue"; }
};

}  // namespace holdfast
