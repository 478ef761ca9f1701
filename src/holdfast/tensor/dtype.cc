#include <holdfast/tensor/dtype.h>

#include <torch/version.h>

namespace holdfast {

namespace {

struct Known {
  DType dtype;
  std::string_view name;
  std::optional<c10::ScalarType> type;
};

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
#define HOLDFAST_SINCE_2_3(Type) c10::ScalarType::Type
#else
#define HOLDFAST_SINCE_2_3(Type) std::nullopt
#endif

// The entry of number n is at n - 1.
constexpr Known kKnown[] = {
    {DType::uint8, "uint8", c10::ScalarType::Byte},
    {DType::int8, "int8", c10::ScalarType::Char},
    {DType::int16, "int16", c10::ScalarType::Short},
    {DType::int32, "int32", c10::ScalarType::Int},
    {DType::int64, "int64", c10::ScalarType::Long},
    {DType::float16, "float16", c10::ScalarType::Half},
    {DType::float32, "float32", c10::ScalarType::Float},
    {DType::float64, "float64", c10::ScalarType::Double},
    {DType::complex32, "complex32", c10::ScalarType::ComplexHalf},
    {DType::complex64, "complex64", c10::ScalarType::ComplexFloat},
    {DType::complex128, "complex128", c10::ScalarType::ComplexDouble},
    {DType::boolean, "bool", c10::ScalarType::Bool},
    {DType::bfloat16, "bfloat16", c10::ScalarType::BFloat16},
    {DType::qint8, "qint8", c10::ScalarType::QInt8},
    {DType::quint8, "quint8", c10::ScalarType::QUInt8},
    {DType::qint32, "qint32", c10::ScalarType::QInt32},
    {DType::quint4x2, "quint4x2", c10::ScalarType::QUInt4x2},
    {DType::quint2x4, "quint2x4", c10::ScalarType::QUInt2x4},
    {DType::uint16, "uint16", HOLDFAST_SINCE_2_3(UInt16)},
    {DType::uint32, "uint32", HOLDFAST_SINCE_2_3(UInt32)},
    {DType::uint64, "uint64", HOLDFAST_SINCE_2_3(UInt64)},
    {DType::float8_e5m2, "float8_e5m2", HOLDFAST_SINCE_2_3(Float8_e5m2)},
    {DType::float8_e4m3fn, "float8_e4m3fn", HOLDFAST_SINCE_2_3(Float8_e4m3fn)},
    {DType::float8_e5m2fnuz, "float8_e5m2fnuz", HOLDFAST_SINCE_2_3(Float8_e5m2fnuz)},
    {DType::float8_e4m3fnuz, "float8_e4m3fnuz", HOLDFAST_SINCE_2_3(Float8_e4m3fnuz)},
};

const Known* find(DType dtype) {
  const auto number = static_cast<size_t>(dtype);
  return number == 0 || number > std::size(kKnown) ? nullptr : &kKnown[number - 1];
}

}  // namespace

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (const Known& known : kKnown) {
    if (known.type == type) return known.dtype;
  }
  return std::nullopt;
}

std::optional<c10::ScalarType> scalar_type_of(DType dtype) {
  const Known* known = find(dtype);
  return known == nullptr ? std::nullopt : known->type;
}

std::string_view name_of(DType dtype) {
  const Known* known = find(dtype);
  return known == nullptr ? std::string_view() : known->name;
}

int64_t elements_per_byte(c10::ScalarType type) {
  if (type == c10::ScalarType::QUInt4x2) return 2;
  if (type == c10::ScalarType::QUInt2x4) return 4;
  return 1;
}

}  // namespace holdfast
