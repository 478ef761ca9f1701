// Random tensors of every kind, and how to compare two of them bit by bit. For tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>

#include <holdfast/base/random.h>
#include <holdfast/tensor/incoming_tensors.h>
#include <holdfast/tensor/outgoing_tensors.h>

namespace holdfast {

inline constexpr at::ScalarType kPlainTypes[] = {
    at::kByte,   at::kChar,        at::kShort,        at::kInt,           at::kLong, at::kHalf,    at::kFloat,
    at::kDouble, at::kComplexHalf, at::kComplexFloat, at::kComplexDouble, at::kBool, at::kBFloat16};
inline constexpr at::ScalarType kQuantisedTypes[] = {at::kQInt8, at::kQUInt8, at::kQInt32, at::kQUInt4x2,
                                                     at::kQUInt2x4};

template <class T, size_t N>
T any_of(Random& random, const T (&values)[N]) {
  return values[random.below(N)];
}

inline bool can_need_grad(at::ScalarType type) { return at::isFloatingType(type) || at::isComplexType(type); }

// Any bits, NaNs of all kinds among them, but bools are 0 or 1.
inline void fill(Random& random, const at::Tensor& tensor) {
  auto* at = static_cast<uint8_t*>(const_cast<void*>(tensor.storage().data()));
  const bool boolean = tensor.scalar_type() == at::kBool;
  for (size_t i = 0; i < tensor.storage().nbytes(); ++i) {
    at[i] = static_cast<uint8_t>(boolean ? random.below(2) : random.next());
  }
}

inline std::vector<int64_t> random_sizes(Random& random, uint64_t dims_max) {
  std::vector<int64_t> sizes(random.below(dims_max + 1));
  for (int64_t& size : sizes) size = random.chance(0.03) ? 0 : static_cast<int64_t>(random.between(1, 5));
  return sizes;
}

inline at::Tensor random_contiguous(Random& random, at::ScalarType type, at::IntArrayRef sizes) {
  at::Tensor tensor = at::empty(sizes, at::TensorOptions(type));
  fill(random, tensor);
  return tensor;
}

// A view of some part of it.
inline at::Tensor random_view(Random& random, at::Tensor tensor) {
  const int64_t dims = tensor.dim();
  const auto dim = dims == 0 ? 0 : static_cast<int64_t>(random.below(static_cast<uint64_t>(dims)));
  switch (random.below(8)) {
    case 0: return dims == 0 ? tensor : tensor.transpose(dim, dims - 1);
    case 1: return dims == 0 ? tensor : tensor.slice(dim, tensor.size(dim) / 3, tensor.size(dim));
    case 2: return dims == 0 ? tensor : tensor.slice(dim, 0, tensor.size(dim), 2);
    case 3: return dims == 0 || tensor.size(dim) == 0 ? tensor : tensor.select(dim, tensor.size(dim) - 1);
    case 4:
      return dims > 6 ? tensor : tensor.unsqueeze(dim).expand([&] {
        std::vector<int64_t> sizes(static_cast<size_t>(dims) + 1, -1);
        sizes[static_cast<size_t>(dim)] = 3;
        return sizes;
      }());
    case 5: return dims == 0 || dims > 6 || tensor.size(dim) < 2 ? tensor : tensor.unfold(dim, 2, 1);
    case 6: return dims == 4 ? tensor.permute({0, 3, 1, 2}) : tensor;
    default: return tensor;
  }
}

inline at::Tensor random_dense(Random& random) {
  const auto type = any_of(random, kPlainTypes);
  at::Tensor tensor = random_contiguous(random, type, random_sizes(random, 5));
  for (uint64_t views = random.below(4); views > 0; --views) tensor = random_view(random, tensor);
  if (at::isComplexType(type) && random.chance(0.3)) tensor = tensor.conj();
  if (type != at::kBool && random.chance(0.1)) tensor = tensor._neg_view();
  if (can_need_grad(type) && random.chance(0.3)) tensor = tensor.detach().set_requires_grad(true);
  return tensor;
}

inline at::Tensor random_quantised(Random& random) {
  const auto type = any_of(random, kQuantisedTypes);
  const auto sizes = random_sizes(random, 4);
  const bool packed = type == at::kQUInt4x2 || type == at::kQUInt2x4;
  at::Tensor tensor;
  if (!sizes.empty() && random.chance(0.5)) {
    const auto axis = random.below(sizes.size());
    const at::Tensor scales = at::rand({sizes[axis]}, at::kDouble);
    // Packed types have zero points that are not integers.
    const at::Tensor zeros =
        packed ? at::rand({sizes[axis]}, at::kFloat) : at::randint(0, 100, {sizes[axis]}, at::kLong);
    tensor = at::_empty_per_channel_affine_quantized(sizes, packed ? scales.to(at::kFloat) : scales, zeros,
                                                     static_cast<int64_t>(axis), at::TensorOptions(type));
  } else {
    tensor = at::_empty_affine_quantized(sizes, at::TensorOptions(type), 0.25 * static_cast<double>(random.below(9)),
                                         static_cast<int64_t>(random.below(100)));
    if (!packed && tensor.dim() > 1 && random.chance(0.5)) tensor = tensor.transpose(0, 1);
    if (!packed && tensor.dim() > 0 && random.chance(0.5)) tensor = tensor.slice(0, tensor.size(0) / 2, tensor.size(0));
  }
  fill(random, tensor);
  return tensor;
}

inline at::Tensor random_coo(Random& random) {
  const auto type = any_of(random, kPlainTypes);
  std::vector<int64_t> sizes = random_sizes(random, 4);
  const auto sparse_dims = random.below(sizes.size() + 1);
  auto count = static_cast<int64_t>(random.below(6));
  for (size_t i = 0; i < sparse_dims; ++i) count = sizes[i] == 0 ? 0 : count;
  at::Tensor indices = at::empty({static_cast<int64_t>(sparse_dims), count}, at::kLong);
  if (random.chance(0.3)) indices = at::empty({count, static_cast<int64_t>(sparse_dims)}, at::kLong).t();
  for (size_t dim = 0; dim < sparse_dims; ++dim) {
    for (int64_t i = 0; i < count; ++i) {
      indices.accessor<int64_t, 2>()[static_cast<int64_t>(dim)][i] =
          static_cast<int64_t>(random.below(static_cast<uint64_t>(sizes[dim])));
    }
  }
  std::vector<int64_t> value_sizes = {count};
  value_sizes.insert(value_sizes.end(), sizes.begin() + static_cast<int64_t>(sparse_dims), sizes.end());
  at::Tensor values = random_contiguous(random, type, value_sizes);
  if (random.chance(0.2)) values = random_contiguous(random, type, {}).expand(value_sizes);
  at::Tensor tensor = at::_sparse_coo_tensor_unsafe(indices, values, sizes, at::TensorOptions(type));
  if (random.chance(0.3) && (type == at::kFloat || type == at::kLong)) tensor = tensor.coalesce();
  if (can_need_grad(type) && random.chance(0.3)) tensor.set_requires_grad(true);
  return tensor;
}

inline at::Tensor random_compressed(Random& random) {
  constexpr at::Layout kLayouts[] = {at::kSparseCsr, at::kSparseCsc, at::kSparseBsr, at::kSparseBsc};
  const auto layout = any_of(random, kLayouts);
  const auto type = any_of(random, kPlainTypes);
  const auto index_type = random.chance(0.5) ? at::kInt : at::kLong;
  const bool blocked = layout == at::kSparseBsr || layout == at::kSparseBsc;
  const bool by_row = layout == at::kSparseCsr || layout == at::kSparseBsr;
  const auto rows = static_cast<int64_t>(random.below(4));
  const auto columns = static_cast<int64_t>(random.between(1, 4));
  const auto batches = static_cast<int64_t>(random.below(3));  // 0: it has no batches
  const int64_t compressed_count = by_row ? rows : columns;
  const int64_t plain_limit = by_row ? columns : rows;
  const int64_t per_line =
      plain_limit == 0 ? 0 : static_cast<int64_t>(random.below(static_cast<uint64_t>(plain_limit + 1)));
  // Each line has as many, at the first places: so that all batches have as many.
  at::Tensor compressed = at::arange(compressed_count + 1, at::kLong).mul(per_line);
  at::Tensor plain = at::arange(per_line, at::kLong).repeat({compressed_count});
  std::vector<int64_t> value_sizes = {plain.numel()};
  std::vector<int64_t> sizes = {rows, columns};
  if (blocked) {
    value_sizes.insert(value_sizes.end(), {2, 3});
    sizes = {rows * 2, columns * 3};
  }
  if (batches > 0) {
    compressed = compressed.expand({batches, -1});
    plain = plain.expand({batches, -1});
    value_sizes.insert(value_sizes.begin(), batches);
    sizes.insert(sizes.begin(), batches);
  }
  const at::Tensor values = random_contiguous(random, type, value_sizes);
  return at::_sparse_compressed_tensor_unsafe(compressed.to(index_type).contiguous(), plain.to(index_type).contiguous(),
                                              values, sizes, at::TensorOptions(type).layout(layout));
}

inline at::Tensor random_tensor(Random& random) {
  switch (random.below(12)) {
    case 0: return {};
    case 1: return at::empty(random_sizes(random, 4), at::TensorOptions(any_of(random, kPlainTypes)).device(at::kMeta));
    case 2: return random_quantised(random);
    case 3: return random_coo(random);
    case 4: return random_compressed(random);
    default: return random_dense(random);
  }
}

inline bool is_plain_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta() && !tensor.is_quantized();
}

