#include <holdfast/base/closure.h>

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <utility>

namespace holdfast {
namespace {

TEST(ClosureTest, EmptyIsFalse) {
  Closure closure;
  EXPECT_FALSE(closure);
  closure.reset();
  EXPECT_FALSE(closure);
}

TEST(ClosureTest, RunsWhatItHolds) {
  int calls = 0;
  Closure closure([&] { ++calls; });
  ASSERT_TRUE(closure);
  closure();
  EXPECT_EQ(calls, 1);
}

TEST(ClosureTest, HoldsMoveOnlyCaptures) {
  int seen = 0;
  Closure closure([value = std::make_unique<int>(7), &seen] { seen = *value; });
  Closure moved = std::move(closure);
  EXPECT_FALSE(closure);
  moved();
  EXPECT_EQ(seen, 7);
}

template <size_t kPaddingBytes>
void check_lifetime() {
  auto alive = std::make_shared<int>(0);
  {
    Closure first([alive, padding = std::array<char, kPaddingBytes>{}] { (void)padding; });
    EXPECT_EQ(alive.use_count(), 2);
    Closure second(std::move(first));
    EXPECT_EQ(alive.use_count(), 2);
    Closure third([alive] {});
    EXPECT_EQ(alive.use_count(), 3);
    third = std::move(second);
    EXPECT_EQ(alive.use_count(), 2);
    third();
    EXPECT_EQ(alive.use_count(), 2);
    third.reset();
    EXPECT_EQ(alive.use_count(), 1);
    Closure fourth([alive] {});
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(ClosureTest, DestroysSmallCapturesOnce) { check_lifetime<1>(); }
TEST(ClosureTest, DestroysLargeCapturesOnce) { check_lifetime<200>(); }

TEST(ClosureTest, KeepsWhatWasCapturedLarge) {
  std::array<int, 64> numbers{};
  numbers[63] = 5;
  int seen = 0;
  Closure closure([numbers, &seen] { seen = numbers[63]; });
  Closure moved = std::move(closure);
  moved();
  EXPECT_EQ(seen, 5);
}

}  // namespace
}  // namespace holdfast
