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
    policy_.end(now_, length > spin);
    return spin > Duration::zero();
  }
  int spins_of(int waits, Duration length) {
    int spins = 0;
    for (int i = 0; i < waits; ++i) spins += wait(length) ? 1 : 0;
    return spins;
  }
  // A wait during which a turn is given away and comes back that late.
  void wait_with_yield(Duration took) {
    ASSERT_GT(policy_.begin(now_), Duration::zero());
    now_ += took;
    EXPECT_EQ(policy_.go_on_after_yield(now_, took), took <= SpinPolicy::kYieldMax);
    policy_.end(now_, false);
  }
  SpinPolicy policy_;
  Time now_ = Time() + 1h;
};

TEST_F(SpinPolicyTest, SleepsUntilItHasSeenShortWaits) {
  EXPECT_FALSE(wait(10us));
  EXPECT_GT(spins_of(20, 10us), 10);
  EXPECT_TRUE(wait(10us));
  EXPECT_GE(policy_.begin(now_), SpinPolicy::kSpinMin);
  EXPECT_LE(policy_.begin(now_), 30us) << "not for longer than needed";
}

TEST_F(SpinPolicyTest, WaitsThatIncludeAWakeUpAreShortEnoughToBeginWith) {
  spins_of(20, 60us);
  int spins = spins_of(1, 60us);
  for (int i = 0; i < 2000 && spins == 0; ++i) spins = spins_of(1, 60us);
  EXPECT_EQ(spins, 1) << "it tries again now and then";
}

TEST_F(SpinPolicyTest, LongWaitsAreSleptThrough) {
  EXPECT_EQ(spins_of(100, 1ms), 0);
  spins_of(20, 10us);
  EXPECT_LE(spins_of(100, 1ms), 1);
}

TEST_F(SpinPolicyTest, OneLongWaitIsSoonForgotten) {
  spins_of(20, 10us);
  wait(1h);
  EXPECT_GE(spins_of(6, 10us), 2);
}

TEST_F(SpinPolicyTest, SpinsThatDoNotPayBecomeRare) {
  spins_of(20, 10us);
  EXPECT_LE(spins_of(1000, 100us), 12) << "worthwhile to try, but it takes too long";
  // One that pays sets that right.
  int waits = 0;
  while (!wait(10us)) ASSERT_LT(++waits, 3000);
  EXPECT_EQ(spins_of(10, 10us), 10);
}

TEST_F(SpinPolicyTest, OneSpinInVainIsForgiven) {
  spins_of(20, 10us);
  EXPECT_TRUE(wait(90us));
  EXPECT_TRUE(wait(10us));
}

TEST_F(SpinPolicyTest, GivesUpWhereTheCoreIsNeeded) {
  spins_of(20, 10us);
  wait_with_yield(SpinPolicy::kYieldMax);
  EXPECT_TRUE(wait(10us)) << "nobody else was there";
  wait_with_yield(3ms);
  EXPECT_EQ(spins_of(50, 10us), 0);  // half of the shortest pause
  spins_of(100, 10us);
  EXPECT_TRUE(wait(10us)) << "after a while it tries again";
}

TEST_F(SpinPolicyTest, PausesGrowWhileTheCoreIsNeededAndShrinkAgain) {
  spins_of(20, 10us);
  const auto pause = [&] {
    wait_with_yield(3ms);
    const Time began = now_;
    while (!wait(10us)) {
    }
    return now_ - began;
  };
  Duration before = pause();
  for (int i = 0; i < 8; ++i) {
    const Duration next = pause();
    EXPECT_GT(next, before * 3 / 2);
    before = next;
  }
  EXPECT_LE(pause(), SpinPolicy::kPauseMax + 1ms) << "there is a longest";
  for (int i = 0; i < 100; ++i) wait_with_yield(1us);
  EXPECT_LE(pause(), SpinPolicy::kPauseMin + 1ms) << "after many quick ones it is an accident";
}

TEST(SpinTest, WithoutAPolicyItSleeps) {
  Spin spin(nullptr, kNever);
  EXPECT_FALSE(spin.again());
}

TEST(SpinTest, EndsByItself) {
  SpinPolicy policy;
  for (int i = 0; i < 20; ++i) {  // short waits
    policy.begin(steady_now());
    policy.end(steady_now(), false);
  }
  int turns = 0;
  {
    Spin spin(&policy, kNever);
    while (spin.again()) ++turns;
    EXPECT_FALSE(spin.again());
  }
  EXPECT_GE(turns, 1);
  {
    Spin spin(&policy, steady_now());
    EXPECT_FALSE(spin.again()) << "no time left";
  }
}

}  // namespace
}  // namespace holdfast
