#include <holdfast/tensor/ivalue_codec.h>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/class_type.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/ivalue.h>
#include <fmt/format.h>

#include <holdfast/rpc/call_host.h>
#include <holdfast/tensor/device.h>
#include <holdfast/tensor/ivalue_types.h>
#include <holdfast/tensor/scripts.h>

namespace holdfast {

namespace {

using c10::IValue;

// What an array that stands for a value begins with. The numbers are the protocol's: see docs/operators.md.
enum class ValueNumber : uint8_t {
  complex = 1,      // [1, real, imaginary]
  list = 2,         // [2, type, [item...]]
  dict = 3,         // [3, type of keys, type of values, {key: value...}]
  tuple = 4,        // [4, [item...]]
  named_tuple = 5,  // [5, type, [item...]]
  device = 6,       // [6, number, index]
  object = 7,       // [7, class, {attribute: value...}]
  enum_ = 8,        // [8, enum, name]
};

// ---- sending

[[noreturn]] void refuse_value(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

void begin_value(wire::Writer& writer, ValueNumber number, size_t parts) {
  writer.array_header(1 + parts);
  writer.unsigned_integer(static_cast<uint64_t>(number));
}

void encode_value(wire::Writer& writer, const IValue& value);

template <class Items>
void encode_items(wire::Writer& writer, const Items& items) {
  writer.array_header(items.size());
  for (const IValue& item : items) encode_value(writer, item);
}

void encode_dict(wire::Writer& writer, const c10::Dict<IValue, IValue>& dict) {
  begin_value(writer, ValueNumber::dict, 3);
  encode_type(writer, *dict.keyType());
  encode_type(writer, *dict.valueType());
  writer.map_header(dict.size());
  for (const auto& entry : dict) {
    encode_value(writer, entry.key());
    encode_value(writer, entry.value());
  }
}

void encode_tuple(wire::Writer& writer, const c10::ivalue::Tuple& tuple) {
  const auto type = tuple.type();
  if (type->name() && type->schema()) {
    begin_value(writer, ValueNumber::named_tuple, 2);
    encode_type(writer, *type);
  } else {
    begin_value(writer, ValueNumber::tuple, 1);
  }
  encode_items(writer, tuple.elements());
}

void encode_device_value(wire::Writer& writer, c10::Device device) {
  const std::optional<DeviceNumber> number = device_number_of(device.type());
  if (!number) refuse_value(fmt::format("the device {} is not sent", device.str()));
  begin_value(writer, ValueNumber::device, 2);
  writer.unsigned_integer(static_cast<uint64_t>(*number));
  writer.integer(device.index());
}

void encode_object(wire::Writer& writer, const IValue& value) {
  const c10::intrusive_ptr<c10::ivalue::Object> object = value.toObject();
  const c10::ClassTypePtr type = object->type();
  if (type->is_module()) refuse_value("a ScriptModule is not sent; call its methods where it is");
  if (!type->name() || value.isCustomClass()) refuse_value(fmt::format("a {} is not sent", type->repr_str()));
  begin_value(writer, ValueNumber::object, 2);
  writer.string(type->name()->qualifiedName());
  writer.map_header(type->numAttributes());
  for (size_t i = 0; i < type->numAttributes(); ++i) {
    writer.string(type->getAttributeName(i));
    encode_value(writer, object->getSlot(i));
  }
}

void encode_value(wire::Writer& writer, const IValue& value) {
  if (value.isTensor()) return wire::encode(writer, value.toTensor());
  if (value.isInt()) return writer.integer(value.toInt());
  if (value.isDouble()) return writer.float64(value.toDouble());
  if (value.isBool()) return writer.boolean(value.toBool());
  if (value.isNone()) return writer.nil();
  if (value.isString()) return writer.string(value.toStringRef());

  wire::DepthGuard guard(writer);
  if (value.isList()) {
    const c10::List<IValue> list = value.toList();
    begin_value(writer, ValueNumber::list, 2);
    encode_type(writer, *list.elementType());
    encode_items(writer, list);
  } else if (value.isTuple()) {
    encode_tuple(writer, *value.toTuple());
  } else if (value.isGenericDict()) {
    encode_dict(writer, value.toGenericDict());
  } else if (value.isComplexDouble()) {
    begin_value(writer, ValueNumber::complex, 2);
    writer.float64(value.toComplexDouble().real());
    writer.float64(value.toComplexDouble().imag());
  } else if (value.isDevice()) {
    encode_device_value(writer, value.toDevice());
  } else if (value.isObject()) {
    encode_object(writer, value);
  } else if (value.isEnum()) {
    begin_value(writer, ValueNumber::enum_, 2);
    writer.string(value.toEnumHolder()->qualifiedClassName());
    writer.string(value.toEnumHolder()->name());
  } else {
    refuse_value(fmt::format("a {} is not sent", value.tagKind()));
  }
}

// ---- receiving

const KnownTypes* types_known_to(wire::Reader& reader) {
  auto* context = dynamic_cast<ReceiveContext*>(reader.context());
  auto* host = context != nullptr ? dynamic_cast<Host*>(&context->host) : nullptr;
  return host != nullptr ? &Scripts::of(*host) : nullptr;
}

class ValueDecoder {
 public:
  explicit ValueDecoder(wire::Reader& reader) : reader_(reader), known_(types_known_to(reader)) {}

  // None if the reader fails.
  IValue decode() {
    switch (reader_.peek()) {
      case wire::Type::nil: reader_.nil(); return {};
      case wire::Type::boolean: return reader_.boolean();
      case wire::Type::integer: return reader_.integer();
      case wire::Type::floating: return reader_.float64();
      case wire::Type::string: return std::string(reader_.string());
      case wire::Type::array: return decode_compound();
      default: break;
    }
    at::Tensor tensor;
    wire::decode(reader_, tensor);
    if (!reader_.ok()) return {};
    return tensor;
  }

 private:
  IValue fail(std::string_view why) {
    reader_.fail(why);
    return {};
  }

  IValue decode_compound() {
    wire::DepthGuard guard(reader_);
    const uint32_t count = reader_.array_header();
    if (!reader_.ok() || count == 0) return fail("a value of no kind");
    const uint64_t number = reader_.unsigned_integer();
    if (!reader_.ok() || number > static_cast<uint64_t>(ValueNumber::enum_)) return fail("a value of an unknown kind");
    const auto kind = static_cast<ValueNumber>(number);
    const uint32_t parts = kind == ValueNumber::tuple ? 1 : kind == ValueNumber::dict ? 3 : 2;
    if (count != 1 + parts) return fail("a value with the wrong number of parts");
    switch (kind) {
      case ValueNumber::complex: {
        const double real = reader_.float64();
        return c10::complex<double>(real, reader_.float64());
      }
      case ValueNumber::list: return decode_list();
      case ValueNumber::dict: return decode_dict();
      case ValueNumber::tuple: return c10::ivalue::Tuple::create(decode_items());
      case ValueNumber::named_tuple: return decode_named_tuple();
      case ValueNumber::device: return decode_device();
      case ValueNumber::object: return decode_object();
      case ValueNumber::enum_: return decode_enum();
    }
    return fail("a value of an unknown kind");
  }

  std::vector<IValue> decode_items() {
    const uint32_t count = reader_.array_header();
    std::vector<IValue> items;
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) items.push_back(decode());
    return items;
  }

  // A value that must be of that type.
  IValue decode_as(const c10::Type& type, std::string_view what) {
    IValue value = decode();
    if (reader_.ok() && !fits(value, type)) {
      reader_.fail(fmt::format("{} is a {}, must be {}", what, type_text(value), type.repr_str()));
    }
    return value;
  }

  IValue decode_list() {
    const c10::TypePtr type = decode_type(reader_, known_);
    const uint32_t count = reader_.array_header();
    if (!reader_.ok()) return {};
    c10::impl::GenericList list(type);
    list.reserve(count);
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) list.push_back(decode_as(*type, "an item of a list"));
    return list;
  }

