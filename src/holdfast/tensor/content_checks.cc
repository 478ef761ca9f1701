#include <holdfast/tensor/content_checks.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/core/TensorAccessor.h>

namespace holdfast {

namespace {

bool all_0_or_1(const uint8_t* at, uint64_t count) {
  uint64_t seen = 0;
  for (; count >= 8; at += 8, count -= 8) {
    uint64_t eight;
    std::memcpy(&eight, at, 8);
    seen |= eight;
  }
  for (; count > 0; ++at, --count) seen |= *at;
  return (seen & 0xfefefefefefefefe) == 0;
}

// Looks at each element. Dimensions of stride 0 are not walked.
bool shown_0_or_1(const uint8_t* at, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (sizes.empty()) return *at <= 1;
  const int64_t count = strides[0] == 0 ? 1 : sizes[0];
  for (int64_t i = 0; i < count; ++i) {
    if (!shown_0_or_1(at + i * strides[0], sizes.slice(1), strides.slice(1))) return false;
  }
  return true;
}

// f(value) for each element of a tensor of one dimension, as a double or an int64_t; false as soon as f says so.
template <class F>
bool every(const at::Tensor& tensor, F f) {
  const auto walk = [&](const auto& elements, auto wide) {
    for (int64_t i = 0; i < elements.size(0); ++i) {
      if (!f(static_cast<decltype(wide)>(elements[i]))) return false;
    }
    return true;
  };
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float: return walk(tensor.accessor<float, 1>(), double{});
    case c10::ScalarType::Double: return walk(tensor.accessor<double, 1>(), double{});
    case c10::ScalarType::Int: return walk(tensor.accessor<int32_t, 1>(), int64_t{});
    case c10::ScalarType::Long: return walk(tensor.accessor<int64_t, 1>(), int64_t{});
    default: return false;
  }
}

bool scale_is_fine(double scale) { return std::isfinite(scale) && scale >= 0; }

// The packed types are taken as bytes, as libtorch does.
bool zero_point_is_fine(c10::ScalarType type, int64_t zero_point) {
  switch (type) {
    case c10::ScalarType::QInt8: return zero_point >= INT8_MIN && zero_point <= INT8_MAX;
    case c10::ScalarType::QInt32: return zero_point >= INT32_MIN && zero_point <= INT32_MAX;
    default: return zero_point >= 0 && zero_point <= UINT8_MAX;
  }
}

// What a compressed tensor must be made of.
struct CompressedShape {
  int64_t batches = 1;
  int64_t pointers = 0;     // in each batch: one more than there are compressed rows or columns
  int64_t count = 0;        // of values in each batch
  int64_t plain_limit = 0;  // indices are below it
};

std::string compressed_shape(TensorForm form, c10::IntArrayRef sizes, c10::IntArrayRef compressed,
                             c10::IntArrayRef plain, c10::IntArrayRef values, CompressedShape& out) {
  if (compressed.empty() || plain.size() != compressed.size()) return "indices of the wrong number of dimensions";
  const size_t batch_dims = compressed.size() - 1;
  const size_t block_dims = is_blocked(form) ? 2 : 0;
  if (sizes.size() < batch_dims + 2 || values.size() != sizes.size() - 1 + block_dims) {
    return "values or indices that do not fit the number of dimensions";
  }
  for (size_t i = 0; i < batch_dims; ++i) {
    if (compressed[i] != sizes[i] || plain[i] != sizes[i] || values[i] != sizes[i]) return "batches that do not fit";
    out.batches *= sizes[i];
  }
  out.count = plain[batch_dims];
  if (values[batch_dims] != out.count) return "not as many values as indices";
  if (values.slice(batch_dims + 1 + block_dims) != sizes.slice(batch_dims + 2)) return "values of the wrong sizes";
  int64_t rows = sizes[batch_dims];
  int64_t columns = sizes[batch_dims + 1];
  if (is_blocked(form)) {
    const int64_t block_rows = values[batch_dims + 1];
    const int64_t block_columns = values[batch_dims + 2];
    if (block_rows == 0 || block_columns == 0 || rows % block_rows != 0 || columns % block_columns != 0) {
      return "blocks that do not fill the sizes";
    }
    rows /= block_rows;
    columns /= block_columns;
  }
  const bool by_row = form == TensorForm::csr || form == TensorForm::bsr;
  out.pointers = compressed[batch_dims];
  out.plain_limit = by_row ? columns : rows;
  return out.pointers - 1 == (by_row ? rows : columns) ? "" : "not one pointer more than rows or columns";
}

template <class Index>
std::string compressed_indices_problem(const CompressedShape& shape, const at::Tensor& compressed,
                                       const at::Tensor& plain) {
  // At most a copy of what has arrived, where the strides of batches do not go together.
  const at::Tensor pointers_of = compressed.reshape({shape.batches, shape.pointers});
  const at::Tensor indices_of = plain.reshape({shape.batches, shape.count});
  const auto pointers = pointers_of.accessor<Index, 2>();
  const auto indices = indices_of.accessor<Index, 2>();
  for (int64_t batch = 0; batch < (shape.count == 0 ? 0 : shape.batches); ++batch) {
    for (int64_t i = 0; i < shape.count; ++i) {
      const Index index = indices[batch][i];
      if (index < 0 || index >= shape.plain_limit) return "an index outside of the sizes";
    }
  }
  for (int64_t batch = 0; batch < shape.batches; ++batch) {
    if (pointers[batch][0] != 0) return "pointers that do not begin with 0";
    if (pointers[batch][shape.pointers - 1] != shape.count) return "pointers that do not end with the number of values";
    for (int64_t i = 1; i < shape.pointers; ++i) {
      if (pointers[batch][i] < pointers[batch][i - 1]) return "pointers that go backwards";
    }
  }
  return {};
}

}  // namespace

