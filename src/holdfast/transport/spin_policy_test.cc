// SpinPolicy is fed with waits that are made up: no clock, no thread.
#include <gtest/gtest.h>

#include <holdfast/transport/spin_policy.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

class SpinPolicyTest : public testing::Test {
 protected:
  // One wait of that length. It is spun through if the policy allows so long; answers whether it spun at all.
  bool wait(Duration length) {
    const Duration spin = policy_.begin(now_);
    now_ += length;
    policy_.end(length > spin);
    return spin > Duration::zero();
  }
  int spins_of(int waits, Duration length) {
    int spins = 0;
    for (int i = 0; i < waits; ++i) spins += wait(length) ? 1 : 0;
    return spins;
  }
  using Next = SpinPolicy::AfterYield;
  // A wait during which a turn is given away and comes back that late, in vain.
  Next wait_with_yield(Duration took) {
    EXPECT_GT(policy_.begin(now_), Duration::zero());
    now_ += took;
    const Next next = policy_.after_yield(now_, took);
    policy_.end(false);
    return next;
  }
  // From now on, how long it is until it spins again.
  Duration pause() {
    const Time began = now_;
    while (!wait(10us)) {
    }
    return now_ - began - 10us;
  }
  SpinPolicy policy_;
  Time now_ = Time() + 1h;
};

TEST_F(SpinPolicyTest, ShortWaitsAreSpunThrough) { EXPECT_EQ(spins_of(100, 10us), 100); }

TEST_F(SpinPolicyTest, WaitsThatIncludeAWakeUpAreShort) { EXPECT_EQ(spins_of(100, 150us), 100); }

TEST_F(SpinPolicyTest, SpinsInVainBecomeRare) {
  EXPECT_LE(spins_of(1000, 1ms), 22);
  // One that pays sets that right.
  int waits = 0;
  while (!wait(10us)) ASSERT_LT(++waits, 64);
  EXPECT_EQ(spins_of(10, 10us), 10);
}

TEST_F(SpinPolicyTest, OneSpinInVainIsForgiven) {
  EXPECT_TRUE(wait(1h));
  EXPECT_TRUE(wait(10us));
  EXPECT_TRUE(wait(1h));
  EXPECT_TRUE(wait(10us));
}

TEST_F(SpinPolicyTest, MovesWhereTheCoreIsNeededMoreThanOnceAndGivesUpIfThatDoesNotHelp) {
  EXPECT_EQ(wait_with_yield(SpinPolicy::kYieldMax), Next::go_on);
  EXPECT_EQ(wait_with_yield(100us), Next::go_on) << "an accident";
  EXPECT_EQ(wait_with_yield(100us), Next::move);
  EXPECT_EQ(wait_with_yield(100us), Next::sleep) << "the other core is needed as well";
  EXPECT_EQ(pause(), SpinPolicy::kPauseMin);
}

TEST_F(SpinPolicyTest, AccidentsThatAreFarApartStayAccidents) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(wait_with_yield(3ms), Next::go_on);
    for (int quick = 0; quick < 8; ++quick) EXPECT_EQ(wait_with_yield(1us), Next::go_on);
  }
}

TEST_F(SpinPolicyTest, PausesGrowWhileTheCoreIsNeededAndShrinkAgain) {
  // Until it gives up; it may move first.
  const auto strain = [&] {
    int waits = 0;
    while (wait_with_yield(100us) != Next::sleep) ASSERT_LT(++waits, 4);
  };
  Duration expected = SpinPolicy::kPauseMin;
  for (int i = 0; i < 12; ++i) {
    strain();
    EXPECT_EQ(pause(), expected);
    expected = std::min(2 * expected, SpinPolicy::kPauseMax);
  }
  now_ += 1min;
  strain();
  EXPECT_EQ(pause(), SpinPolicy::kPauseMin) << "it was long ago";
}

TEST_F(SpinPolicyTest, ATurnThatComesBackLateOnceSaysNothingAboutCores) {
  const Duration late = 2 * SpinPolicy::kAlone;
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(policy_.shares_core(i % 3 == 0 ? Duration::zero() : late));
  int waits = 1;
  while (!policy_.shares_core(late)) ASSERT_LT(++waits, 10);
  EXPECT_TRUE(policy_.shares_core(late));
  EXPECT_FALSE(policy_.shares_core(SpinPolicy::kAlone)) << "it is alone again";
}

TEST_F(SpinPolicyTest, MovesBecomeRareWhereTheyDoNotHelp) {
  const auto moves = [&](Duration time) {
    int count = 0;
    for (const Time end = now_ + time; now_ < end; now_ += 100us) count += policy_.may_move(now_) ? 1 : 0;
    return count;
  };
  EXPECT_TRUE(policy_.may_move(now_));
  EXPECT_FALSE(policy_.may_move(now_));
  EXPECT_LE(moves(10s), 10s / SpinPolicy::kStayMax + 5);
  now_ += 1min;
  EXPECT_TRUE(policy_.may_move(now_));
  now_ += SpinPolicy::kPauseMin;
  EXPECT_TRUE(policy_.may_move(now_)) << "it was long ago";
}

TEST(SpinTest, WithoutAPolicyItSleeps) {
  Spin spin(nullptr, kNever, true);
  EXPECT_FALSE(spin.again());
}

TEST(SpinTest, EndsByItself) {
  int turns = 0;
  // More than once: this thread may lose its core before the first turn, for longer than it would spin.
  for (int i = 0; i < 1000 && turns == 0; ++i) {
    SpinPolicy policy;
    Spin spin(&policy, kNever, true);
    while (spin.again()) ++turns;
    EXPECT_FALSE(spin.again());
  }
  EXPECT_GE(turns, 1);
}

TEST(SpinTest, SleepsWhenThereIsNoTimeLeft) {
  SpinPolicy policy;
  Spin spin(&policy, steady_now(), true);
  EXPECT_FALSE(spin.again());
}

}  // namespace
}  // namespace holdfast
