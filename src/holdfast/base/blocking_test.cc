#include <holdfast/base/blocking.h>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

struct Counter final : BlockingObserver {
  void on_block() override { ++blocks; }
  void on_unblock() override { ++unblocks; }
  int blocks = 0;
  int unblocks = 0;
};

TEST(BlockingTest, NestedScopesTellOnce) {
  Counter counter;
  blocking_observer() = &counter;
  {
    BlockingScope outer;
    EXPECT_EQ(counter.blocks, 1);
    {
      BlockingScope inner;
      EXPECT_EQ(counter.blocks, 1);
    }
    EXPECT_EQ(counter.unblocks, 0);
  }
  EXPECT_EQ(counter.unblocks, 1);
  { BlockingScope again; }
  EXPECT_EQ(counter.blocks, 2);
  EXPECT_EQ(counter.unblocks, 2);
  blocking_observer() = nullptr;
  { BlockingScope unwatched; }
  EXPECT_EQ(counter.blocks, 2);
}

}  // namespace
}  // namespace holdfast