bool repeats(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const auto span = span_elements(sizes, strides);
  return span && static_cast<uint64_t>(element_count(sizes)) > *span;
}

std::string bool_problem(const uint8_t* first, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  const uint64_t span = span_elements(sizes, strides).value_or(0);
  if (all_0_or_1(first, span)) return {};
  // What is wrong may be in a hole. Only then each element is looked at, unless there are more than places.
  uint64_t walked = 1;
  for (size_t i = 0; i < sizes.size(); ++i) walked *= strides[i] == 0 ? 1 : static_cast<uint64_t>(sizes[i]);
  if (walked <= span && has_holes(sizes, strides) && shown_0_or_1(first, sizes, strides)) return {};
  return "a bool that is neither 0 nor 1 in memory";
}

std::string per_tensor_problem(c10::ScalarType type, double scale, int64_t zero_point) {
  if (!scale_is_fine(scale)) return "a scale of " + std::to_string(scale);
  if (!zero_point_is_fine(type, zero_point)) return "a zero point of " + std::to_string(zero_point);
  return {};
}

std::string per_channel_problem(c10::ScalarType type, c10::IntArrayRef sizes, int64_t axis, const at::Tensor& scales,
                                const at::Tensor& zero_points) {
  if (axis < 0 || axis >= static_cast<int64_t>(sizes.size())) return "an axis that is no dimension";
  const int64_t channels = sizes[static_cast<size_t>(axis)];
  if (scales.dim() != 1 || zero_points.dim() != 1 || scales.numel() != channels || zero_points.numel() != channels) {
    return "not as many scales and zero points as channels";
  }
  const auto of_scales = scales.scalar_type();
  if (of_scales != c10::ScalarType::Float && of_scales != c10::ScalarType::Double) return "scales of the wrong type";
  const auto of_zeros = zero_points.scalar_type();
  if (of_zeros != c10::ScalarType::Float && of_zeros != c10::ScalarType::Int && of_zeros != c10::ScalarType::Long) {
    return "zero points of the wrong type";
  }
  if (!every(scales, [](auto scale) { return scale_is_fine(static_cast<double>(scale)); })) {
    return "a scale that is negative or no number";
  }
  const auto zero_point_ok = [&](auto value) {
    if constexpr (std::is_same_v<decltype(value), double>) {
      return std::isfinite(value);
    } else {
      return zero_point_is_fine(type, value);
    }
  };
  return every(zero_points, zero_point_ok) ? "" : "a zero point outside of the type";
}

std::string coo_problem(c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values) {
  if (indices.scalar_type() != c10::ScalarType::Long || indices.dim() != 2) return "indices that are no int64 matrix";
  const auto sparse_dims = static_cast<size_t>(indices.size(0));
  if (values.dim() == 0 || sparse_dims > sizes.size() ||
      sparse_dims + static_cast<size_t>(values.dim()) - 1 != sizes.size()) {
    return "values or indices that do not fit the number of dimensions";
  }
  if (values.size(0) != indices.size(1)) return "not as many values as indices";
  if (values.sizes().slice(1) != sizes.slice(sparse_dims)) return "values of the wrong sizes";
  const auto index = indices.accessor<int64_t, 2>();
  for (int64_t dim = 0; dim < index.size(0); ++dim) {
    const int64_t limit = sizes[static_cast<size_t>(dim)];
    for (int64_t i = 0; i < index.size(1); ++i) {
      if (index[dim][i] < 0 || index[dim][i] >= limit) return "an index outside of the sizes";
    }
  }
  return {};
}

bool is_coalesced(const at::Tensor& indices) {
  const auto index = indices.accessor<int64_t, 2>();
  const int64_t dims = index.size(0);
  const int64_t count = index.size(1);
  if (dims == 0) return count <= 1;
  for (int64_t i = 1; i < count; ++i) {
    int64_t dim = 0;
    while (dim < dims && index[dim][i] == index[dim][i - 1]) ++dim;
    if (dim == dims || index[dim][i] < index[dim][i - 1]) return false;
  }
  return true;
}

std::string compressed_problem(TensorForm form, c10::IntArrayRef sizes, const at::Tensor& compressed,
                               const at::Tensor& plain, const at::Tensor& values) {
  const auto type = compressed.scalar_type();
  if (plain.scalar_type() != type || (type != c10::ScalarType::Int && type != c10::ScalarType::Long)) {
    return "indices that are neither int32 nor int64";
  }
  CompressedShape shape;
  auto problem = compressed_shape(form, sizes, compressed.sizes(), plain.sizes(), values.sizes(), shape);
  if (!problem.empty()) return problem;
  return type == c10::ScalarType::Int ? compressed_indices_problem<int32_t>(shape, compressed, plain)
                                      : compressed_indices_problem<int64_t>(shape, compressed, plain);
}

}  // namespace holdfast
