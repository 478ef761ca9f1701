#include <holdfast/base/mutex.h>

#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

TEST(InlineMutex, OneAtATimeHoldsIt) {
  InlineMutex mutex;
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

// More threads than cores, so that some lose the core inside and the others sleep.
TEST(InlineMutex, NoIncrementOfManyThreadsIsLost) {
  constexpr int kThreads = 8, kRounds = 20'000;
  InlineMutex mutex;
  int64_t count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        std::lock_guard lock(mutex);
        const int64_t before = count;
        if (round % 64 == 0) std::this_thread::yield();
        count = before + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

// Two that hand one thing to and fro: whoever is not woken waits for ever.
TEST(InlineMutex, ServesAConditionVariable) {
  constexpr int kTurns = 2'000;
  InlineMutex mutex;
  std::condition_variable_any changed;
  int turns = 0;
  const auto play = [&](int side) {
    std::unique_lock lock(mutex);
    while (turns < kTurns) {
      if (turns % 2 == side) {
        ++turns;
        changed.notify_one();
      } else {
        changed.wait(lock, [&] { return turns % 2 == side || turns >= kTurns; });
      }
    }
    changed.notify_one();
  };
  std::thread other([&] { play(1); });
  play(0);
  other.join();
  EXPECT_EQ(turns, kTurns);
}

}  // namespace
}  // namespace holdfast
