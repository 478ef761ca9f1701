#include <holdfast/tensor/ivalue_types.h>

#include <set>
#include <vector>

#include <ATen/core/function_schema.h>
#include <fmt/format.h>

#include <holdfast/base/error.h>

namespace holdfast {

namespace {

using c10::TypeKind;

// A plain type is its number, any other an array that begins with its number. The numbers are the protocol's: see
// docs/operators.md.
enum class TypeNumber : uint8_t {
  any = 0,
  none = 1,
  boolean = 2,
  integer = 3,
  floating = 4,
  complex = 5,
  string = 6,
  tensor = 7,
  device = 8,
  number = 9,
  optional = 16,     // [16, of]
  list = 17,         // [17, of]
  dict = 18,         // [18, key, value]
  tuple = 19,        // [19, of...]
  named_tuple = 20,  // [20, name, [field...], of...]
  class_ = 21,       // [21, name]
  enum_ = 22,        // [22, name]
};

struct PlainType {
  TypeNumber number;
  TypeKind kind;
};
constexpr PlainType kPlainTypeKinds[] = {
    {TypeNumber::any, TypeKind::AnyType},          {TypeNumber::none, TypeKind::NoneType},
    {TypeNumber::boolean, TypeKind::BoolType},     {TypeNumber::integer, TypeKind::IntType},
    {TypeNumber::floating, TypeKind::FloatType},   {TypeNumber::complex, TypeKind::ComplexType},
    {TypeNumber::string, TypeKind::StringType},    {TypeNumber::tensor, TypeKind::TensorType},
    {TypeNumber::device, TypeKind::DeviceObjType}, {TypeNumber::number, TypeKind::NumberType},
};

c10::TypePtr plain_type(uint64_t number) {
  if (number > static_cast<uint64_t>(TypeNumber::number)) return nullptr;
  switch (static_cast<TypeNumber>(number)) {
    case TypeNumber::any: return c10::AnyType::get();
    case TypeNumber::none: return c10::NoneType::get();
    case TypeNumber::boolean: return c10::BoolType::get();
    case TypeNumber::integer: return c10::IntType::get();
    case TypeNumber::floating: return c10::FloatType::get();
    case TypeNumber::complex: return c10::ComplexType::get();
    case TypeNumber::string: return c10::StringType::get();
    case TypeNumber::tensor: return c10::TensorType::get();
    case TypeNumber::device: return c10::DeviceObjType::get();
    case TypeNumber::number: return c10::NumberType::get();
    default: return nullptr;
  }
}

[[noreturn]] void refuse_type(const c10::Type& type) {
  throw_failure({.code = Code::invalid_argument, .message = fmt::format("a {} is not sent", type.repr_str())});
}

void encode_type_number(wire::Writer& writer, TypeNumber number) {
  writer.unsigned_integer(static_cast<uint64_t>(number));
}

void encode_tuple_type(wire::Writer& writer, const c10::TupleType& tuple) {
  const auto& elements = tuple.elements();
  if (tuple.name() && tuple.schema()) {
    writer.array_header(3 + elements.size());
    encode_type_number(writer, TypeNumber::named_tuple);
    writer.string(tuple.name()->qualifiedName());
    writer.array_header(elements.size());
    for (const c10::Argument& field : tuple.schema()->arguments()) writer.string(field.name());
  } else {
    writer.array_header(1 + elements.size());
    encode_type_number(writer, TypeNumber::tuple);
  }
  for (const c10::TypePtr& element : elements) encode_type(writer, *element);
}

void encode_named_type(wire::Writer& writer, TypeNumber number, const c10::NamedType& type) {
  writer.array_header(2);
  encode_type_number(writer, number);
  writer.string(type.name()->qualifiedName());
}

bool names_make_sense(wire::Reader& reader, const std::vector<std::string>& names) {
  std::set<std::string> seen;
  for (const std::string& name : names) {
    if (name.empty() || !seen.insert(name).second) {
      reader.fail("a named tuple with a field that has no name of its own");
      return false;
    }
  }
  return true;
}

// What follows the number in the array of a type; `count` values.
class TypeDecoder {
 public:
  TypeDecoder(wire::Reader& reader, const KnownTypes* known) : reader_(reader), known_(known) {}

  c10::TypePtr decode() {
    wire::DepthGuard guard(reader_);
    if (!reader_.ok()) return nullptr;
    if (reader_.peek() == wire::Type::array) {
      const uint32_t count = reader_.array_header();
      if (count == 0) return fail("a type without a number");
      return decode_compound(reader_.unsigned_integer(), count - 1);
    }
    const uint64_t number = reader_.unsigned_integer();
    if (!reader_.ok()) return nullptr;
    c10::TypePtr type = plain_type(number);
    return type ? type : fail("an unknown type");
  }

 private:
  c10::TypePtr fail(std::string_view why) {
    reader_.fail(why);
    return nullptr;
  }

  std::vector<c10::TypePtr> decode_some(uint32_t count) {
    std::vector<c10::TypePtr> types;
    for (uint32_t i = 0; i < count && reader_.ok(); ++i) types.push_back(decode());
    return types;
  }

