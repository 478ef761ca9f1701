#include <holdfast/tensor/make_tensor.h>

#include <c10/core/TensorOptions.h>

namespace holdfast {

at::Tensor tensor_over(c10::Storage storage, c10::ScalarType type, uint64_t offset, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, const at::QuantizerPtr& quantiser) {
  const c10::DispatchKeySet keys(c10::computeDispatchKey(type, c10::Layout::Strided, storage.device()));
  const auto meta = c10::scalarTypeToTypeMeta(type);
  at::Tensor tensor = quantiser ? at::detail::make_tensor<at::QTensorImpl>(std::move(storage), keys, meta, quantiser)
                                : at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, meta);
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_offset(static_cast<int64_t>(offset));
  impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor tensor_of_bytes(const c10::Storage& storage, uint64_t begin_bytes, uint64_t bytes) {
  return tensor_over(storage, c10::ScalarType::Byte, begin_bytes, {static_cast<int64_t>(bytes)}, {1});
}

}  // namespace holdfast
