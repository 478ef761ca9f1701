#include <holdfast/base/future.h>

#include <holdfast/base/executor.h>

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace holdfast {
namespace {

Failure failure(Code code, std::string message) { return {.code = code, .message = std::move(message)}; }

TEST(FutureTest, EmptyOnesAreErrorsOfTheCaller) {
  Future<int> future;
  EXPECT_FALSE(future.valid());
  EXPECT_THROW((void)future.ready(), InvalidArgument);
  EXPECT_THROW(future.get(), InvalidArgument);
  EXPECT_THROW(future.cancel(), InvalidArgument);
  Promise<int> promise;
  Promise<int> moved = std::move(promise);
  EXPECT_FALSE(promise.valid());
  EXPECT_THROW(promise.set_value(1), InvalidArgument);
}

TEST(FutureTest, ValueCanBeReadAgainAndByCopies) {
  Promise<std::string> promise;
  Future<std::string> future = promise.future();
  Future<std::string> copy = future;
  EXPECT_FALSE(future.ready());
  EXPECT_FALSE(future.failed());
  EXPECT_TRUE(promise.set_value("hello"));
  EXPECT_TRUE(future.ready());
  EXPECT_FALSE(future.failed());
  EXPECT_EQ(future.get(), "hello");
  EXPECT_EQ(future.get(), "hello");
  EXPECT_EQ(copy.get(), "hello");
  EXPECT_THROW((void)future.failure(), InvalidArgument);
}

TEST(FutureTest, FirstCompletionWins) {
  Promise<int> promise;
  Future<int> future = promise.future();
  EXPECT_TRUE(promise.set_value(1));
  EXPECT_FALSE(promise.set_value(2));
  EXPECT_FALSE(promise.set_failure(failure(Code::timeout, "late")));
  EXPECT_FALSE(promise.set_exception(std::make_exception_ptr(1)));
  EXPECT_FALSE(future.cancel());
  EXPECT_EQ(future.get(), 1);
}

TEST(FutureTest, VoidWorks) {
  Promise<void> promise;
  Future<void> future = promise.future();
  EXPECT_FALSE(future.wait_for(Duration(0)));
  EXPECT_TRUE(promise.set_value());
  EXPECT_TRUE(future.wait_for(Duration(0)));
  future.get();
  make_ready_future().get();
}

TEST(FutureTest, MoveOnlyIsMovedOutOnce) {
  Future<std::unique_ptr<int>> future = make_ready_future(std::make_unique<int>(4));
  EXPECT_EQ(*future.get(), 4);
  EXPECT_THROW(future.get(), InvalidArgument);
}

TEST(FutureTest, TheLastHandleMovesInsteadOfCopying) {
  auto value = std::make_shared<int>(1);
  std::vector<std::shared_ptr<int>> values{value};
  Future<std::vector<std::shared_ptr<int>>> future = make_ready_future(values);
  const std::shared_ptr<int>* address = future.state()->value().data();
  Future<std::vector<std::shared_ptr<int>>> other = future;
  EXPECT_NE(std::move(future).get().data(), address);  // `other` may still read it
  future = Future<std::vector<std::shared_ptr<int>>>();
  const std::vector<std::shared_ptr<int>> moved = std::move(other).get();
  EXPECT_EQ(moved.data(), address);
}

TEST(FutureTest, TakeMovesAndLaterReadsSaySo) {
  Future<std::string> future = make_ready_future(std::string("x"));
  Future<std::string> other = future;
  EXPECT_EQ(future.take(), "x");
  EXPECT_THROW(other.get(), InvalidArgument);
  EXPECT_THROW(other.take(), InvalidArgument);
}

TEST(FutureTest, FailuresKeepTheirCode) {
  Future<int> future = make_failed_future<int>(failure(Code::timeout, "too slow"));
  EXPECT_TRUE(future.ready());
  EXPECT_TRUE(future.failed());
  EXPECT_EQ(future.failure().code, Code::timeout);
  EXPECT_EQ(future.failure().message, "too slow");
  EXPECT_THROW(future.get(), Timeout);
  EXPECT_THROW(future.take(), Timeout);
  EXPECT_THROW(future.get(), Timeout);
}

TEST(FutureTest, ExceptionsComeBackAsThemselves) {
  Promise<int> promise;
  promise.set_exception(std::make_exception_ptr(std::out_of_range("7")));
  EXPECT_THROW(promise.future().get(), std::out_of_range);
  EXPECT_EQ(promise.future().failure().code, Code::remote_error);
  EXPECT_EQ(promise.future().failure().type, "std::out_of_range");
}

TEST(FutureTest, AValueWhoseCopyThrowsFailsTheFuture) {
  struct Bad {
    Bad() = default;
    Bad(const Bad&) { throw std::runtime_error("no copies"); }
  };
  Promise<Bad> promise;
  const Bad bad;
  EXPECT_TRUE(promise.set_value(bad));
  EXPECT_TRUE(promise.future().failed());
  EXPECT_EQ(promise.future().failure().message, "no copies");
}

TEST(FutureTest, DroppedPromiseCancels) {
  Future<int> future;
  {
    Promise<int> promise;
    future = promise.future();
    Promise<int> moved = std::move(promise);
    EXPECT_FALSE(future.ready());
  }
  EXPECT_THROW(future.get(), Cancelled);
  EXPECT_EQ(future.failure().message, "the promise was dropped");
  Promise<int> promise;
  future = promise.future();
  promise = Promise<int>();
  EXPECT_TRUE(future.failed());
}

TEST(FutureTest, CancelRunsTheHookOnce) {
  Promise<int> promise;
  int hooks = 0;
  promise.on_cancel([&] { ++hooks; });
  Future<int> future = promise.future();
  EXPECT_TRUE(future.cancel());
  EXPECT_FALSE(future.cancel());
  EXPECT_EQ(hooks, 1);
  EXPECT_THROW(future.get(), Cancelled);
  EXPECT_EQ(future.failure().message, "cancelled by the caller");
  EXPECT_FALSE(promise.set_value(1));
  EXPECT_TRUE(promise.ready());
}

TEST(FutureTest, HookThatComesLateRunsAtOnceOrIsDropped) {
  Promise<int> cancelled;
  cancelled.future().cancel();
  int hooks = 0;
  cancelled.on_cancel([&] { ++hooks; });
  EXPECT_EQ(hooks, 1);
  Promise<int> completed;
  completed.set_value(1);
  completed.on_cancel([&] { ++hooks; });
  EXPECT_EQ(hooks, 1);
}

TEST(FutureTest, HookIsDestroyedAtCompletionAndReplacedByTheNext) {
  auto alive = std::make_shared<int>(0);
  Promise<int> promise;
  promise.on_cancel([alive] { ++*alive; });
  promise.on_cancel([alive] { *alive += 10; });
  EXPECT_EQ(alive.use_count(), 2);
  promise.set_value(1);
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_EQ(*alive, 0);
  Promise<int> other;
  other.on_cancel([alive] { ++*alive; });
  other.on_cancel([alive] { *alive += 10; });
  other.future().cancel();
  EXPECT_EQ(*alive, 10);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(FutureTest, AHookThatThrowsIsLogged) {
  Promise<int> promise;
  promise.on_cancel([] { throw std::runtime_error("expected by the test"); });
  EXPECT_TRUE(promise.future().cancel());
}

TEST(ThenTest, ValueVoidAndFutureResults) {
  Promise<int> promise;
  std::string seen;
  Future<std::string> text = promise.future().then([](int x) { return std::to_string(x); });
  Future<void> nothing = text.then([&](const std::string& s) { seen = s; });
  Future<int> flat = nothing.then([] { return make_ready_future(9); });
  EXPECT_FALSE(flat.ready());
  promise.set_value(5);
  EXPECT_EQ(text.get(), "5");
  EXPECT_EQ(seen, "5");
  EXPECT_EQ(flat.get(), 9);
}

TEST(ThenTest, GenericLambdasGetTheValue) {
  EXPECT_EQ(make_ready_future(1).then([](auto x) { return x + 1; }).get(), 2);
}

TEST(ThenTest, MoveOnlyThroughAChain) {
  Future<std::unique_ptr<int>> future = make_ready_future(std::make_unique<int>(1)).then([](std::unique_ptr<int> p) {
    ++*p;
    return p;
  });
  EXPECT_EQ(*future.get(), 2);
}

TEST(ThenTest, RvalueParametersGetACopy) {
  Future<std::string> source = make_ready_future(std::string("a"));
  EXPECT_EQ(source.then([](std::string&& s) { return std::move(s) + "b"; }).get(), "ab");
  EXPECT_EQ(source.get(), "a");
}

TEST(ThenTest, FailurePassesByAValueFunction) {
  bool called = false;
  Future<int> future = make_failed_future<int>(failure(Code::overloaded, "full")).then([&](int x) {
    called = true;
    return x;
  });
  EXPECT_THROW(future.get(), Overloaded);
  EXPECT_FALSE(called);
}

TEST(ThenTest, FutureFunctionSeesFailure) {
  Future<int> future = make_failed_future<int>(failure(Code::overloaded, "full")).then([](Future<int> f) {
    return f.failed() ? -1 : f.get();
  });
  EXPECT_EQ(future.get(), -1);
  Future<int> good = make_ready_future().then([](Future<void> f) {
    f.get();
    return 3;
  });
  EXPECT_EQ(good.get(), 3);
}

TEST(ThenTest, AThrowFailsTheResultWithTheOriginal) {
  Future<int> future = make_ready_future(1).then([](int) -> int { throw std::out_of_range("x"); });
  Future<int> next = future.then([](int x) { return x; });
  EXPECT_THROW(next.get(), std::out_of_range);
}

TEST(ThenTest, FlatteningWaitsForTheInnerFuture) {
  Promise<void> outer;
  Promise<int> inner;
  Future<int> future = outer.future().then([&] { return inner.future(); });
  outer.set_value();
  EXPECT_FALSE(future.ready());
  inner.set_value(3);
  EXPECT_EQ(future.get(), 3);
}

TEST(ThenTest, FlatteningAnEmptyFutureFails) {
  EXPECT_THROW(make_ready_future().then([] { return Future<int>(); }).get(), InvalidArgument);
}

TEST(ThenTest, RunsInTheOrderOfAdding) {
  Promise<int> promise;
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) (void)promise.future().then([&order, i](int) { order.push_back(i); });
  promise.set_value(0);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(ThenTest, CancelReachesTheSource) {
  Promise<int> promise;
  int hooks = 0;
  bool called = false;
  promise.on_cancel([&] { ++hooks; });
  Future<int> last = promise.future().then([&](int x) {
    called = true;
    return x;
  });
  Future<int> end = last.then([](int x) { return x; });
  EXPECT_TRUE(end.cancel());
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(promise.ready());
  EXPECT_TRUE(last.failed());
  EXPECT_FALSE(called);
}

TEST(ThenTest, CancelReachesTheInnerFuture) {
  Promise<void> outer;
  Promise<int> inner;
  int hooks = 0;
  inner.on_cancel([&] { ++hooks; });
  Future<int> future = outer.future().then([&] { return inner.future(); });
  outer.set_value();
  EXPECT_TRUE(future.cancel());
  EXPECT_EQ(hooks, 1);
  EXPECT_TRUE(inner.ready());
}

TEST(ThenTest, AmbientOfThenIsInstalled) {
  int worker = 0;
  Promise<int> promise;
  void* seen = nullptr;
  Future<void> future;
  {
    AmbientScope scope(Ambient{.worker = &worker});
    future = promise.future().then([&](int) { seen = current_ambient().worker; });
  }
  promise.set_value(1);
  EXPECT_EQ(seen, &worker);
  EXPECT_EQ(current_ambient().worker, nullptr);
}

TEST(ThenTest, CapturesAreGoneBeforeTheResultIsSeen) {
  auto alive = std::make_shared<int>(0);
  Promise<int> promise;
  long during = 0;
  long after = 0;
  Future<int> result = promise.future().then([alive, &during](int x) {
    during = alive.use_count();
    return x;
  });
  Future<void> watch = result.then([&, weak = std::weak_ptr(alive)](int) { after = weak.use_count(); });
  EXPECT_EQ(alive.use_count(), 2);
  promise.set_value(1);
  EXPECT_EQ(during, 2);
  EXPECT_EQ(after, 1);
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(ThenTest, CapturesGoOnFailureCancelAndDrop) {
  auto alive = std::make_shared<int>(0);
  {
    Promise<int> promise;
    Future<int> result = promise.future().then([alive](int x) { return x; });
    promise.set_failure(failure(Code::timeout, ""));
    EXPECT_EQ(alive.use_count(), 1);
  }
  {
    Promise<int> promise;
    Future<int> result = promise.future().then([alive](int x) { return x; });
    result.cancel();
    EXPECT_EQ(alive.use_count(), 1);
  }
  {
    Promise<int> promise;
    (void)promise.future().then([alive](int x) { return x; });
    EXPECT_EQ(alive.use_count(), 2);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST(ThenTest, AContinuationMayDestroyThePromise) {
  auto promise = std::make_unique<Promise<int>>();
  Future<void> done = promise->future().then([&](int) { promise.reset(); });
  promise->set_value(1);
  EXPECT_TRUE(done.ready());
  EXPECT_EQ(promise, nullptr);
}

TEST(ThenTest, LongChainsDoNotUseUpTheStack) {
  constexpr int kLength = 100'000;
  {
    Promise<int> promise;
    Future<int> future = promise.future();
    for (int i = 0; i < kLength; ++i) future = future.then([](int x) { return x + 1; });
    promise.set_value(0);
    EXPECT_EQ(future.get(), kLength);
  }
  {
    Promise<int> promise;
    Future<int> future = promise.future();
    for (int i = 0; i < kLength; ++i) future = future.then([](int x) { return x + 1; });
    EXPECT_TRUE(future.cancel());
    EXPECT_TRUE(promise.ready());
  }
  {
    Future<int> future;
    {
      Promise<int> promise;
      future = promise.future();
      for (int i = 0; i < kLength; ++i) future = future.then([](int x) { return x + 1; });
    }
    EXPECT_TRUE(future.failed());
  }
}

// A continuation deep in a chain, where further ones are put off, waits for one of those.
TEST(ThenTest, WaitingInAContinuationRunsWhatWasPutOff) {
  Promise<int> promise;
  Future<int> future = promise.future();
  int got = 0;
  for (int i = 0; i < 200; ++i) {
    future = future.then([&got](int x) {
      Promise<int> inner;
      Future<int> result = inner.future().then([](int y) { return y + 1; });
      inner.set_value(x);
      got = result.get();
      return got;
    });
  }
  promise.set_value(0);
  EXPECT_EQ(future.get(), 200);
  EXPECT_EQ(got, 200);
}

TEST(ThenTest, ContinuationsArePostedOnTheExecutor) {
  Executor executor({.threads = 1});
  Promise<int> promise(&executor);
  bool first = false;
  bool second = false;
  Future<int> future = promise.future().then([&](int x) {
    first = executor.on_executor_thread();
    return x;
  });
  promise.set_value(3);
  EXPECT_EQ(future.get(), 3);
  EXPECT_TRUE(first);
  // Ready already, and inherited by the future that then() made.
  EXPECT_EQ(future
                .then([&](int x) {
                  second = executor.on_executor_thread();
                  return x + 1;
                })
                .get(),
            4);
  EXPECT_TRUE(second);
}

TEST(ThenTest, AStoppedExecutorCancels) {
  auto alive = std::make_shared<int>(0);
  Executor executor({.threads = 1});
  Promise<int> promise(&executor);
  Future<int> future = promise.future().then([alive](int x) { return x; });
  executor.stop();
  promise.set_value(3);
  EXPECT_THROW(future.get(), Cancelled);
  EXPECT_EQ(alive.use_count(), 1);
}

}  // namespace
}  // namespace holdfast