  c10::TypePtr decode_named_tuple(uint32_t count) {
    if (count < 2 || count - 2 > reader_.remaining()) return fail("a type with too few parts");
    const std::string name(reader_.string());
    if (!reader_.array_header_of(count - 2, "field names")) return nullptr;
    std::vector<std::string> fields;
    for (uint32_t i = 0; i < count - 2 && reader_.ok(); ++i) fields.emplace_back(reader_.string());
    const std::vector<c10::TypePtr> types = decode_some(count - 2);
    if (!reader_.ok() || !names_make_sense(reader_, fields)) return nullptr;
    return c10::TupleType::createNamed(c10::QualifiedName(name), fields, types);
  }

  c10::TypePtr decode_compound(uint64_t number, uint32_t count) {
    if (!reader_.ok()) return nullptr;
    switch (number) {
      case static_cast<uint64_t>(TypeNumber::named_tuple): return decode_named_tuple(count);
      case static_cast<uint64_t>(TypeNumber::class_):
        return count == 1 ? find_class(reader_, reader_.string(), known_) : fail("a class without a name");
      case static_cast<uint64_t>(TypeNumber::enum_):
        return count == 1 ? find_enum(reader_, reader_.string(), known_) : fail("an enum without a name");
      default: break;
    }
    std::vector<c10::TypePtr> parts = decode_some(count);
    if (!reader_.ok()) return nullptr;
    if (number == static_cast<uint64_t>(TypeNumber::tuple)) return c10::TupleType::create(std::move(parts));
    if (number == static_cast<uint64_t>(TypeNumber::optional) && count == 1) return c10::OptionalType::create(parts[0]);
    if (number == static_cast<uint64_t>(TypeNumber::list) && count == 1) return c10::ListType::create(parts[0]);
    if (number == static_cast<uint64_t>(TypeNumber::dict) && count == 2) {
      return c10::DictType::create(parts[0], parts[1]);  // throws for a key that cannot be one
    }
    return fail("an unknown type");
  }

  wire::Reader& reader_;
  const KnownTypes* const known_;
};

template <class T>
std::shared_ptr<T> find_named(wire::Reader& reader, std::string_view name, const KnownTypes* known, const char* what) {
  if (!reader.ok()) return nullptr;
  const c10::NamedTypePtr type = known != nullptr ? known->find_type(name) : nullptr;
  std::shared_ptr<T> found = type ? type->cast<T>() : nullptr;
  if (!found) {
    reader.fail(fmt::format("there is no {} {} here: load the script that defines it with Worker::load_script", what,
                            name.substr(0, 200)));
  }
  return found;
}

}  // namespace

void encode_type(wire::Writer& writer, const c10::Type& type) {
  wire::DepthGuard guard(writer);
  for (const PlainType& plain : kPlainTypeKinds) {
    if (plain.kind == type.kind()) return encode_type_number(writer, plain.number);
  }
  switch (type.kind()) {
    case TypeKind::OptionalType:
      writer.array_header(2);
      encode_type_number(writer, TypeNumber::optional);
      return encode_type(writer, *type.expectRef<c10::OptionalType>().getElementType());
    case TypeKind::ListType:
      writer.array_header(2);
      encode_type_number(writer, TypeNumber::list);
      return encode_type(writer, *type.expectRef<c10::ListType>().getElementType());
    case TypeKind::DictType:
      writer.array_header(3);
      encode_type_number(writer, TypeNumber::dict);
      encode_type(writer, *type.expectRef<c10::DictType>().getKeyType());
      return encode_type(writer, *type.expectRef<c10::DictType>().getValueType());
    case TypeKind::TupleType: return encode_tuple_type(writer, type.expectRef<c10::TupleType>());
    case TypeKind::ClassType:
      if (type.is_module() || !type.expectRef<c10::ClassType>().name()) refuse_type(type);
      return encode_named_type(writer, TypeNumber::class_, type.expectRef<c10::ClassType>());
    case TypeKind::EnumType: return encode_named_type(writer, TypeNumber::enum_, type.expectRef<c10::EnumType>());
    default: refuse_type(type);
  }
}

c10::TypePtr decode_type(wire::Reader& reader, const KnownTypes* known) { return TypeDecoder(reader, known).decode(); }

c10::ClassTypePtr find_class(wire::Reader& reader, std::string_view name, const KnownTypes* known) {
  return find_named<c10::ClassType>(reader, name, known, "class");
}

c10::EnumTypePtr find_enum(wire::Reader& reader, std::string_view name, const KnownTypes* known) {
  return find_named<c10::EnumType>(reader, name, known, "enum");
}

bool fits(const c10::IValue& value, const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::AnyType: return true;
    case TypeKind::NoneType: return value.isNone();
    case TypeKind::BoolType: return value.isBool();
    case TypeKind::IntType: return value.isInt();
    case TypeKind::FloatType: return value.isDouble();
    case TypeKind::ComplexType: return value.isComplexDouble();
    case TypeKind::StringType: return value.isString();
    case TypeKind::TensorType: return value.isTensor();
    case TypeKind::DeviceObjType: return value.isDevice();
    case TypeKind::NumberType: return value.isInt() || value.isDouble() || value.isComplexDouble();
    case TypeKind::OptionalType:
      return value.isNone() || fits(value, *type.expectRef<c10::OptionalType>().getElementType());
    default: return value.type()->isSubtypeOf(type);
  }
}

std::string type_text(const c10::IValue& value) {
  if (value.isTensor()) return "Tensor";
  constexpr size_t kCharsMax = 200;
  std::string text = value.type()->repr_str();
  return text.size() <= kCharsMax ? text : text.substr(0, kCharsMax) + "...";
}

}  // namespace holdfast
