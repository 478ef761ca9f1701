// A large tensor from one process to another: over TCP the sender needs no memory for it, and the receiver that of the
// tensor; on one host both see the same memory, that of one copy.
#include <optional>

#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/peak_test_support.h>

namespace holdfast::tensor_memory_test {
namespace {

using namespace test;

constexpr int64_t kBytes = 256 << 20;

std::optional<PeakMemory> peak_there;

void watch_there() { peak_there.emplace(); }
uint64_t growth_there() { return peak_there->growth(); }
int64_t last_element(const at::Tensor& tensor) { return tensor[kBytes - 1].item<int64_t>(); }

int serve_tensors() {
  Worker worker(Options::from_env());
  worker.shutdown(600s);
  return 0;
}
const Role serve_tensors_role("serve_tensors", serve_tensors);

class TensorMemory : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Over, TensorMemory, testing::Bool(),
                         [](const auto& info) { return info.param ? "shared_memory" : "tcp"; });

TEST_P(TensorMemory, OfOneCopy) {
  TestCoordinator coordinator(2, 600s);
  TestProcess process("serve_tensors", coordinator.options(1), {{"HOLDFAST_SHARED_MEMORY", GetParam() ? "1" : "0"}});
  Options options = coordinator.options(0);
  options.shared_memory = GetParam();
  Worker worker(options);
  const Peer peer = worker.peer(1);
  const at::Tensor tensor = at::ones({kBytes}, at::kByte);
  peer.call<watch_there>();
  const PeakMemory peak_here;
  EXPECT_EQ(peer.call<last_element>(tensor), 1);
  EXPECT_LT(peak_here.growth(), GetParam() ? kBytes / 16 * 17 : kBytes / 16);
  const uint64_t growth = peer.call<growth_there>();
  EXPECT_GT(growth, kBytes / 16 * 15);
  EXPECT_LT(growth, kBytes / 16 * 17);
  worker.shutdown(kPatience);
}

}  // namespace
}  // namespace holdfast::tensor_memory_test