  IValue decode_dict() {
    const c10::TypePtr key_type = decode_type(reader_, known_);
    const c10::TypePtr value_type = decode_type(reader_, known_);
    if (!reader_.ok()) return {};
    c10::DictType::create(key_type, value_type);  // throws for a key that cannot be one
    const uint32_t count = reader_.map_header();
    c10::impl::GenericDict dict(key_type, value_type);
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) {
      IValue key = decode_as(*key_type, "a key of a dict");
      IValue value = decode_as(*value_type, "a value of a dict");
      if (!reader_.ok()) break;
      if (!dict.insert(std::move(key), std::move(value)).second) reader_.fail("a dict with a key that is there twice");
    }
    return dict;
  }

  IValue decode_named_tuple() {
    const c10::TypePtr type = decode_type(reader_, known_);
    if (!reader_.ok()) return {};
    const auto tuple = type->cast<c10::TupleType>();
    if (!tuple || !tuple->schema()) return fail("a named tuple without names");
    const auto types = tuple->elements();
    if (!reader_.array_header_of(static_cast<uint32_t>(types.size()), "a named tuple")) return {};
    std::vector<IValue> items;
    for (const c10::TypePtr& item : types) {
      items.push_back(decode_as(*item, "a field of a named tuple"));
      if (!reader_.ok()) return {};
    }
    return c10::ivalue::Tuple::createNamed(std::move(items), tuple);
  }

