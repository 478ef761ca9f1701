// Lendable tensors: their memory can be shown to workers of the same host and user, so that they are passed to those
// without a copy, however large they are. Everyone else gets their bytes. docs/tensor.md says what that means for
// whoever writes into one.
//
// Any thread.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/ArrayRef.h>

namespace holdfast {

// Like at::empty; dense, on the cpu. Its memory is taken at once. Throws Overloaded if there is none, InvalidArgument
// for what such a tensor cannot be.
at::Tensor empty_lendable(c10::IntArrayRef sizes, const c10::TensorOptions& options = {});
// A copy of `tensor` that is lendable, and contiguous.
at::Tensor lendable(const at::Tensor& tensor);

// How many times other workers have this tensor's memory in use, or are just being sent it. 0: it may be written again
// without anyone's noticing. Does not count a worker whose connection has been lost. 0, too, for a tensor that is not
// lendable.
uint64_t loans(const at::Tensor& tensor);

}  // namespace holdfast
