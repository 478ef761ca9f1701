#include <holdfast/base/executor.h>

#include <holdfast/base/error.h>
#include <holdfast/base/future.h>

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <functional>
#include <latch>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

TEST(ExecutorTest, StartsNoThreadBeforeItIsNeeded) {
  Executor executor({.threads = 4});
  EXPECT_EQ(executor.stats().threads, 0u);
}

TEST(ExecutorTest, RefusesNonsense) {
  EXPECT_THROW(Executor({.threads = 0}), InvalidArgument);
  EXPECT_THROW(Executor({.threads = 5, .threads_max = 4}), InvalidArgument);
}

TEST(ExecutorTest, RunsInOrderOnItsOwnNamedThread) {
  Executor executor({.threads = 1, .name = "a-rather-long-name"});
  EXPECT_FALSE(executor.on_executor_thread());
  std::vector<int> order;
  bool on_thread = false;
  char name[32] = {};
  std::latch done(1);
  for (int i = 0; i < 100; ++i) executor.post([&, i] { order.push_back(i); });
  executor.post([&] {
    on_thread = executor.on_executor_thread();
    pthread_getname_np(pthread_self(), name, sizeof(name));
    done.count_down();
  });
  done.wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  EXPECT_TRUE(on_thread);
  EXPECT_STREQ(name, "a-rather-long-n");
}

TEST(ExecutorTest, SeveralAtOnceRunInOrderAndStayAfterTheEnd) {
  Executor executor({.threads = 1});
  std::vector<int> order;
  std::latch done(3);
  const auto three = [&] {
    std::vector<Closure> work;
    for (int i = 0; i < 3; ++i) {
      work.emplace_back([&, i] {
        order.push_back(i);
        done.count_down();
      });
    }
    return work;
  };
  std::vector<Closure> work = three();
  executor.post_all(work);
  done.wait();
  executor.stop();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  std::vector<Closure> late = three();
  executor.post_all(late);
  EXPECT_EQ(order.size(), 3u);
  EXPECT_TRUE(static_cast<bool>(late[0]) && static_cast<bool>(late[2]));
  EXPECT_FALSE(static_cast<bool>(work[0]));
}

// What goes on with something comes first, but what is fresh gets its turn, too.
TEST(ExecutorTest, WhatWasBegunComesFirstButNotForEver) {
  Executor executor({.threads = 1});
  std::string order;
  std::latch held(1), holds(1), done(41);
  executor.post([&] {
    held.count_down();
    holds.wait();
  });
  held.wait();
  const auto posts = [&](char name, int count, Executor::Turn turn) {
    std::vector<Closure> work;
    for (int i = 0; i < count; ++i) {
      work.emplace_back([&, name] {
        order += name;
        done.count_down();
      });
    }
    executor.post_all(work, turn);
  };
  posts('f', 3, Executor::Turn::fresh);
  posts('b', 38, Executor::Turn::begun);
  holds.count_down();
  done.wait();
  EXPECT_EQ(order, std::string(16, 'b') + "f" + std::string(16, 'b') + "f" + std::string(6, 'b') + "f");
}

TEST(ExecutorTest, NeverRunsInline) {
  Executor executor({.threads = 1});
  std::latch done(1);
  bool inner_ran = false;
  bool was_inline = true;
  executor.post([&] {
    executor.post([&] {
      inner_ran = true;
      done.count_down();
    });
    was_inline = inner_ran;
  });
  done.wait();
  executor.stop();
  EXPECT_TRUE(inner_ran);
  EXPECT_FALSE(was_inline);
}

TEST(ExecutorTest, RunsNoMoreThanItsThreadsAtOnce) {
  Executor executor({.threads = 3});
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::latch done(300);
  for (int i = 0; i < 300; ++i) {
    executor.post([&] {
      const int now = ++running;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::yield();
      --running;
      done.count_down();
    });
  }
  done.wait();
  EXPECT_LE(most, 3);
  EXPECT_LE(executor.stats().threads, 3u);
}

TEST(ExecutorTest, GoesOnAfterAnException) {
  Executor executor({.threads = 1});
  std::latch done(1);
  executor.post([] { throw std::runtime_error("expected by the test"); });
  executor.post([] { throw 7; });
  executor.post([&] { done.count_down(); });
  done.wait();
}

// work n: posts work n - 1 and waits for its end, all on one thread's worth.
TEST(ExecutorTest, NestedBlockingOnOneThreadTo200) {
  constexpr int kDepth = 200;
  Executor executor({.threads = 1});
  std::function<int(int)> nest = [&](int depth) -> int {
    if (depth == 0) return 0;
    Promise<int> promise(&executor);
    Future<int> future = promise.future();
    executor.post([&nest, depth, promise = std::move(promise)]() mutable { promise.set_value(nest(depth - 1) + 1); });
    return future.get();
  };
  EXPECT_EQ(nest(kDepth), kDepth);
  EXPECT_EQ(executor.stats().blocked, 0u);
  EXPECT_LE(executor.stats().threads, static_cast<size_t>(kDepth));
  // The surplus threads park, and serve the next nest: no thread is started for it.
  const size_t threads = executor.stats().threads;
  EXPECT_EQ(nest(kDepth / 2), kDepth / 2);
  EXPECT_EQ(executor.stats().threads, threads);
}

