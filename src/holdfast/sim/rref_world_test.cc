// Random worlds of references: the protocol keeps its promises in them, they contain every fault, and the same seed
// gives the same history. `holdfast sim --seeds N` runs more of them.
#include <holdfast/sim/rref_world.h>

#include <cstdlib>
#include <set>

#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/sim/sweep.h>

namespace holdfast::sim {
namespace {

// More of them for a longer look: HOLDFAST_SIM_SEEDS=10000.
constexpr uint64_t kWorlds = 300;

uint64_t world_seeds() {
  const char* wanted = std::getenv("HOLDFAST_SIM_SEEDS");
  return wanted != nullptr ? std::stoull(wanted) : test::kSanitizer ? kWorlds / 5 : kWorlds;
}

std::string history(uint64_t seed) {
  std::string text;
  run_rref_world(seed, [&](const std::string& line) { text += line + "\n"; });
  return text;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(RRefWorld, RandomWorldsKeepThePromises) {
  SweepReport total;
  for (uint64_t seed = 1; seed <= world_seeds(); ++seed) {
    WorldReport report = run_rref_world(seed);
    ASSERT_TRUE(report.violations.empty()) << describe_violations(report);
    total.add(std::move(report));
  }
  if (world_seeds() < kWorlds) return;  // too few to have met everything
  // What a test does not reach it does not test.
  EXPECT_GT(total.objects, total.worlds);
  EXPECT_GT(total.calls, total.worlds);
  for (size_t i = 0; i < total.faults.size(); ++i) EXPECT_GT(total.faults[i], 0u) << kFaultNames[i];
}

TEST(RRefWorld, TheSameSeedGivesTheSameHistory) {
  std::set<uint64_t> hashes;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const WorldReport report = run_rref_world(seed);
    const WorldReport again = run_rref_world(seed, [](const std::string&) {});
    EXPECT_EQ(again.trace_hash, report.trace_hash) << "seed " << seed;
    EXPECT_EQ(again.messages, report.messages) << "seed " << seed;
    EXPECT_EQ(again.faults, report.faults) << "seed " << seed;
    hashes.insert(report.trace_hash);
  }
  EXPECT_EQ(hashes.size(), 20u);
  EXPECT_EQ(history(5), history(5));
}

TEST(RRefWorld, TheHistoryNamesMessagesObjectsAndMishaps) {
  std::string text;
  for (uint64_t seed = 1; seed <= 20; ++seed) text += history(seed);
  for (const char* part : {"REMOTE_CALL #",
                           "RREF_FORK_REQUEST #",
                           "RREF_ACCEPT #",
                           "RREF_CHILD_ACCEPT #",
                           "RREF_USER_DELETE #",
                           "RREF_FETCH #",
                           "REPLY #",
                           "shares ",
                           "from owner ",
                           "to owner ",
                           "creates ",
                           " as fork ",
                           "LOST loss ",
                           "SETTLED up to loss ",
                           "makes object ",
                           "drops object ",
                           "fetches object ",
                           "dies",
                           "is replaced",
                           "are partitioned",
                           "everything heals",
                           "nothing is left"}) {
    EXPECT_TRUE(contains(text, part)) << part;
  }
}

TEST(RRefWorld, WorldsOnSeveralThreadsAreTheSame) {
  const SweepReport one = sweep({.first_seed = 1, .worlds = 40, .threads = 1, .progress = nullptr});
  const SweepReport three = sweep({.first_seed = 1, .worlds = 40, .threads = 3, .progress = nullptr});
  EXPECT_EQ(one.worlds, 40u);
  EXPECT_EQ(three.worlds, 40u);
  EXPECT_EQ(three.messages, one.messages);
  EXPECT_EQ(three.faults, one.faults);
  EXPECT_EQ(one.worlds_violated, 0u);
}

TEST(RRefWorld, AReportSaysHowToSeeTheHistory) {
  WorldReport report{.seed = 12};
  EXPECT_EQ(describe_violations(report), "");
  report.violations = {"at 1 ms: something is wrong"};
  EXPECT_EQ(describe_violations(report),
            "seed 12: at 1 ms: something is wrong\n`holdfast sim --seed 12` shows the whole history.\n");
}

TEST(RRefWorld, ASweepKeepsTheFirstViolatedWorlds) {
  SweepReport total;
  for (uint64_t seed : {9, 3, 8, 1, 7, 2, 6}) total.add({.seed = seed, .violations = {"wrong"}});
  total.add({.seed = 4});
  EXPECT_EQ(total.worlds, 8u);
  EXPECT_EQ(total.worlds_violated, 7u);
  ASSERT_EQ(total.violated.size(), 5u);
  EXPECT_EQ(total.violated.front().seed, 1u);
  EXPECT_EQ(total.violated.back().seed, 7u);
}

}  // namespace
}  // namespace holdfast::sim
