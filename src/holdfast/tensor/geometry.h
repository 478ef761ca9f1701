// Where the elements of a strided tensor lie: plain arithmetic on sizes and strides, for tensors to be sent and for
// what a peer says of one. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace holdfast {

inline constexpr size_t kDimensionsMax = 64;
// libtorch has no type with larger elements.
inline constexpr size_t kElementBytesMax = 16;

using Dims = c10::SmallVector<int64_t, 4>;

// What is wrong with them for elements of that type; "" if nothing is. What passes can be used in all that follows, and
// in libtorch, without overflow: bytes, counted with a size of 0 as 1, and strides in bytes fit in an int64_t.
std::string shape_problem(c10::IntArrayRef sizes, c10::ScalarType type);
std::string strides_problem(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type);

int64_t element_count(c10::IntArrayRef sizes);
Dims row_major_strides(c10::IntArrayRef sizes);
bool is_contiguous(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// Elements from the first that is shown to the last, both included; 0 if there are none. None: does not fit.
std::optional<uint64_t> span_elements(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// True if some of those elements are not shown.
bool has_holes(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// True if two elements may share a place though no stride is 0. (Never false if they do; rarely true if they do not.)
bool may_overlap(c10::IntArrayRef sizes, c10::IntArrayRef strides);
// Strides of a copy that has no holes. Dimensions keep their order in memory, and those of stride 0 keep it.
Dims packed_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace holdfast
