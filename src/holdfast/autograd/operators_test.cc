// Gradients through operators and scripts that run on another worker.
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>

#include <holdfast/autograd/context.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/tensor/operators.h>
#include <holdfast/tensor/script.h>

namespace holdfast {
namespace {

using at::Tensor;

class OperatorGradients : public testing::TestWithParam<autograd::Mode> {};

TEST_P(OperatorGradients, FlowThroughOperatorsAndScripts) {
  test::TestJob job(2);
  job[1].load_script(
      "def sum_of_squares(all: List[Tensor]) -> Tuple[Tensor, int]:\n"
      "    total = torch.zeros([3])\n"
      "    for x in all:\n"
      "        total = total + x * x\n"
      "    return total, len(all)\n");
  const Peer peer = job[0].peer(1);
  for (int i = 0; i < 4; ++i) {  // the first calls of a script profile it, later ones run optimised
    const Tensor x = at::rand({3}).set_requires_grad(true);
    const Tensor y = at::rand({3}).set_requires_grad(true);
    autograd::Context context(job[0]);
    const Tensor product = peer.call_op("aten::mul", x, y).toTensor();
    const auto result = peer.call_script("sum_of_squares", std::vector<Tensor>{product, y}).toTuple();
    context.backward({result->elements()[0].toTensor().sum()}, {.mode = GetParam()});
    EXPECT_TRUE(at::allclose(context.gradient(x), 2 * x * y * y));
    EXPECT_TRUE(at::allclose(context.gradient(y), 2 * x * x * y + 2 * y));
  }
  job.shutdown();
}

INSTANTIATE_TEST_SUITE_P(Modes, OperatorGradients, testing::Values(autograd::Mode::fast, autograd::Mode::smart),
                         [](const auto& info) { return info.param == autograd::Mode::fast ? "fast" : "smart"; });

}  // namespace
}  // namespace holdfast