// Several, some of which are views of others or the same again.
inline std::vector<at::Tensor> random_tensors(Random& random) {
  std::vector<at::Tensor> tensors;
  for (uint64_t count = random.below(7); count > 0; --count) {
    tensors.push_back(random_tensor(random));
    if (is_plain_dense(tensors.back()) && random.chance(0.3)) {
      at::Tensor base = tensors.back().detach();
      for (uint64_t views = random.below(4); views > 0; --views) tensors.push_back(random_view(random, base));
    }
    if (random.chance(0.1)) tensors.push_back(tensors.front());
  }
  return tensors;
}

struct Sent {
  Message message;
  Bytes table;
  std::vector<uint32_t> indices;
};

inline Sent send(const std::vector<at::Tensor>& tensors, DeviceMover* mover = nullptr) {
  Sent sent;
  OutgoingTensors outgoing;
  for (const at::Tensor& tensor : tensors) sent.indices.push_back(outgoing.add(tensor));
  sent.table = outgoing.finish(sent.message, mover);
  return sent;
}

// In memory of exactly that size, aligned as a transport does.
inline Attachment copy_of(const Attachment& from) {
  auto* at = static_cast<uint8_t*>(std::aligned_alloc(64, (from.bytes + 63) / 64 * 64));
  std::memcpy(at, from.data, from.bytes);
  return {.owner = std::shared_ptr<uint8_t>(at, [](uint8_t* p) { std::free(p); }), .data = at, .bytes = from.bytes};
}

