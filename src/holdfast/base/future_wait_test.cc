// Futures between threads: waiting, helping, interrupting, racing.
#include <holdfast/base/executor.h>
#include <holdfast/base/future.h>

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

TEST(FutureWaitTest, GetWaitsForAnotherThread) {
  Promise<int> promise;
  Future<int> future = promise.future();
  std::thread thread([&] { promise.set_value(8); });
  EXPECT_EQ(future.get(), 8);
  thread.join();
}

TEST(FutureWaitTest, TimesOut) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_FALSE(future.wait_for(std::chrono::milliseconds(1)));
  EXPECT_FALSE(future.wait_until(steady_now()));
  EXPECT_FALSE(future.wait_until(Time(Duration(-5))));
  promise.set_value(1);
  EXPECT_TRUE(future.wait_until(Time(Duration(0))));
  EXPECT_TRUE(future.wait_for(Duration::max()));
}

TEST(FutureWaitTest, TimedWaitSeesTheCompletion) {
  Promise<int> promise;
  Future<int> future = promise.future();
  std::thread thread([&] { promise.set_value(8); });
  EXPECT_TRUE(future.wait_for(std::chrono::hours(1)));
  thread.join();
}

TEST(FutureWaitTest, WaitingOpensABlockingScope) {
  struct Counter final : BlockingObserver {
    void on_block() override { ++blocks; }
    void on_unblock() override { ++unblocks; }
    int blocks = 0;
    int unblocks = 0;
  } counter;
  blocking_observer() = &counter;
  EXPECT_EQ(make_ready_future(1).get(), 1);
  EXPECT_EQ(counter.blocks, 0);
  Promise<int> promise;
  EXPECT_FALSE(promise.future().wait_for(Duration(1)));
  EXPECT_EQ(counter.blocks, 1);
  EXPECT_EQ(counter.unblocks, 1);
  blocking_observer() = nullptr;
}

TEST(WaitHelperTest, HelpsOnTheWaitingThread) {
  struct Helper : WaitHelper {
    void help(FutureStateBase& state, Time until) override {
      helper_thread = std::this_thread::get_id();
      seen_until = until;
      EXPECT_FALSE(state.ready());
      promise->set_value(5);
    }
    Promise<int>* promise = nullptr;
    std::thread::id helper_thread;
    Time seen_until{};
  };
  auto helper = std::make_shared<Helper>();
  Promise<int> promise;
  helper->promise = &promise;
  promise.set_helper(helper);
  Future<int> future = promise.future();
  EXPECT_EQ(future.then([](int x) { return x + 1; }).get(), 6);  // inherited
  EXPECT_EQ(helper->helper_thread, std::this_thread::get_id());
  EXPECT_EQ(helper->seen_until, kNever);
}

TEST(WaitHelperTest, SleepsIfTheHelperGivesUp) {
  struct Helper : WaitHelper {
    void help(FutureStateBase&, Time) override { called.count_down(); }
    std::latch called{1};
  };
  auto helper = std::make_shared<Helper>();
  Promise<int> promise;
  promise.set_helper(helper);
  Future<int> future = promise.future();
  std::thread thread([&] {
    helper->called.wait();
    promise.set_value(5);
  });
  EXPECT_EQ(future.get(), 5);
  thread.join();
}

// Stands for a thread stuck in poll(2): only interrupt() gets it out.
struct Poller final : Interrupt {
  void interrupt() noexcept override {
    std::lock_guard lock(mutex);
    EXPECT_FALSE(dead);
    ++interrupts;
    wake.notify_one();
  }
  void poll() {
    std::unique_lock lock(mutex);
    wake.wait(lock, [&] { return interrupts > 0; });
  }
  void die() {
    std::lock_guard lock(mutex);
    dead = true;
  }
  std::mutex mutex;
  std::condition_variable wake;
  int interrupts = 0;
  bool dead = false;
};

struct PollingHelper : WaitHelper {
  void help(FutureStateBase& state, Time) override {
    Poller poller;
    if (!state.set_interrupt(&poller)) {
      refused.fetch_add(1);
      return;
    }
    polling.count_down();
    poller.poll();
    EXPECT_TRUE(state.ready());
    state.clear_interrupt();
    poller.die();
  }
  std::latch polling{1};
  std::atomic<int> refused = 0;
};

TEST(WaitHelperTest, CompletionInterruptsThePoller) {
  auto helper = std::make_shared<PollingHelper>();
  Promise<int> promise;
  promise.set_helper(helper);
  std::thread thread([&] {
    helper->polling.wait();
    promise.set_value(5);
  });
  Future<int> future = promise.future();
  EXPECT_EQ(future.get(), 5);
  thread.join();
}

TEST(WaitHelperTest, OnlyOneHelpsTheOthersSleep) {
  auto helper = std::make_shared<PollingHelper>();
  Promise<int> promise;
  promise.set_helper(helper);
  std::thread first([future = promise.future()] { EXPECT_EQ(future.get(), 5); });
  helper->polling.wait();
  EXPECT_FALSE(promise.future().wait_for(Duration(1)));
  EXPECT_EQ(helper->refused, 1);
  promise.set_value(5);
  first.join();
}

