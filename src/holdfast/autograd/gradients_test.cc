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
  const at::Tensor dense = at::zeros({3}), sparse = at::zeros({4, 3});
  const at::Tensor dense_gradient = at::ones({3}), sparse_gradient = sparse_rows();
  const at::Tensor dense_view = dense_gradient.view({3, 1});
  const at::Tensor values_view = sparse_gradient._values().view({6});
  gradients.accumulate(dense, dense_gradient);
  gradients.accumulate(sparse, sparse_gradient);
  EXPECT_NE(gradients.get(dense).data_ptr(), dense_view.data_ptr());
  EXPECT_NE(gradients.get(sparse)._values().data_ptr(), values_view.data_ptr());
}

TEST(GradientMap, AddsSparseGradients) {
  at::NoGradGuard no_grad;
  GradientMap gradients;
  const at::Tensor leaf = at::zeros({4, 3});
  for (int i = 0; i < 3; ++i) gradients.accumulate(leaf, sparse_rows());
  EXPECT_EQ(gradients.get(leaf).to_dense().sum().item<double>(), 18);
}

}  // namespace
}  // namespace holdfast::autograd
