#include <holdfast/tensor/schema_match.h>

#include <sstream>

#include <ATen/core/Tensor.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <holdfast/tensor/ivalue_types.h>

namespace holdfast {

namespace {

using c10::IValue;
using c10::TypeKind;

// Of texts for people, which may be made of a peer's values.
constexpr size_t kTypesCharsMax = 1000;
constexpr size_t kKeywordCharsMax = 100;

c10::TypePtr without_optional(const c10::TypePtr& type) {
  return type->kind() == TypeKind::OptionalType ? type->expectRef<c10::OptionalType>().getElementType() : type;
}

// Converts one argument's values. Each step gives nothing if it does not apply.
class Converter {
 public:
  Converter(const c10::Argument& argument, Conversions conversions) : argument_(argument), conversions_(conversions) {}

  std::optional<IValue> convert(const IValue& value, const c10::TypePtr& type) const {
    if (fits(value, *type)) return value;
    switch (type->kind()) {
      case TypeKind::OptionalType: return convert(value, without_optional(type));
      case TypeKind::ListType: return to_list(value, type->expectRef<c10::ListType>().getElementType());
      default: return conversions_ == Conversions::all ? to_plain(value, type->kind()) : std::nullopt;
    }
  }

 private:
  std::optional<IValue> to_list(const IValue& value, const c10::TypePtr& element) const {
    // A number for int[2]: as many of it as are wanted.
    if (argument_.N() && (value.isInt() || value.isDouble() || value.isBool())) {
      const std::optional<IValue> item = convert(value, element);
      if (!item) return std::nullopt;
      c10::impl::GenericList list(element);
      for (int32_t i = 0; i < *argument_.N(); ++i) list.push_back(*item);
      return list;
    }
    if (conversions_ == Conversions::none) return std::nullopt;
    if (value.isList()) return items_to_list(value.toList().vec(), element);
    if (value.isTuple()) return items_to_list(value.toTuple()->elements(), element);
    return std::nullopt;
  }

  template <class Items>
  std::optional<IValue> items_to_list(const Items& items, const c10::TypePtr& element) const {
    c10::impl::GenericList list(element);
    for (const IValue& item : items) {
      std::optional<IValue> converted = convert(item, element);
      if (!converted) return std::nullopt;
      list.push_back(std::move(*converted));
    }
    return list;
  }

  static std::optional<IValue> to_plain(const IValue& value, TypeKind kind) {
    switch (kind) {
      case TypeKind::FloatType:
        if (value.isInt()) return static_cast<double>(value.toInt());
        return from_tensor(value, kind);
      case TypeKind::ComplexType:
        if (value.isInt()) return c10::complex<double>(static_cast<double>(value.toInt()), 0);
        if (value.isDouble()) return c10::complex<double>(value.toDouble(), 0);
        return from_tensor(value, kind);
      case TypeKind::NumberType:
        if (value.isBool()) return value;
        return from_tensor(value, kind);
      case TypeKind::IntType: return from_tensor(value, kind);
      case TypeKind::DeviceObjType: return device_from_text(value);
      default: return std::nullopt;
    }
  }

  // As TorchScript does: a tensor without dimensions, whose gradient nobody wants, is a number.
  static std::optional<IValue> from_tensor(const IValue& value, TypeKind kind) {
    if (!value.isTensor()) return std::nullopt;
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined() || tensor.dim() != 0 || tensor.requires_grad() || tensor.is_meta()) return std::nullopt;
    const at::ScalarType type = tensor.scalar_type();
    if (at::isQIntType(type)) return std::nullopt;
    const bool integral = at::isIntegralType(type, /*includeBool=*/false);
    if (kind == TypeKind::IntType && !integral) return std::nullopt;
    if (kind == TypeKind::FloatType && at::isComplexType(type)) return std::nullopt;
    const at::Scalar scalar = tensor.item();
    if (kind == TypeKind::FloatType) return scalar.toDouble();
    if (kind == TypeKind::ComplexType) return scalar.toComplexDouble();
    return IValue(scalar);
  }

