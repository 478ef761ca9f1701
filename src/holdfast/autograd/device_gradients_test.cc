// Gradients between devices of two workers: they go back along the map by which their tensors came. The device is a
// fake (tensor/fake_device_test_support.h), which can only copy; so nothing is computed on it.
#include <cstring>

#include <gtest/gtest.h>

#include <holdfast/autograd/context.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rref/rref.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/fake_device_test_support.h>

namespace holdfast::autograd {
namespace {

at::Tensor on_fake_device(int index) {
  return at::empty({4}, at::TensorOptions(at::kFloat).device(fake::device(index)));
}

// Throws unless the tensor is where the caller's map takes it.
at::Tensor return_from_device(at::Tensor tensor, int64_t index) {
  if (tensor.device() != fake::device(static_cast<int>(index))) throw std::runtime_error(tensor.device().str());
  return tensor;
}

TEST(DeviceGradients, GoBackByTheMapOfTheCall) {
  test::TestJob job(2, [](Options& options) {
    if (options.rank == 0) options.device_maps = {{"worker1", {{fake::device(0).str(), fake::device(1).str()}}}};
  });
  const at::Tensor x = on_fake_device(0).set_requires_grad(true);
  Context context(job[0]);
  const at::Tensor y = job[0].peer(1).call<return_from_device>(x, int64_t{1});
  EXPECT_EQ(y.device(), fake::device(0));
  // Of y, on worker 0; it goes to worker 1 as x did, and comes back as y did. It is only queued, not computed.
  const at::Tensor gradient = on_fake_device(0);
  fake::fill(gradient, 7);
  context.backward(std::vector<Root>{{y, gradient}});

  const at::Tensor found = context.gradient(x);
  ASSERT_TRUE(found.defined());
  EXPECT_EQ(found.device(), fake::device(0));
  const at::Tensor bytes = found.cpu();
  const std::vector<uint8_t> expected(bytes.nbytes(), 7);
  EXPECT_EQ(std::memcmp(bytes.data_ptr(), expected.data(), expected.size()), 0);
}

}  // namespace
}  // namespace holdfast::autograd
