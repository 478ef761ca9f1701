// Who does the runs of a context: the thread that waits for its pass, or nobody here.
#include <holdfast/autograd/run_queue.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace holdfast::autograd {
namespace {

class RecordedRun final : public Work {
 public:
  explicit RecordedRun(std::function<void()> run) : run_(std::move(run)) {}
  void run() override { run_(); }

 private:
  const std::function<void()> run_;
};

std::shared_ptr<Work> make_run(std::function<void()> run) { return std::make_shared<RecordedRun>(std::move(run)); }

TEST(RunQueue, TakesNothingWhileNobodyWaits) {
  RunQueue queue;
  EXPECT_FALSE(queue.offer(make_run([] {})));
  ASSERT_TRUE(queue.enter());
  EXPECT_TRUE(queue.offer(make_run([] {})));
  EXPECT_EQ(queue.leave().size(), 1u);
  EXPECT_FALSE(queue.offer(make_run([] {})));
}

TEST(RunQueue, OneThreadOnly) {
  RunQueue queue;
  ASSERT_TRUE(queue.enter());
  EXPECT_FALSE(queue.enter());
  queue.leave();
  EXPECT_TRUE(queue.enter());
}

TEST(RunQueue, RunsInOrderOnTheThreadThatWaits) {
  RunQueue queue;
  Promise<void> pass;
  Future<void> ended = pass.future();
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  const auto add = [&](int number) {
    order.push_back(number);
    threads.push_back(std::this_thread::get_id());
  };
  ASSERT_TRUE(queue.enter());
  queue.offer(make_run([&] { add(1); }));
  queue.offer(make_run([&] {
    add(2);
    queue.offer(make_run([&] {
      add(3);
      pass.set_value();
    }));
  }));
  queue.run_until_ready(*ended.state(), nullptr);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  for (const std::thread::id thread : threads) EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_TRUE(queue.leave().empty());
}

TEST(RunQueue, WhatIsLeftWhenThePassEndsIsReturned) {
  RunQueue queue;
  Promise<void> pass;
  Future<void> ended = pass.future();
  ASSERT_TRUE(queue.enter());
  bool late_ran = false;
  queue.offer(make_run([&] { pass.set_value(); }));
  queue.offer(make_run([&] { late_ran = true; }));
  queue.run_until_ready(*ended.state(), nullptr);
  EXPECT_FALSE(late_ran);
  EXPECT_EQ(queue.leave().size(), 1u);
}

// Offers, ends and nudges of another thread are never slept through.
TEST(RunQueue, WorkAndTheEndComeFromOtherThreads) {
  constexpr int kPasses = 500;
  RunQueue queue;
  for (int i = 0; i < kPasses; ++i) {
    Promise<void> pass;
    Future<void> ended = pass.future();
    bool ran = false;
    ASSERT_TRUE(queue.enter());
    std::thread other([&queue, &ran, pass = std::move(pass)]() mutable {
      queue.offer(make_run([&ran] { ran = true; }));
      if (!pass.ready()) pass.set_value();
      queue.nudge();
    });
    queue.run_until_ready(*ended.state(), nullptr);
    other.join();
    for (const std::shared_ptr<Work>& left : queue.leave()) left->run();
    EXPECT_TRUE(ran);
  }
}

// Helps by doing what a network thread would do: a message brings a run.
class BringsARun final : public WaitHelper {
 public:
  explicit BringsARun(std::function<void()> bring) : bring_(std::move(bring)) {}
  void help(FutureStateBase&, Time) override { bring_(); }

 private:
  const std::function<void()> bring_;
};

TEST(RunQueue, TheThreadHelpsWhileThereIsNothingToDo) {
  RunQueue queue;
  Promise<void> pass;
  Future<void> ended = pass.future();
  ASSERT_TRUE(queue.enter());
  const auto helper = std::make_shared<BringsARun>([&] { queue.offer(make_run([&] { pass.set_value(); })); });
  queue.run_until_ready(*ended.state(), helper);
  EXPECT_TRUE(ended.ready());
}

}  // namespace
}  // namespace holdfast::autograd