  IValue decode_device() {
    const uint64_t number = reader_.unsigned_integer();
    const int64_t index = reader_.integer();
    if (!reader_.ok()) return {};
    const auto type = number <= UINT8_MAX ? device_type_of(static_cast<DeviceNumber>(number)) : std::nullopt;
    if (!type || index < -1 || index > (*type == c10::kCPU ? 0 : INT8_MAX)) return fail("an unknown device");
    return c10::Device(*type, static_cast<c10::DeviceIndex>(index));
  }

  IValue decode_object() {
    const c10::ClassTypePtr type = find_class(reader_, reader_.string(), known_);
    const uint32_t count = reader_.map_header();
    if (!reader_.ok()) return {};
    if (type->is_module() || !type->compilation_unit()) return fail("a class whose objects are not sent");
    if (count != type->numAttributes()) return fail("an object with other attributes than its class has here");
    auto object = c10::ivalue::Object::create(c10::StrongTypePtr(type->compilation_unit(), type), count);
    std::vector<bool> seen(count);
    for (uint32_t i = 0; i < count; ++i) {
      const std::string name(reader_.string());
      if (!reader_.ok()) return {};
      const auto slot = type->findAttributeSlot(name);
      if (!slot || seen[*slot]) return fail("an object with other attributes than its class has here");
      seen[*slot] = true;
      object->setSlot(*slot, decode_as(*type->getAttribute(*slot), "attribute " + name));
      if (!reader_.ok()) return {};
    }
    return object;
  }

  IValue decode_enum() {
    const c10::EnumTypePtr type = find_enum(reader_, reader_.string(), known_);
    const std::string_view name = reader_.string();
    if (!reader_.ok()) return {};
    for (const auto& [known_name, value] : type->enumNamesValues()) {
      if (known_name == name) return IValue(c10::make_intrusive<c10::ivalue::EnumHolder>(type, known_name, value));
    }
    return fail("an enum that has no such name here");
  }

  wire::Reader& reader_;
  const KnownTypes* const known_;
};

}  // namespace

void wire::Codec<IValue>::encode(Writer& writer, const IValue& value) { encode_value(writer, value); }

void wire::Codec<IValue>::decode(Reader& reader, IValue& out) {
  // libtorch checks some things itself, and throws: a name that is none, a key that cannot be one.
  try {
    out = ValueDecoder(reader).decode();
  } catch (const c10::Error& error) {
    reader.fail(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {
    reader.fail(error.what());
  }
}

}  // namespace holdfast
