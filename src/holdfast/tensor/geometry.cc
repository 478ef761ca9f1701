#include <holdfast/tensor/geometry.h>

#include <algorithm>
#include <numeric>

#include <holdfast/tensor/dtype.h>

namespace holdfast {

namespace {

// The dimensions, those with the smallest strides first; of equal ones the last first, as if they were contiguous.
c10::SmallVector<size_t, 8> by_stride(c10::IntArrayRef strides) {
  c10::SmallVector<size_t, 8> order(strides.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return strides[a] != strides[b] ? strides[a] < strides[b] : a > b; });
  return order;
}

}  // namespace

std::string shape_problem(c10::IntArrayRef sizes, c10::ScalarType type) {
  if (sizes.size() > kDimensionsMax) {
    return std::to_string(sizes.size()) + " dimensions, more than " + std::to_string(kDimensionsMax);
  }
  auto bytes = static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : sizes) {
    if (size < 0) return "a negative size";
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return "more bytes than 64 bits can count";
  }
  return {};
}

std::string strides_problem(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType type) {
  if (strides.size() != sizes.size()) {
    return std::to_string(sizes.size()) + " sizes, but " + std::to_string(strides.size()) + " strides";
  }
  const auto most = INT64_MAX / static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t stride : strides) {
    if (stride < 0) return "a negative stride";
    if (stride > most) return "a stride of more bytes than 64 bits can count";
  }
  return {};
}

int64_t element_count(c10::IntArrayRef sizes) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return count;
}

// Unsigned, for a peer's sizes may not have been checked: nonsense in, nonsense out.
Dims row_major_strides(c10::IntArrayRef sizes) {
  Dims strides(sizes.size());
  uint64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(next);
    next *= static_cast<uint64_t>(std::max<int64_t>(sizes[i], 1));
  }
  return strides;
}

bool is_contiguous(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (strides.size() != sizes.size()) return false;
  uint64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != static_cast<int64_t>(next)) return false;
    next *= static_cast<uint64_t>(std::max<int64_t>(sizes[i], 1));
  }
  return true;
}

std::optional<uint64_t> span_elements(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    int64_t reach = 0;
    if (sizes[i] > 1 && (__builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||  //
                         __builtin_add_overflow(last, reach, &last))) {
      return std::nullopt;
    }
  }
  return static_cast<uint64_t>(last) + 1;
}

bool has_holes(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  if (is_contiguous(sizes, strides)) return false;
  int64_t last = 0;  // everything up to here is shown by the dimensions looked at
  for (const size_t i : by_stride(strides)) {
    if (sizes[i] == 0) return false;
    if (sizes[i] == 1) continue;
    if (strides[i] > last + 1) return true;
    last += (sizes[i] - 1) * strides[i];
  }
  return false;
}

bool may_overlap(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t last = 0;  // where the dimensions looked at end
  for (const size_t i : by_stride(strides)) {
    if (sizes[i] == 0) return false;
    if (sizes[i] == 1 || strides[i] == 0) continue;
    if (strides[i] <= last) return true;
    last += (sizes[i] - 1) * strides[i];
  }
  return false;
}

Dims packed_strides(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  Dims packed(sizes.size());
  int64_t next = 1;
  for (const size_t i : by_stride(strides)) {
    if (strides[i] == 0 && sizes[i] > 1) continue;
    packed[i] = next;
    next *= std::max<int64_t>(sizes[i], 1);
  }
  return packed;
}

}  // namespace holdfast
