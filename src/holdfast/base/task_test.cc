#include <holdfast/base/task.h>

#include <holdfast/base/executor.h>
#include <holdfast/base/when.h>

#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

Task<int> give(int x) { co_return x; }
Task<int> read(Future<int> future) { co_return co_await future; }
Task<std::string> text_of(Future<int> future) {
  const int x = co_await read(std::move(future));
  co_return std::to_string(x);
}

TEST(TaskTest, IsLazy) {
  bool ran = false;
  auto coroutine = [](bool& flag) -> Task<void> {
    flag = true;
    co_return;
  };
  Task<void> task = coroutine(ran);
  EXPECT_FALSE(ran);
  start(std::move(task)).get();
  EXPECT_TRUE(ran);
  EXPECT_FALSE(task.valid());
  EXPECT_THROW((void)start(std::move(task)), InvalidArgument);
}

TEST(TaskTest, NeverStartedIsDestroyed) {
  auto alive = std::make_shared<int>(0);
  auto coroutine = [](std::shared_ptr<int>) -> Task<void> { co_return; };
  { Task<void> task = coroutine(alive); }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(TaskTest, AwaitsFuturesAndTasks) {
  Promise<int> promise;
  Future<std::string> future = start(text_of(promise.future()));
  EXPECT_FALSE(future.ready());
  promise.set_value(12);
  EXPECT_EQ(future.get(), "12");
  EXPECT_EQ(start(text_of(make_ready_future(3))).get(), "3");
}

TEST(TaskTest, MoveOnlyResults) {
  auto inner = [](Future<std::unique_ptr<int>> future) -> Task<std::unique_ptr<int>> {
    std::unique_ptr<int> value = co_await future;
    ++*value;
    co_return value;
  };
  auto outer = [&](Future<std::unique_ptr<int>> future) -> Task<std::unique_ptr<int>> {
    co_return co_await inner(std::move(future));
  };
  Promise<std::unique_ptr<int>> promise;
  Future<std::unique_ptr<int>> future = start(outer(promise.future()));
  promise.set_value(std::make_unique<int>(1));
  EXPECT_EQ(*future.get(), 2);
}

TEST(TaskTest, ExceptionsPassAsThemselves) {
  auto thrower = [](Future<void> future) -> Task<int> {
    co_await future;
    throw std::out_of_range("x");
  };
  auto passer = [&](Future<void> future) -> Task<int> { co_return co_await thrower(std::move(future)); };
  auto catcher = [&](Future<void> future) -> Task<int> {
    try {
      co_return co_await passer(std::move(future));
    } catch (const std::out_of_range&) {
      co_return -1;
    }
  };
  Promise<void> promise;
  Future<int> passed = start(passer(promise.future()));
  Future<int> caught = start(catcher(promise.future()));
  promise.set_value();
  EXPECT_THROW(passed.get(), std::out_of_range);
  EXPECT_EQ(caught.get(), -1);
  EXPECT_THROW(start(read(make_failed_future<int>({.code = Code::timeout, .message = ""}))).get(), Timeout);
}

TEST(TaskTest, AwaitingNothingIsAnErrorInside) {
  auto empty_task = []() -> Task<void> { co_await Task<void>(); };
  auto empty_future = []() -> Task<void> { co_await Future<void>(); };
  EXPECT_THROW(start(empty_task()).get(), InvalidArgument);
  EXPECT_THROW(start(empty_future()).get(), InvalidArgument);
}

TEST(TaskTest, LocalsAndParametersAreGoneBeforeTheResultIsSeen) {
  auto alive = std::make_shared<int>(0);
  auto coroutine = [](std::shared_ptr<int> parameter, Future<void> future) -> Task<void> {
    std::shared_ptr<int> local = parameter;
    co_await future;
  };
  Promise<void> promise;
  Future<void> done = start(coroutine(alive, promise.future()));
  EXPECT_EQ(alive.use_count(), 3);
  long after = 0;
  Future<void> watch = done.then([&] { after = alive.use_count(); });
  promise.set_value();
  EXPECT_EQ(after, 1);
}

TEST(TaskTest, TemporariesInAwaitExpressionsLiveOnce) {
  auto alive = std::make_shared<int>(0);
  auto inner = [](std::shared_ptr<int> value, std::string, Future<void> future) -> Task<std::shared_ptr<int>> {
    co_await future;
    co_return value;
  };
  auto outer = [&](Future<void> future) -> Task<long> {
    std::shared_ptr<int> back = co_await inner(alive, std::string(100, 'x'), future);
    co_return back.use_count();
  };
  Promise<void> promise;
  Future<long> count = start(outer(promise.future()));
  promise.set_value();
  EXPECT_EQ(count.get(), 2);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(TaskTest, AmbientFollowsTheTask) {
  int worker = 0;
  std::vector<void*> seen;
  auto leaf = [&](Future<void> future) -> Task<void> {
    seen.push_back(current_ambient().worker);
    co_await future;
    seen.push_back(current_ambient().worker);
  };
  auto root = [&](Future<void> first, Future<void> second) -> Task<void> {
    co_await leaf(first);
    current_ambient().deadline = Time(Duration(7));
    co_await second;
    EXPECT_EQ(current_ambient().deadline, Time(Duration(7)));
    seen.push_back(current_ambient().worker);
  };
  Promise<void> first;
  Promise<void> second;
  Future<void> done;
  {
    AmbientScope scope(Ambient{.worker = &worker});
    done = start(root(first.future(), second.future()));
    EXPECT_EQ(current_ambient().worker, &worker);
    EXPECT_EQ(current_ambient().cancelled, nullptr);
  }
  first.set_value();
  EXPECT_EQ(current_ambient().worker, nullptr);
  EXPECT_EQ(current_ambient().deadline, kNever);
  std::thread([&] { second.set_value(); }).join();
  done.get();
  EXPECT_EQ(seen, (std::vector<void*>{&worker, &worker, &worker}));
}

TEST(TaskTest, CancelSetsTheFlagInside) {
  bool seen = false;
  auto coroutine = [&](Future<void> future) -> Task<int> {
    EXPECT_FALSE(current_ambient().cancelled->load());
    co_await future;
    seen = current_ambient().cancelled->load();
    co_return 1;
  };
  Promise<void> promise;
  Future<int> future = start(coroutine(promise.future()));
  EXPECT_TRUE(future.cancel());
  EXPECT_THROW(future.get(), Cancelled);
  promise.set_value();
  EXPECT_TRUE(seen);
  EXPECT_THROW(future.get(), Cancelled);
}

TEST(TaskTest, ALoopOverReadyFuturesDoesNotUseUpTheStack) {
  auto loop = []() -> Task<int> {
    int sum = 0;
    for (int i = 0; i < 300'000; ++i) sum += co_await make_ready_future(1);
    co_return sum;
  };
  EXPECT_EQ(start(loop()).get(), 300'000);
}

TEST(TaskTest, ALoopOverReadyTasksDoesNotUseUpTheStack) {
  auto loop = []() -> Task<int> {
    int sum = 0;
    for (int i = 0; i < 300'000; ++i) sum += co_await give(1);
    co_return sum;
  };
  EXPECT_EQ(start(loop()).get(), 300'000);
}

Task<int> nest(int depth, Future<void> gate) {
  if (depth == 0) {
    co_await gate;
    co_return 0;
  }
  co_return 1 + co_await nest(depth - 1, gate);
}

TEST(TaskTest, DeepNestsDoNotUseUpTheStack) {
  EXPECT_EQ(start(nest(100'000, make_ready_future())).get(), 100'000);
  Promise<void> gate;
  Future<int> future = start(nest(100'000, gate.future()));
  EXPECT_FALSE(future.ready());
  gate.set_value();
  EXPECT_EQ(future.get(), 100'000);
}

// Two tasks that wake each other, without an executor, 100,000 times.
TEST(TaskTest, PingPongDoesNotUseUpTheStack) {
  constexpr size_t kRounds = 100'000;
  std::vector<Promise<void>> to_a(kRounds);
  std::vector<Promise<void>> to_b(kRounds);
  size_t rounds_a = 0;
  auto a = [&]() -> Task<void> {
    for (size_t i = 0; i < kRounds; ++i) {
      co_await to_a[i].future();
      ++rounds_a;
      to_b[i].set_value();
    }
  };
  auto b = [&]() -> Task<void> {
    for (size_t i = 0; i < kRounds; ++i) {
      co_await to_b[i].future();
      if (i + 1 < kRounds) to_a[i + 1].set_value();
    }
  };
  Future<void> done_a = start(a());
  Future<void> done_b = start(b());
  to_a[0].set_value();
  done_a.get();
  done_b.get();
  EXPECT_EQ(rounds_a, kRounds);
}

TEST(TaskTest, FirstStepAndContinuationsRunOnItsExecutor) {
  Executor executor({.threads = 1});
  bool first = false;
  bool continued = false;
  auto coroutine = [&]() -> Task<void> {
    first = executor.on_executor_thread();
    co_return;
  };
  start(coroutine(), &executor).then([&] { continued = executor.on_executor_thread(); }).get();
  EXPECT_TRUE(first);
  EXPECT_TRUE(continued);
}

TEST(TaskTest, GoesOnWhereTheFutureSays) {
  Executor executor({.threads = 1});
  auto coroutine = [&](Future<void> future) -> Task<bool> {
    co_await future;
    co_return executor.on_executor_thread();
  };
  Promise<void> promise(&executor);
  Future<bool> future = start(coroutine(promise.future()));  // it has suspended when start() returns
  promise.set_value();
  EXPECT_TRUE(future.get());
}

TEST(TaskTest, HoldsNoThreadWhileItWaits) {
  Executor executor({.threads = 1, .threads_max = 1});
  std::vector<Promise<int>> promises;
  std::vector<Future<int>> futures;
  for (int i = 0; i < 50; ++i) {
    promises.emplace_back(&executor);
    futures.push_back(start(read(promises.back().future()), &executor));
  }
  std::latch free(1);
  executor.post([&] { free.count_down(); });
  free.wait();
  EXPECT_EQ(executor.stats().blocked, 0u);
  for (int i = 49; i >= 0; --i) promises[static_cast<size_t>(i)].set_value(i);
  int sum = 0;
  for (int x : when_all(futures).get()) sum += x;
  EXPECT_EQ(sum, 49 * 50 / 2);
}

TEST(TaskTest, AStoppedExecutorDestroysTheTask) {
  auto alive = std::make_shared<int>(0);
  Executor executor({.threads = 1});
  auto inner = [](std::shared_ptr<int>, Future<void> future) -> Task<void> {
    co_await future;
    ADD_FAILURE() << "resumed";
  };
  auto outer = [&](std::shared_ptr<int> held, Future<void> future) -> Task<void> { co_await inner(held, future); };
  Promise<void> promise(&executor);
  Future<void> suspended = start(outer(alive, promise.future()));
  EXPECT_EQ(alive.use_count(), 3);
  executor.stop();
  promise.set_value();
  EXPECT_THROW(suspended.get(), Cancelled);
  EXPECT_EQ(alive.use_count(), 1);
  Future<void> never = start(outer(alive, promise.future()), &executor);
  EXPECT_THROW(never.get(), Cancelled);
  EXPECT_EQ(alive.use_count(), 1);
}

// Futures complete on one thread while tasks suspend on others: each goes on exactly once.
TEST(TaskStressTest, SuspensionAgainstCompletion) {
  constexpr size_t kTasks = 300;
  constexpr size_t kSteps = 10;
  Executor executor({.threads = 2});
  std::vector<std::vector<Promise<int>>> promises(kTasks);
  for (auto& row : promises) {
    for (size_t i = 0; i < kSteps; ++i) row.emplace_back(i % 2 == 0 ? &executor : nullptr);
  }
  auto alive = std::make_shared<int>(0);
  auto sum_of = [](std::vector<Future<int>> futures, std::shared_ptr<int>) -> Task<int> {
    int sum = 0;
    for (Future<int>& future : futures) sum += co_await read(future);
    co_return sum;
  };
  std::vector<Future<int>> sums;
  std::vector<std::vector<Future<int>>> inputs(kTasks);
  for (size_t t = 0; t < kTasks; ++t) {
    for (Promise<int>& promise : promises[t]) inputs[t].push_back(promise.future());
  }
  std::vector<std::thread> completers;
  for (size_t thread = 0; thread < 2; ++thread) {
    completers.emplace_back([&, thread] {
      for (size_t t = 0; t < kTasks; ++t) {
        for (size_t i = thread; i < kSteps; i += 2) promises[t][i].set_value(static_cast<int>(i));
      }
    });
  }
  for (size_t t = 0; t < kTasks; ++t) sums.push_back(start(sum_of(inputs[t], alive), &executor));
  for (const Future<int>& sum : sums) EXPECT_EQ(sum.get(), 45);
  for (std::thread& thread : completers) thread.join();
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace holdfast
