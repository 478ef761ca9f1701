#include <holdfast/rpc/run_history.h>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

constexpr Duration kABitLong = RunHistory::kShort + std::chrono::microseconds(1);
constexpr Duration kMuchTooLong = RunHistory::kVeryLong + std::chrono::microseconds(1);

void add_short_runs(RunHistory& history, int count) {
  for (int i = 0; i < count; ++i) history.add(RunHistory::kShort, false);
}

TEST(RunHistory, AFunctionMustShowThatItIsShort) {
  RunHistory history;
  EXPECT_FALSE(history.quick());
  add_short_runs(history, RunHistory::kShortRunsNeeded - 1);
  EXPECT_FALSE(history.quick());
  add_short_runs(history, 1);
  EXPECT_TRUE(history.quick());
}

TEST(RunHistory, OneThatBlocksOrTakesVeryLongBeginsAnew) {
  for (const bool blocks : {true, false}) {
    RunHistory history;
    add_short_runs(history, 1000);
    history.add(blocks ? Duration(1) : kMuchTooLong, blocks);
    EXPECT_FALSE(history.quick());
    add_short_runs(history, RunHistory::kShortRunsNeeded - 1);
    EXPECT_FALSE(history.quick());
  }
}

TEST(RunHistory, OneRunThatIsABitLongIsForgiven) {
  RunHistory history;
  add_short_runs(history, 1000);
  history.add(kABitLong, false);
  EXPECT_TRUE(history.quick());
}

TEST(RunHistory, OneThatIsABitLongHalfOfTheTimeIsNotShort) {
  RunHistory history;
  add_short_runs(history, 1000);
  for (int i = 0; i < 10; ++i) {
    history.add(kABitLong, false);
    add_short_runs(history, 1);
  }
  EXPECT_FALSE(history.quick());
}

}  // namespace
}  // namespace holdfast
