// The types of TorchScript on the wire: those that a list, a dict or a named tuple keeps of what is in it. Classes and
// enums go by their names and are looked up at the receiver; nothing that arrives is compiled. Private to this layer;
// any thread.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/class_type.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <holdfast/wire/reader.h>
#include <holdfast/wire/writer.h>

namespace holdfast {

// The classes, enums and named tuples that a worker has loaded. Any thread.
class KnownTypes {
 public:
  virtual ~KnownTypes() = default;
  // By its qualified name, "__torch__.Counter". Null: there is none.
  virtual c10::NamedTypePtr find_type(std::string_view name) const = 0;
};

// Throws InvalidArgument for a type whose values are not sent.
void encode_type(wire::Writer& writer, const c10::Type& type);
// Null, and the reader has failed, if it makes no sense here. `known` may be null. May throw c10::Error.
c10::TypePtr decode_type(wire::Reader& reader, const KnownTypes* known);

// A class that has instances here, or null; the reader fails if there is none of that name.
c10::ClassTypePtr find_class(wire::Reader& reader, std::string_view name, const KnownTypes* known);
c10::EnumTypePtr find_enum(wire::Reader& reader, std::string_view name, const KnownTypes* known);

// Is the value one of that type, as it is? The type has no variables.
bool fits(const c10::IValue& value, const c10::Type& type);
// The type of the value, for people: "Tensor", "List[int]". Never long.
std::string type_text(const c10::IValue& value);

}  // namespace holdfast