inline std::vector<Attachment> travel(const Message& message) {
  std::vector<Attachment> arrived;
  for (const Attachment& attachment : message.attachments) arrived.push_back(copy_of(attachment));
  return arrived;
}

// f(pointer to the element) for each element of a dense tensor on the cpu, in order.
template <class F>
void each_element(const at::Tensor& tensor, F f) {
  const auto sizes = tensor.sizes();
  const auto item = static_cast<int64_t>(tensor.itemsize());
  auto* first = static_cast<uint8_t*>(tensor.data_ptr());
  if (tensor.scalar_type() == at::kQUInt4x2 || tensor.scalar_type() == at::kQUInt2x4) {
    const auto bytes =
        static_cast<int64_t>(bytes_of_elements(tensor.scalar_type(), static_cast<uint64_t>(tensor.numel())));
    for (int64_t i = 0; i < bytes; ++i) f(first + i);
    return;
  }
  std::vector<int64_t> at(sizes.size(), 0);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    int64_t offset = 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim) offset += at[dim] * tensor.stride(static_cast<int64_t>(dim));
    f(first + offset * item);
    for (size_t dim = sizes.size(); dim-- > 0;) {
      if (++at[dim] < sizes[dim]) break;
      at[dim] = 0;
    }
  }
}

inline std::string bits(const at::Tensor& tensor) {
  std::string all;
  const size_t item = tensor.itemsize();
  each_element(tensor, [&](const uint8_t* at) { all.append(reinterpret_cast<const char*>(at), item); });
  return all;
}

