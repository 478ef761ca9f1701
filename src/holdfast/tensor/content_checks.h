// Checks of what stands in a tensor's memory, where libtorch trusts it: a bool that is neither 0 nor 1, an index
// outside of a sparse tensor, a scale that is no number. Used on both sides: the sender refuses what the receiver would
// call corrupt. All tensors here are in ordinary memory. Any thread.
//
// Each answers what is wrong, "" if nothing is. Each takes time in proportion to the memory it looks at, however often
// strides of 0 repeat it, provided that the tensors inside others (indices, scales) do not repeat any: see repeats().
#pragma once

#include <string>

#include <holdfast/tensor/tensor_table.h>

namespace holdfast {

// True if there are more elements than places for them in memory.
bool repeats(c10::IntArrayRef sizes, c10::IntArrayRef strides);

// `first` is the first element; `strides` fit the memory.
std::string bool_problem(const uint8_t* first, c10::IntArrayRef sizes, c10::IntArrayRef strides);

std::string per_tensor_problem(c10::ScalarType type, double scale, int64_t zero_point);
std::string per_channel_problem(c10::ScalarType type, c10::IntArrayRef sizes, int64_t axis, const at::Tensor& scales,
                                const at::Tensor& zero_points);

std::string coo_problem(c10::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values);
// Of indices without a problem: each is there once, and they are in order.
bool is_coalesced(const at::Tensor& indices);

// CSR, CSC, BSR, BSC. The order of indices within a row is not looked at: libtorch's own results may lack it.
std::string compressed_problem(TensorForm form, c10::IntArrayRef sizes, const at::Tensor& compressed,
                               const at::Tensor& plain, const at::Tensor& values);

}  // namespace holdfast
