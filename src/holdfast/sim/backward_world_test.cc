// Random worlds of backward passes: the protocol keeps its promises in them, they reach every kind of end, and the same
// seed gives the same history.
#include <holdfast/sim/backward_world.h>

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

namespace holdfast::sim {
namespace {

// More of them for a longer look: HOLDFAST_SIM_SEEDS=10000.
uint64_t seeds() {
  const char* wanted = std::getenv("HOLDFAST_SIM_SEEDS");
  return wanted != nullptr ? std::stoull(wanted) : 1000;
}

TEST(BackwardWorld, RandomWorldsKeepThePromises) {
  BackwardReport total;
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    const BackwardReport report = run_backward_world(seed);
    ASSERT_TRUE(report.violations.empty()) << "seed " << seed << ": " << report.violations.front();
    total.add(report);
  }
  // What a test does not reach it does not test.
  EXPECT_GT(total.fast_succeeded, seeds() / 10);
  EXPECT_GT(total.smart_succeeded, seeds() / 10);
  EXPECT_GT(total.remote_succeeded, seeds() / 10);
  EXPECT_GT(total.starved, 0u);
  EXPECT_GT(total.threw, 0u);
  EXPECT_GT(total.lost, 0u);
  EXPECT_GT(total.cancelled, 0u);
  EXPECT_GT(total.refused_contexts, 0u);
  EXPECT_GT(total.deaths, 0u);
  RecordProperty("passes", static_cast<int>(total.passes));
}

TEST(BackwardWorld, TheSameSeedGivesTheSameHistory) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const BackwardReport report = run_backward_world(seed);
    const BackwardReport again = run_backward_world(seed, [](const std::string&) {});
    EXPECT_EQ(again.trace_hash, report.trace_hash) << "seed " << seed;
    EXPECT_EQ(again.messages, report.messages) << "seed " << seed;
    EXPECT_EQ(again.passes, report.passes) << "seed " << seed;
    hashes.insert(report.trace_hash);
  }
  EXPECT_EQ(hashes.size(), 20u);
}

}  // namespace
}  // namespace holdfast::sim