void expect_same(const at::Tensor& sent, const at::Tensor& got);

inline void expect_same_parts(const at::Tensor& sent, const at::Tensor& got) {
  if (sent.layout() == at::kSparse) {
    EXPECT_EQ(sent.is_coalesced(), got.is_coalesced());
    expect_same(sent._indices(), got._indices());
    expect_same(sent._values().detach(), got._values().detach());
    return;
  }
  const auto& a = static_cast<const at::SparseCsrTensorImpl&>(*sent.unsafeGetTensorImpl());
  const auto& b = static_cast<const at::SparseCsrTensorImpl&>(*got.unsafeGetTensorImpl());
  expect_same(a.compressed_indices(), b.compressed_indices());
  expect_same(a.plain_indices(), b.plain_indices());
  expect_same(a.values(), b.values());
}

inline void expect_same_quantiser(const at::Tensor& sent, const at::Tensor& got) {
  ASSERT_EQ(sent.qscheme(), got.qscheme());
  if (sent.qscheme() == at::kPerTensorAffine) {
    EXPECT_EQ(sent.q_scale(), got.q_scale());
    EXPECT_EQ(sent.q_zero_point(), got.q_zero_point());
  } else {
    EXPECT_EQ(sent.q_per_channel_axis(), got.q_per_channel_axis());
    expect_same(sent.q_per_channel_scales(), got.q_per_channel_scales());
    expect_same(sent.q_per_channel_zero_points(), got.q_per_channel_zero_points());
  }
}

inline void expect_same(const at::Tensor& sent, const at::Tensor& got) {
  ASSERT_EQ(sent.defined(), got.defined());
  if (!sent.defined()) return;
  EXPECT_EQ(sent.scalar_type(), got.scalar_type());
  ASSERT_EQ(sent.layout(), got.layout());
  ASSERT_EQ(sent.sizes(), got.sizes());
  EXPECT_EQ(sent.device(), got.device());
  EXPECT_EQ(sent.requires_grad(), got.requires_grad());
  EXPECT_TRUE(got.is_leaf());
  EXPECT_EQ(sent.is_conj(), got.is_conj());
  EXPECT_EQ(sent.is_neg(), got.is_neg());
  if (sent.layout() != at::kStrided) return expect_same_parts(sent, got);
  if (sent.is_non_overlapping_and_dense() || sent.is_meta()) {
    EXPECT_EQ(sent.strides(), got.strides());
  }
  for (int64_t dim = 0; dim < sent.dim(); ++dim) {
    if (sent.stride(dim) == 0 && sent.size(dim) > 1) {
      EXPECT_EQ(got.stride(dim), 0) << dim;
    }
  }
  if (sent.is_meta()) return;
  EXPECT_EQ(bits(sent), bits(got));
  if (sent.is_quantized()) expect_same_quantiser(sent, got);
}

}  // namespace holdfast