TEST(WaitHelperTest, SetInterruptSeesReadiness) {
  Future<int> future = make_ready_future(1);
  Poller poller;
  EXPECT_FALSE(future.state()->set_interrupt(&poller));
  EXPECT_EQ(poller.interrupts, 0);
}

TEST(WaitHelperTest, ClearedInterruptsAreNotCalled) {
  Promise<int> promise;
  Poller poller;
  ASSERT_TRUE(promise.future().state()->set_interrupt(&poller));
  promise.future().state()->clear_interrupt();
  Poller other;
  ASSERT_TRUE(promise.future().state()->set_interrupt(&other));
  promise.set_value(1);
  EXPECT_EQ(poller.interrupts, 0);
  EXPECT_EQ(other.interrupts, 1);
  promise.future().state()->clear_interrupt();
}

// set_interrupt and clear_interrupt race with completion; the Interrupt is gone right after clear.
TEST(FutureStressTest, InterruptsAgainstCompletion) {
  struct Flag final : Interrupt {
    void interrupt() noexcept override { calls.store(calls.load() + 1); }
    std::atomic<int> calls = 0;
  };
  for (int round = 0; round < 1000; ++round) {
    Promise<int> promise;
    Future<int> future = promise.future();
    std::thread completer([&] { promise.set_value(round); });
    int called = 0;
    while (!future.ready()) {
      auto flag = std::make_unique<Flag>();
      if (!future.state()->set_interrupt(flag.get())) break;
      std::this_thread::yield();
      future.state()->clear_interrupt();
      called += flag->calls;
    }
    EXPECT_LE(called, 1);
    completer.join();
  }
}

// Completers, cancellers, waiters and continuations all at one future: one outcome, seen alike by all.
TEST(FutureStressTest, OneWinnerAndEverybodySeesIt) {
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    auto promise = std::make_shared<Promise<int>>();
    Future<int> future = promise->future();
    auto alive = std::make_shared<int>(0);
    std::atomic<int> hooks = 0;
    std::atomic<int> continued = 0;
    std::atomic<int> wins = 0;
    std::vector<int> outcomes(4);
    std::latch start(8);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        if (promise->set_value(i + 1)) ++wins;
      });
      threads.emplace_back([&, copy = future] {
        start.arrive_and_wait();
        if (copy.cancel()) ++wins;
      });
    }
    for (size_t i = 0; i < 4; ++i) {
      threads.emplace_back([&, i, copy = future] {
        start.arrive_and_wait();
        if (i == 0) promise->on_cancel([&hooks, alive] { ++hooks; });
        Future<int> next = copy.then([&continued, alive](Future<int> f) {
          ++continued;
          return f.failed() ? -1 : f.get();
        });
        if (i == 1) {
          while (!copy.wait_for(std::chrono::microseconds(10))) {
          }
        }
        outcomes[i] = next.get();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wins, 1);
    EXPECT_EQ(continued, 4);
    EXPECT_EQ(hooks, outcomes[0] == -1 ? 1 : 0);
    for (int outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
    promise.reset();
    EXPECT_EQ(alive.use_count(), 1);
  }
}

// then() racing with completion, posted on an executor; nothing is lost and nothing runs twice.
TEST(FutureStressTest, ThenAgainstCompletionOnAnExecutor) {
  constexpr int kFutures = 2000;
  Executor executor({.threads = 2});
  std::vector<Promise<int>> promises;
  std::vector<Future<int>> futures;
  for (int i = 0; i < kFutures; ++i) {
    promises.emplace_back(&executor);
    futures.push_back(promises.back().future());
  }
  std::atomic<int> ran = 0;
  std::thread completer([&] {
    for (int i = 0; i < kFutures; ++i) promises[static_cast<size_t>(i)].set_value(i);
  });
  std::vector<std::thread> adders;
  for (int t = 0; t < 3; ++t) {
    adders.emplace_back([&] {
      for (int i = 0; i < kFutures; ++i) {
        Future<int> next = futures[static_cast<size_t>(i)].then([&ran](int x) {
          ++ran;
          return x * 2;
        });
        if (i % 7 == 0) {
          EXPECT_EQ(next.get(), 2 * i);
        }
      }
    });
  }
  for (std::thread& thread : adders) thread.join();
  completer.join();
  std::latch drained(1);
  // The queue is in order, so behind this one nothing is left but what two threads are just running.
  executor.post([&] { drained.count_down(); });
  drained.wait();
  executor.stop();
  EXPECT_EQ(ran, 3 * kFutures);
}

// The producer frees its promise as soon as the waiter has seen the value, and the waiter its future.
TEST(FutureStressTest, NobodyTouchesTheStateOfOthersAfterwards) {
  for (int round = 0; round < 2000; ++round) {
    auto promise = std::make_unique<Promise<std::vector<int>>>();
    std::thread waiter([future = promise->future(), &promise]() mutable {
      EXPECT_EQ(std::move(future).get().size(), 3u);
      promise.reset();  // set_value() may still be returning on the other thread
      future = Future<std::vector<int>>();
    });
    promise->set_value(std::vector<int>{1, 2, 3});
    waiter.join();
  }
}

}  // namespace
}  // namespace holdfast
