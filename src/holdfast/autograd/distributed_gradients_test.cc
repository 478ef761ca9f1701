// Real workers give the gradients that libtorch's own backward of the same program gives: the programs and the random
// graphs of programs_test_support.h, with each message a call; in both modes, with one handler thread and with several;
// and many contexts at once on the same parameters.
#include <array>

#include <holdfast/autograd/programs_test_support.h>
#include <holdfast/autograd/workers_mover_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::autograd {
namespace {

using test::eventually;
using test::expect_throw;

struct Setting {
  Mode mode;
  int handler_threads;
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << (setting.mode == Mode::fast ? "fast" : "smart") << "_" << setting.handler_threads;
}

class DistributedGradients : public testing::TestWithParam<Setting> {
 protected:
  DistributedGradients() : job_(4, [](Options& options) { options.handler_threads = GetParam().handler_threads; }) {
    for (int rank = 0; rank < job_.size(); ++rank) hosts_.push_back(&job_[rank].host());
  }

  void TearDown() override {
    for (Host* host : hosts_) {
      EXPECT_TRUE(eventually([&] { return debug_info(*host) == DebugInfo{}; })) << host->name();
    }
    job_.shutdown();
  }

  WorkersMover mover(const Context& context) {
    return {hosts_, context.id(), [](const Future<void>& done) { done.wait(); }};
  }

  // False: FAST has said, rightly, that something gets no gradient.
  bool backward(const Context& context, const WorkersMover& mover, const std::vector<Root>& roots) {
    const BackwardOptions options{.mode = GetParam().mode};
    if (options.mode == Mode::smart || !mover.starves(roots)) {
      context.backward(roots, options);
      return true;
    }
    const Error error = expect_throw<Error>([&] { context.backward(roots, options); });
    EXPECT_CONTAINS(error.what(), "never received a gradient: ");
    EXPECT_CONTAINS(error.what(), "use SMART mode");
    return false;
  }

  test::TestJob job_;
  std::vector<Host*> hosts_;
};

TEST_P(DistributedGradients, OfEveryKindOfProgram) {
  size_t starved = 0;
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.name);
    const Tensors expected = run_locally(test);
    for (int repeat = 0; repeat < 5; ++repeat) {
      at::manual_seed(7);
      Tensors leaves = test.leaves();
      Context context(job_[0]);
      WorkersMover mover = this->mover(context);
      if (!backward(context, mover, test.program(mover, leaves))) {
        ++starved;
        continue;
      }
      for (size_t i = 0; i < leaves.size(); ++i) {
        expect_same(mover.gradient(leaves[i]), expected[i].grad(), 0, "leaf " + std::to_string(i));
        EXPECT_FALSE(leaves[i].grad().defined());
      }
    }
  }
  EXPECT_LT(starved, cases().size());
}

constexpr uint64_t kSeeds = 300;

// Every second program uses all that it computes: nothing starves then.
TEST_P(DistributedGradients, OfRandomGraphs) {
  size_t with_gradient = 0, without = 0, starved = 0, hook_calls = 0;
  for (uint64_t i = 0; i < kSeeds && !HasFailure(); ++i) {
    const uint64_t seed =
        i * 8 + static_cast<uint64_t>(GetParam().handler_threads) + (GetParam().mode == Mode::fast ? 1'000'000 : 0);
    SCOPED_TRACE(seed);
    const bool all_used = seed % 16 < 8;
    OneGraph one;
    const Outcome expected = run_locally(one, seed, all_used);
    RandomProgram program(seed, all_used);
    Context context(job_[0]);
    WorkersMover mover = this->mover(context);
    if (!backward(context, mover, program.run(mover))) {
      EXPECT_FALSE(all_used);
      ++starved;
      continue;
    }
    for (size_t j = 0; j < program.leaves.size(); ++j) {
      expect_same(mover.gradient(program.leaves[j]), expected.gradients[j], 1e-10, "leaf " + std::to_string(j));
      ++(expected.gradients[j].defined() ? with_gradient : without);
    }
    EXPECT_EQ(calls_of(program), expected.hook_calls);
    for (const int calls : expected.hook_calls) hook_calls += static_cast<size_t>(calls);
  }
  // They test something.
  EXPECT_GT(with_gradient, kSeeds);
  EXPECT_GT(without, kSeeds / 8);
  EXPECT_GT(hook_calls, kSeeds);
  EXPECT_EQ(starved > kSeeds / 8, GetParam().mode == Mode::fast);
}

// ---- many contexts at once

// Each worker's own, used by every context.
std::array<Tensor, 3> parameters;

Tensor apply_parameter(Tensor x, int64_t rank) { return (x * parameters[static_cast<size_t>(rank)]).tanh(); }

// From `rank` over the two others, in two ways that join.
void train_once(test::TestJob& job, int rank, Mode mode, uint64_t seed) {
  const Tensor x = (at::ones({3}, at::kDouble) * (0.1 * static_cast<double>(seed % 7))).set_requires_grad(true);
  const int a = (rank + 1) % 3, b = (rank + 2) % 3;
  std::vector<Tensor> expected;
  {
    Tensor x_alone = x.detach().set_requires_grad(true);
    const Tensor ya = apply_parameter(x_alone, a);
    const Tensor loss = (apply_parameter(ya, b) * apply_parameter(x_alone * ya, b)).sum();
    expected = torch::autograd::grad({loss},
                                     {x_alone, parameters[static_cast<size_t>(a)], parameters[static_cast<size_t>(b)]});
  }
  Context context(job[rank]);
  const Tensor ya = job[rank].peer(a).call<apply_parameter>(x, a);
  const Future<Tensor> second = job[rank].peer(b).async<apply_parameter>(x * ya, b);
  const Tensor first = job[rank].peer(b).call<apply_parameter>(ya, b);
  context.backward({(first * second.get()).sum()}, {.mode = mode});
  expect_same(context.gradient(x), expected[0], 1e-12, "x");
  for (const auto& [worker, gradient] : {std::pair(a, expected[1]), std::pair(b, expected[2])}) {
    const Tensor parameter = parameters[static_cast<size_t>(worker)];
    expect_same(find_context(job[worker], context.id()).gradient(parameter), gradient, 1e-12, "a parameter");
  }
}

TEST_P(DistributedGradients, OfManyContextsAtOnce) {
  for (Tensor& parameter : parameters) parameter = leaf({3});
  std::vector<std::function<void()>> runs;
  for (int thread = 0; thread < 4; ++thread) {
    runs.emplace_back([&, thread] {
      for (uint64_t i = 0; i < 100 && !HasFailure(); ++i) {
        train_once(job_, thread % 3, GetParam().mode, i);
      }
    });
  }
  test::run_together(runs);
  for (const Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Settings, DistributedGradients,
                         testing::Values(Setting{Mode::fast, 1}, Setting{Mode::fast, 4}, Setting{Mode::smart, 1},
                                         Setting{Mode::smart, 4}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace holdfast::autograd
