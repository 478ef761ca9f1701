// The element types of tensors, as numbers of the protocol. libtorch's own numbers are not used: they are its business,
// and these never change. A number is never given twice; see docs/tensor.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <c10/core/ScalarType.h>

namespace holdfast {

enum class DType : uint8_t {
  uint8 = 1,
  int8 = 2,
  int16 = 3,
  int32 = 4,
  int64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  complex32 = 9,
  complex64 = 10,
  complex128 = 11,
  boolean = 12,
  bfloat16 = 13,
  qint8 = 14,
  quint8 = 15,
  qint32 = 16,
  quint4x2 = 17,
  quint2x4 = 18,
  // libtorch has these from 2.3 on.
  uint16 = 19,
  uint32 = 20,
  uint64 = 21,
  float8_e5m2 = 22,
  float8_e4m3fn = 23,
  float8_e5m2fnuz = 24,
  float8_e4m3fnuz = 25,
};

// None: there is no number for it.
std::optional<DType> dtype_of(c10::ScalarType type);
// None: the number is nonsense, or a type that this libtorch does not have.
std::optional<c10::ScalarType> scalar_type_of(DType dtype);
// "float32"; "" for a number that is none of them.
std::string_view name_of(DType dtype);

// 1, but for quint4x2 (2) and quint2x4 (4).
int64_t elements_per_byte(c10::ScalarType type);
// Rounded up. The caller has seen to it that this does not overflow.
inline uint64_t bytes_of_elements(c10::ScalarType type, uint64_t count) {
  const auto packed = static_cast<uint64_t>(elements_per_byte(type));
  return packed == 1 ? count * c10::elementSize(type) : count / packed + (count % packed != 0 ? 1 : 0);
}

}  // namespace holdfast