TEST(ExecutorTest, CountsTheBlockedAndStopsAtTheMost) {
  Executor executor({.threads = 1, .threads_max = 3});
  Promise<void> gate;
  Future<void> open = gate.future();
  std::latch in(3);
  std::latch done(5);
  for (int i = 0; i < 5; ++i) {
    executor.post([&, i] {
      BlockingScope blocking;
      if (i < 3) in.count_down();
      open.wait();
      done.count_down();
    });
    if (i == 2) in.wait();
  }
  EXPECT_EQ(executor.stats().threads, 3u);
  EXPECT_EQ(executor.stats().blocked, 3u);
  EXPECT_EQ(executor.stats().queued, 2u);
  gate.set_value();
  done.wait();
  executor.stop();
  EXPECT_EQ(executor.stats().threads, 0u);
  EXPECT_EQ(executor.stats().queued, 0u);
}

// Again and again, so that threads start where others have ended.
TEST(ExecutorTest, SurplusThreadsEndWhenNobodyNeedsThem) {
  constexpr size_t kThreads = 2, kBlocked = 20;
  Executor executor({.threads = kThreads, .idle_max = std::chrono::milliseconds(1)});
  for (int round = 0; round < 20; ++round) {
    std::latch all_blocked(kBlocked), done(kBlocked);
    for (size_t i = 0; i < kBlocked; ++i) {
      executor.post([&] {
        {
          const BlockingScope blocking;
          all_blocked.arrive_and_wait();
        }
        done.count_down();
      });
    }
    done.wait();
    const Time give_up = steady_now() + std::chrono::seconds(60);
    while (executor.stats().threads > kThreads && steady_now() < give_up) std::this_thread::yield();
    EXPECT_EQ(executor.stats().threads, kThreads);
  }
}

TEST(ExecutorTest, WorkThatComesWhileAllAreBlockedIsRun) {
  Executor executor({.threads = 1});
  Promise<void> gate;
  std::latch blocked(1);
  executor.post([future = gate.future(), &blocked] {
    BlockingScope blocking;
    blocked.count_down();
    future.wait();
  });
  blocked.wait();
  std::latch ran(1);
  executor.post([&] { ran.count_down(); });
  ran.wait();
  gate.set_value();
}

TEST(ExecutorTest, StopDropsWhatHasNotStartedOutsideItsLock) {
  auto alive = std::make_shared<int>(0);
  // No second thread, so that what follows stays queued although the first closure blocks.
  Executor executor({.threads = 1, .threads_max = 1});
  Promise<void> gate;
  std::latch started(1);
  bool second_ran = false;
  executor.post([&, future = gate.future()] {
    started.count_down();
    future.wait();
  });
  started.wait();
  // Its destructor completes what the running closure waits for, and calls back into the executor.
  struct Dropped {
    Dropped(Promise<void> promise, Executor* executor) : promise(std::move(promise)), executor(executor) {}
    Dropped(Dropped&&) = default;
    ~Dropped() {
      if (promise.valid()) (void)executor->stats();
    }
    void operator()() { *ran = true; }
    Promise<void> promise;
    Executor* executor;
    bool* ran = nullptr;
    std::shared_ptr<int> alive;
  };
  Dropped dropped(std::move(gate), &executor);
  dropped.ran = &second_ran;
  dropped.alive = alive;
  executor.post(Closure(std::move(dropped)));
  dropped.alive.reset();
  executor.stop();
  EXPECT_EQ(alive.use_count(), 1);
  executor.post([alive, &second_ran] { second_ran = true; });
  EXPECT_EQ(alive.use_count(), 1);
  executor.stop();
  EXPECT_FALSE(second_ran);
}

TEST(ExecutorTest, StopFromManyThreads) {
  Executor executor({.threads = 2});
  std::atomic<int> ran = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) executor.post([&] { ++ran; });
      executor.stop();
      EXPECT_EQ(executor.stats().threads, 0u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ran, 400);
}

TEST(ExecutorTest, ManyPostersWithBlocking) {
  Executor executor({.threads = 2});
  constexpr int kEach = 2000;
  std::atomic<int> ran = 0;
  std::latch done(4 * kEach);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kEach; ++j) {
        executor.post([&, j] {
          if (j % 3 == 0) {
            BlockingScope blocking;
            std::this_thread::yield();
          }
          ++ran;
          done.count_down();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.wait();
  EXPECT_EQ(ran, 4 * kEach);
  EXPECT_EQ(executor.stats().blocked, 0u);
}

using ExecutorDeathTest = ::testing::Test;

TEST(ExecutorDeathTest, MayNotStopItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Executor executor({.threads = 1});
        std::latch done(1);
        executor.post([&] {
          executor.stop();
          done.count_down();
        });
        done.wait();
      },
      "on_executor_thread");
}

}  // namespace
}  // namespace holdfast
