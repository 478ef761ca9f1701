// Tensors over memory that is there already, without going through libtorch's dispatcher. Any thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/QTensorImpl.h>

namespace holdfast {

// Everything must have been checked: nothing is here. With a quantiser for the quantised types, else without.
at::Tensor tensor_over(c10::Storage storage, c10::ScalarType type, uint64_t offset, c10::IntArrayRef sizes,
                       c10::IntArrayRef strides, const at::QuantizerPtr& quantiser = {});

// The bytes of a storage on any device, as a tensor of one dimension.
at::Tensor tensor_of_bytes(const c10::Storage& storage, uint64_t begin_bytes, uint64_t bytes);

}  // namespace holdfast
