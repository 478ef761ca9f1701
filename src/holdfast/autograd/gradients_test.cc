// Gradients of leaves: when the map takes what it is given, and when it makes a copy.
#include <holdfast/autograd/gradients.h>

#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

namespace holdfast::autograd {
namespace {

at::Tensor sparse_rows() {
  return at::sparse_coo_tensor(at::zeros({1, 2}, at::kLong), at::ones({2, 3}), {4, 3}, at::kFloat);
}

TEST(GradientMap, TakesTheMemoryOfAGradientThatNobodyElseHas) {
  at::NoGradGuard no_grad;
  GradientMap gradients;
  const at::Tensor dense = at::zeros({3}), sparse = at::zeros({4, 3});
  at::Tensor dense_gradient = at::ones({3}), sparse_gradient = sparse_rows();
  const void* dense_memory = dense_gradient.data_ptr();
  const void* sparse_memory = sparse_gradient._values().data_ptr();
  gradients.accumulate(dense, dense_gradient);
  gradients.accumulate(sparse, sparse_gradient);
  EXPECT_EQ(gradients.get(dense).data_ptr(), dense_memory);
  EXPECT_EQ(gradients.get(sparse)._values().data_ptr(), sparse_memory);
}

TEST(GradientMap, CopiesAGradientThatOthersHave) {
  at::NoGradGuard no_grad;
  GradientMap gradients;
  const at::Tensor leaf = at::zeros({3});
  const at::Tensor gradient = at::ones({3});
  const at::Tensor view = gradient.view({3, 1});
  gradients.accumulate(leaf, gradient);
  EXPECT_NE(gradients.get(leaf).data_ptr(), view.data_ptr());
}

// So it may share the memory of the first one with others.
TEST(GradientMap, AddsSparseGradientsInNewMemory) {
  at::NoGradGuard no_grad;
  GradientMap gradients;
  const at::Tensor leaf = at::zeros({4, 3});
  at::Tensor gradient = sparse_rows();
  const at::Tensor values = gradient._values();
  gradients.accumulate(leaf, gradient);
  EXPECT_EQ(gradients.get(leaf)._values().data_ptr(), values.data_ptr());
  for (int i = 0; i < 2; ++i) gradients.accumulate(leaf, sparse_rows());
  EXPECT_EQ(gradients.get(leaf).to_dense().sum().item<double>(), 18);
  EXPECT_EQ(values.sum().item<double>(), 6) << "as it was";
}

}  // namespace
}  // namespace holdfast::autograd
