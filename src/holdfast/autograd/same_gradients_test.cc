// LocalPass gives the gradients that libtorch's own backward of the same program gives: programs of every kind, and
// random ones, cut between several workers.
#include <gtest/gtest.h>

#include <holdfast/autograd/programs_test_support.h>

namespace holdfast::autograd {
namespace {

// Bit for bit: in these programs no function's input gets more than two gradients in an order that depends on arrival,
// and the sum of two does not depend on their order.
class SameAsOneGraph : public testing::TestWithParam<size_t> {};

TEST_P(SameAsOneGraph, gradients) {
  const Case& test = cases()[GetParam()];
  SCOPED_TRACE(test.name);
  const Tensors expected = run_locally(test);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    at::manual_seed(7);
    Tensors leaves = test.leaves();
    SplitGraph split(seed);
    split.backward(test.program(split, leaves));
    for (size_t i = 0; i < leaves.size(); ++i) {
      expect_same(split.gradient(leaves[i]), expected[i].grad(), 0, "leaf " + std::to_string(i));
      EXPECT_FALSE(leaves[i].grad().defined());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, SameAsOneGraph, testing::Range<size_t>(0, cases().size()));

class RandomGraphs : public testing::TestWithParam<uint64_t> {};

// Four parts, for a name and a time limit each.
constexpr uint64_t kParts = 4, kSeedsPerPart = 250;

// A tolerance, because a sum of three or more gradients depends in its last bits on the order in which they arrive.
TEST_P(RandomGraphs, split_over_workers) {
  size_t messages = 0, with_gradient = 0, without = 0;
  for (uint64_t i = 0; i < kSeedsPerPart && !HasFailure(); ++i) {
    const uint64_t seed = GetParam() * kSeedsPerPart + i;
    SCOPED_TRACE(seed);
    OneGraph one;
    const Outcome expected = run_locally(one, seed);
    SplitGraph split(seed);
    RandomProgram program(seed);
    std::vector<Root> roots = program.run(split);
    split.backward(roots);
    for (size_t j = 0; j < program.leaves.size(); ++j) {
      expect_same(split.gradient(program.leaves[j]), expected.gradients[j], 1e-10, "leaf " + std::to_string(j));
      ++(expected.gradients[j].defined() ? with_gradient : without);
    }
    EXPECT_EQ(calls_of(program), expected.hook_calls);
    messages += split.messages();
  }
  // They test something: several messages a graph, leaves of both kinds.
  EXPECT_GT(messages, kSeedsPerPart * 2);
  EXPECT_GT(with_gradient, kSeedsPerPart);
  EXPECT_GT(without, kSeedsPerPart / 4);
}

// Bit for bit: on one worker functions run in the order in which libtorch's engine runs them.
TEST_P(RandomGraphs, on_one_worker) {
  for (uint64_t i = 0; i < kSeedsPerPart && !HasFailure(); ++i) {
    const uint64_t seed = GetParam() * kSeedsPerPart + i;
    SCOPED_TRACE(seed);
    Nothing nothing;
    const Outcome expected = run_locally(nothing, seed);
    RandomProgram program(seed);
    SplitGraph whole(seed);
    whole.backward(program.run(nothing));
    for (size_t j = 0; j < program.leaves.size(); ++j) {
      expect_same(whole.gradient(program.leaves[j]), expected.gradients[j], 0, "leaf " + std::to_string(j));
    }
    EXPECT_EQ(calls_of(program), expected.hook_calls);
  }
}

INSTANTIATE_TEST_SUITE_P(Parts, RandomGraphs, testing::Range<uint64_t>(0, kParts));

}  // namespace
}  // namespace holdfast::autograd
