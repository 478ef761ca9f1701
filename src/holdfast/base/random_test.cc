#include <holdfast/base/random.h>

#include <gtest/gtest.h>

#include <array>

namespace holdfast {
namespace {

// The published values of SplitMix64: seeds in bug reports must mean the same on every machine and version.
TEST(RandomTest, GivesTheKnownSequence) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
}

TEST(RandomTest, BelowReachesAllAndOnlyWhatIsBelow) {
  Random random(1);
  std::array<int, 6> seen{};
  for (int i = 0; i < 6000; ++i) {
    const uint64_t number = random.below(6);
    ASSERT_LT(number, 6u);
    ++seen[number];
  }
  for (int count : seen) EXPECT_GT(count, 800);
  EXPECT_EQ(random.below(1), 0u);
}

TEST(RandomTest, BetweenIncludesBothEnds) {
  Random random(2);
  bool low = false;
  bool high = false;
  for (int i = 0; i < 200; ++i) {
    const uint64_t number = random.between(10, 12);
    ASSERT_GE(number, 10u);
    ASSERT_LE(number, 12u);
    low |= number == 10;
    high |= number == 12;
  }
  EXPECT_TRUE(low);
  EXPECT_TRUE(high);
}

TEST(RandomTest, ChanceIsAbout) {
  Random random(3);
  int hits = 0;
  for (int i = 0; i < 10000; ++i) {
    EXPECT_FALSE(random.chance(0));
    EXPECT_TRUE(random.chance(1));
    if (random.chance(0.25)) ++hits;
  }
  EXPECT_GT(hits, 2200);
  EXPECT_LT(hits, 2800);
}

TEST(RandomTest, SplitIsAnotherSequence) {
  Random random(4);
  Random part = random.split();
  EXPECT_NE(part.next(), random.next());
  Random again(4);
  Random same_part = again.split();
  (void)same_part.next();
  EXPECT_EQ(part.next(), same_part.next());
}

TEST(RandomTest, SystemSeedsDiffer) { EXPECT_NE(random_seed(), random_seed()); }

}  // namespace
}  // namespace holdfast
