#include <holdfast/transport/receive_pool.h>

#include <cstring>

#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>

namespace holdfast {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(ReceivePoolTest, ABlockIsUsedAgainForAboutItsSize) {
  const auto pool = std::make_shared<ReceivePool>();
  auto memory = pool->allocate(kMiB);
  uint8_t* const first = memory.get();
  std::memset(first, 1, kMiB);
  EXPECT_EQ(pool->idle_bytes(), 0u);
  memory.reset();
  EXPECT_EQ(pool->idle_bytes(), kMiB);
  memory = pool->allocate(kMiB - kMiB / 16);
  EXPECT_EQ(memory.get(), first);
  EXPECT_EQ(pool->idle_bytes(), 0u);
  // Half as large would waste half of it.
  memory.reset();
  const auto smaller = pool->allocate(kMiB / 2);
  EXPECT_NE(smaller.get(), first);
}

TEST(ReceivePoolTest, EveryBlockIsAlignedAndHoldsWhatWasAskedFor) {
  const auto pool = std::make_shared<ReceivePool>();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{1024}, uint64_t{1025}, kPooledBytesMin - 1, kPooledBytesMin,
                               kPooledBytesMin + 1, 5 * kMiB + 3}) {
    const auto memory = pool->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.get()) % kAttachmentAlignment, 0u) << bytes;
    std::memset(memory.get(), 1, bytes);  // AddressSanitizer sees a block that is too short
  }
}

TEST(ReceivePoolTest, KeepsNoMoreThanItsBound) {
  const auto pool = std::make_shared<ReceivePool>(2 * kMiB);
  std::vector<std::shared_ptr<uint8_t>> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(pool->allocate(kMiB));
  blocks.clear();
  EXPECT_EQ(pool->idle_bytes(), 2 * kMiB);
}

TEST(ReceivePoolTest, FreesWhatIsIdleForLong) {
  const auto pool = std::make_shared<ReceivePool>();
  pool->allocate(kMiB).reset();
  const Time now = steady_now();
  pool->trim(now);
  EXPECT_EQ(pool->idle_bytes(), kMiB);
  pool->trim(now + 2 * ReceivePool::kIdleTime);
  EXPECT_EQ(pool->idle_bytes(), 0u);
}

TEST(ReceivePoolTest, ABlockOutlivesWhoeverMadeThePool) {
  auto pool = std::make_shared<ReceivePool>();
  const std::weak_ptr<ReceivePool> lives = pool;
  auto memory = pool->allocate(kMiB);
  pool.reset();
  EXPECT_FALSE(lives.expired());
  std::memset(memory.get(), 1, kMiB);
  memory.reset();
  EXPECT_TRUE(lives.expired());
}

TEST(ReceivePoolTest, AnImpossibleSizeIsRefused) {
  // For such a size it ends the program instead of saying no; dev runs this.
  if (test::kSanitizer) GTEST_SKIP() << "a sanitizer does not survive an impossible size";
  const auto pool = std::make_shared<ReceivePool>();
  pool->allocate(kMiB).reset();
  EXPECT_EQ(pool->allocate(uint64_t{1} << 60), nullptr);
  EXPECT_EQ(pool->idle_bytes(), 0u) << "what lay idle was not tried first";
}

}  // namespace
}  // namespace holdfast
