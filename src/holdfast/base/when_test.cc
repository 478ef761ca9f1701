#include <holdfast/base/when.h>

#include <holdfast/base/executor.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {
namespace {

struct Three {
  std::vector<Promise<int>> promises = make();
  std::vector<Future<int>> futures{promises[0].future(), promises[1].future(), promises[2].future()};
  static std::vector<Promise<int>> make() {
    std::vector<Promise<int>> promises;
    for (int i = 0; i < 3; ++i) promises.emplace_back();
    return promises;
  }
};

TEST(WhenAllTest, KeepsTheOrderOfTheInputs) {
  Three three;
  Future<std::vector<int>> all = when_all(three.futures);
  three.promises[2].set_value(12);
  three.promises[0].set_value(10);
  EXPECT_FALSE(all.ready());
  three.promises[1].set_value(11);
  EXPECT_EQ(all.get(), (std::vector<int>{10, 11, 12}));
  EXPECT_EQ(three.futures[0].get(), 10);
}

TEST(WhenAllTest, EmptyIsReady) {
  EXPECT_TRUE(when_all(std::vector<Future<int>>()).get().empty());
  EXPECT_TRUE(when_all(std::vector<Future<void>>()).ready());
}

TEST(WhenAllTest, FailsAtOnceWithTheFirstFailure) {
  Three three;
  Future<std::vector<int>> all = when_all(three.futures);
  three.promises[1].set_failure({.code = Code::timeout, .message = "first"});
  EXPECT_TRUE(all.failed());
  three.promises[0].set_failure({.code = Code::corrupt, .message = "second"});
  EXPECT_THROW(all.get(), Timeout);
  EXPECT_FALSE(three.futures[2].ready());
}

TEST(WhenAllTest, CancelsAllInputs) {
  Three three;
  Future<std::vector<int>> all = when_all(three.futures);
  EXPECT_TRUE(all.cancel());
  for (Promise<int>& promise : three.promises) EXPECT_TRUE(promise.ready());
  EXPECT_THROW(all.get(), Cancelled);
}

TEST(WhenAllTest, OfVoid) {
  Promise<void> promise;
  Future<void> all = when_all(std::vector<Future<void>>{promise.future(), make_ready_future()});
  EXPECT_FALSE(all.ready());
  promise.set_value();
  all.get();
}

TEST(WhenAllTest, OfDifferentTypes) {
  Promise<std::string> promise;
  auto all = when_all(make_ready_future(1), promise.future(), make_ready_future(),
                      make_ready_future(std::make_unique<int>(4)));
  EXPECT_FALSE(all.ready());
  promise.set_value("two");
  std::tuple<int, std::string, std::monostate, std::unique_ptr<int>> values = all.get();
  EXPECT_EQ(std::get<0>(values), 1);
  EXPECT_EQ(std::get<1>(values), "two");
  EXPECT_EQ(*std::get<3>(values), 4);
}

TEST(WhenAllTest, MoveOnlyAndBool) {
  std::vector<Future<std::unique_ptr<int>>> futures;
  futures.push_back(make_ready_future(std::make_unique<int>(1)));
  EXPECT_EQ(*when_all(futures).get()[0], 1);
  EXPECT_THROW(futures[0].get(), InvalidArgument);
  EXPECT_EQ(when_all(std::vector<Future<bool>>{make_ready_future(true)}).get(), std::vector<bool>{true});
}

TEST(WhenAllTest, KeepsNothingOfTheInputs) {
  auto value = std::make_shared<int>(1);
  Future<std::vector<std::shared_ptr<int>>> all;
  {
    Promise<std::shared_ptr<int>> promise;
    all = when_all(std::vector{promise.future()});
    promise.set_value(value);
  }
  EXPECT_EQ(value.use_count(), 2);  // the one in the result
  all = {};
  EXPECT_EQ(value.use_count(), 1);
}

TEST(WhenAllTest, TheSameFutureTwice) {
  Promise<int> promise;
  Future<std::vector<int>> all = when_all(std::vector{promise.future(), promise.future()});
  promise.set_value(3);
  EXPECT_EQ(all.get(), (std::vector<int>{3, 3}));
}

TEST(WhenAnyTest, GivesTheFirstToComplete) {
  Three three;
  Future<std::pair<size_t, Future<int>>> any = when_any(three.futures);
  EXPECT_FALSE(any.ready());
  three.promises[1].set_failure({.code = Code::timeout, .message = ""});
  three.promises[0].set_value(1);
  EXPECT_EQ(any.get().first, 1u);
  EXPECT_THROW(any.get().second.get(), Timeout);
  EXPECT_FALSE(three.futures[2].ready());
}

TEST(WhenAnyTest, OfNoneIsAnError) { EXPECT_THROW(when_any(std::vector<Future<int>>()).get(), InvalidArgument); }

TEST(WhenAnyTest, CancelsAllInputs) {
  Three three;
  Future<std::pair<size_t, Future<int>>> any = when_any(three.futures);
  EXPECT_TRUE(any.cancel());
  for (Promise<int>& promise : three.promises) EXPECT_TRUE(promise.ready());
}

TEST(WhenStressTest, ManyThreadsCompleteFailAndCancel) {
  constexpr size_t kInputs = 16;
  for (int round = 0; round < 200; ++round) {
    auto alive = std::make_shared<int>(0);
    std::vector<Promise<std::shared_ptr<int>>> promises(kInputs);
    std::vector<Future<std::shared_ptr<int>>> futures;
    for (auto& promise : promises) futures.push_back(promise.future());
    auto all = when_all(futures);
    auto any = when_any(futures);
    futures.clear();
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; i < kInputs; i += 4) {
          if (round % 3 == 1 && i == 5) {
            promises[i].set_failure({.code = Code::timeout, .message = ""});
          } else {
            promises[i].set_value(alive);
          }
        }
      });
    }
    if (round % 3 == 2) threads.emplace_back([&] { all.cancel(); });
    all.wait();
    any.wait();
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(any.failed());
    if (round % 3 == 0) {
      EXPECT_EQ(all.get().size(), kInputs);
    } else if (round % 3 == 1) {
      EXPECT_TRUE(all.failed());
    }
    promises.clear();
    all = {};
    any = {};
    EXPECT_EQ(alive.use_count(), 1);
  }
}

}  // namespace
}  // namespace holdfast
