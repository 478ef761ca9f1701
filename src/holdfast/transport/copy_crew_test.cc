#include <holdfast/transport/copy_crew.h>

#include <sched.h>

#include <algorithm>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/transport/other_cores.h>

namespace holdfast {
namespace {

constexpr size_t kMin = CopyCrew::kSharedBytesMin;

std::vector<uint8_t> pattern(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> result(bytes);
  for (uint8_t& byte : result) byte = static_cast<uint8_t>((seed = seed * 1664525 + 1013904223) >> 24);
  return result;
}

void expect_copied(CopyCrew& crew, const std::vector<uint8_t>& from, size_t bytes, size_t offset) {
  std::vector<uint8_t> to(bytes + offset + 64, 0xAB);
  crew.copy(to.data() + offset, from.data(), bytes);
  EXPECT_TRUE(std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(bytes),
                         to.begin() + static_cast<ptrdiff_t>(offset)))
      << bytes << " bytes to " << offset;
  EXPECT_EQ(std::count(to.begin(), to.begin() + static_cast<ptrdiff_t>(offset), 0xAB), static_cast<ptrdiff_t>(offset));
  EXPECT_EQ(std::count(to.end() - 64, to.end(), 0xAB), 64) << "not a byte more";
}

TEST(CopyCrewTest, EveryByteWhateverTheSize) {
  const std::vector<uint8_t> from = pattern(3 * kMin + 1, 1);
  CopyCrew crew;
  for (const size_t bytes :
       {size_t{0}, size_t{1}, kMin - 1, kMin, kMin + 1, kMin + CopyCrew::kPartBytes, 3 * kMin + 1}) {
    for (const size_t offset : {0, 5, 64}) expect_copied(crew, from, bytes, offset);
  }
}

TEST(CopyCrewTest, TheHelperTakesParts) {
  if (!find_cores()) GTEST_SKIP() << "there is no core for a helper";
  CopyCrew crew;
  const std::vector<uint8_t> from = pattern(8 * kMin, 2);
  std::vector<uint8_t> to(from.size());
  for (int i = 0; i < 1000 && crew.parts_helped() == 0; ++i) {
    std::fill(to.begin(), to.end(), 0);
    crew.copy(to.data(), from.data(), from.size());
    ASSERT_EQ(to, from);
  }
  EXPECT_GT(crew.parts_helped(), 0u);
}

TEST(CopyCrewTest, AloneWhereThereIsOneCore) {
  std::thread([] {  // a thread of its own, to leave the others their cores
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    CopyCrew crew;
    const std::vector<uint8_t> from = pattern(2 * kMin, 3);
    for (int i = 0; i < 10; ++i) expect_copied(crew, from, from.size(), 0);
    EXPECT_EQ(crew.parts_helped(), 0u);
  })
      .join();
}

TEST(CopyCrewTest, SeveralThreadsAtOnce) {
  CopyCrew crew;
  std::vector<std::thread> threads;
  for (uint32_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&crew, seed] {
      const std::vector<uint8_t> from = pattern(kMin + seed * 1000, seed);
      for (int i = 0; i < 10; ++i) expect_copied(crew, from, from.size(), seed);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CopyCrewTest, EndsWithoutHavingCopied) { CopyCrew crew; }

}  // namespace
}  // namespace holdfast