  static std::optional<IValue> device_from_text(const IValue& value) {
    if (!value.isString()) return std::nullopt;
    try {
      return c10::Device(value.toStringRef());
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  const c10::Argument& argument_;
  const Conversions conversions_;
};

// Dtypes, layouts and memory formats are ints for a schema. libtorch takes any int for one, and looks it up in tables.
bool enumerator_exists(const c10::Argument& argument, const IValue& value) {
  if (!value.isInt()) return true;
  const auto below = [&](auto count) { return value.toInt() >= 0 && value.toInt() < static_cast<int64_t>(count); };
  const TypeKind kind = without_optional(argument.real_type())->kind();
  if (kind == TypeKind::ScalarTypeType || argument.name() == "dtype") return below(at::ScalarType::NumOptions);
  if (kind == TypeKind::LayoutType || argument.name() == "layout") return below(at::Layout::NumOptions);
  if (kind == TypeKind::MemoryFormatType || argument.name() == "memory_format") {
    return below(at::MemoryFormat::NumOptions);
  }
  return true;
}

// One value for one argument. Type variables are bound as they are met: aten::append(t[] self, t el).
std::optional<IValue> fit(const IValue& value, const c10::Argument& argument, c10::TypeEnv& variables,
                          Conversions conversions) {
  c10::TypePtr type = argument.type();
  if (type->hasFreeVariables()) {
    if (!c10::matchTypeVariables(type, value.type(), variables).success()) return std::nullopt;
    type = c10::tryEvalTypeVariables(type, variables);
    if (!type) return std::nullopt;
  }
  std::optional<IValue> fitting = Converter(argument, conversions).convert(value, type);
  if (fitting && !enumerator_exists(argument, *fitting)) return std::nullopt;
  return fitting;
}

// libtorch's Python functions call the first argument "input", the operators "self".
bool is_called(const c10::Argument& argument, const std::string& name) {
  return argument.name() == name || (argument.name() == "self" && name == "input");
}

}  // namespace

std::optional<std::vector<IValue>> match_schema(const c10::FunctionSchema& schema, const CallArguments& given,
                                                Conversions conversions, std::string& why) {
  const auto fail = [&](std::string text) {
    why = std::move(text);
    return std::nullopt;
  };
  std::vector<IValue> stack;
  std::vector<bool> used(given.keyword.size());
  c10::TypeEnv variables;
  size_t next = 0;
  for (const c10::Argument& argument : schema.arguments()) {
    const IValue* value = nullptr;
    if (!argument.kwarg_only() && next < given.positional.size()) value = &given.positional[next++];
    for (size_t i = 0; i < given.keyword.size(); ++i) {
      if (!is_called(argument, given.keyword[i].first)) continue;
      if (value != nullptr) return fail(fmt::format("argument '{}' is given twice", argument.name()));
      value = &given.keyword[i].second;
      used[i] = true;
    }
    if (value == nullptr) {
      if (!argument.default_value()) return fail(fmt::format("argument '{}' is missing", argument.name()));
      stack.push_back(*argument.default_value());
      continue;
    }
    std::optional<IValue> fitting = fit(*value, argument, variables, conversions);
    if (!fitting) {
      const std::string found = value->isInt() ? std::to_string(value->toInt()) : "a " + type_text(*value);
      return fail(
          fmt::format("argument '{}' must be a {}, not {}", argument.name(), argument.real_type()->repr_str(), found));
    }
    stack.push_back(std::move(*fitting));
  }
  if (next < given.positional.size()) return fail("too many arguments by position");
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i])
      return fail(fmt::format("there is no argument '{}'", given.keyword[i].first.substr(0, kKeywordCharsMax)));
  }
  return stack;
}

std::string types_text(const CallArguments& arguments) {
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  const auto full = [&] {
    if (text.size() < kTypesCharsMax) return false;
    add("...");
    return true;
  };
  for (const IValue& value : arguments.positional) {
    if (full()) return "(" + text + ")";
    add(type_text(value));
  }
  for (const auto& [name, value] : arguments.keyword) {
    if (full()) return "(" + text + ")";
    add(name.substr(0, kKeywordCharsMax) + ": " + type_text(value));
  }
  return "(" + text + ")";
}

std::string schema_text(const c10::FunctionSchema& schema) {
  std::ostringstream text;
  text << schema;
  return text.str();
}

}  // namespace holdfast
