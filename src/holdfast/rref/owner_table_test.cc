// The objects of one worker: each row of the owner's states in docs/rref.md, and what is freed when.
#include <holdfast/rref/owner_table.h>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

WorkerId worker(uint32_t rank) { return {{rank}, {rank + 10}}; }

// Work that only counts its runs.
class Waiter final : public Work {
 public:
  explicit Waiter(std::vector<int>& ran, int number) : ran_(ran), number_(number) {}
  void run() override { ran_.push_back(number_); }

 private:
  std::vector<int>& ran_;
  const int number_;
};

class OwnerTableTest : public testing::Test {
 protected:
  // A value that writes down its end.
  struct Tracked {
    Tracked(std::vector<int>& ended, int number) : ended(ended), number(number) {}
    ~Tracked() { ended.push_back(number); }
    std::vector<int>& ended;
    const int number;
  };
  KeptValue tracked(int number, bool trivial = false) {
    return {.object = std::make_shared<Tracked>(ended_, number), .type = &typeid(Tracked), .trivial = trivial};
  }
  RRefId id(uint64_t counter, uint32_t creator = 1) { return {worker(creator), counter}; }
  ForkId fork(uint64_t counter, uint32_t maker = 1) { return {worker(maker), counter}; }
  Owned& pending(uint64_t counter, Time deadline = kNever) {
    Owned& object = table_.at(id(counter));
    table_.add_fork(object, fork(counter), worker(1));
    table_.begin(object, deadline, {.place = "here", .function = 0, .signature = 0, .caller = nullptr});
    return object;
  }
  Owned& ready(uint64_t counter) {
    Owned& object = pending(counter);
    table_.set_value(step_, object, tracked(static_cast<int>(counter)));
    return object;
  }
  void wait(Owned& object, int number) { object.waiting.push_back(std::make_shared<Waiter>(ran_, number)); }
  // Does what the step says, as a driver does: outside the table.
  void perform() {
    std::vector<std::shared_ptr<Work>> work = std::move(step_.work);
    step_.clear();
    for (auto& item : work) item->run();
  }

  std::vector<int> ended_;  // outlives the values
  std::vector<int> ran_;
  OwnerTable table_;
  Time now_ = Time{} + 1h;
  Step step_{now_};
};

TEST_F(OwnerTableTest, AnObjectThatNobodyHasSaidHowToMakeIsExpected) {
  EXPECT_EQ(table_.find(id(1)), nullptr);
  Owned& object = table_.at(id(1));
  EXPECT_EQ(object.state, Owned::State::expected);
  EXPECT_FALSE(object.settled());
  EXPECT_EQ(&table_.at(id(1)), &object) << "the same one";
  EXPECT_EQ(table_.find(id(1)), &object);
  EXPECT_EQ(table_.next_wakeup(), kNever);
}

TEST_F(OwnerTableTest, ExpectedPendingReady) {
  Owned& object = pending(1);
  EXPECT_EQ(object.state, Owned::State::pending);
  EXPECT_FALSE(object.settled());
  EXPECT_EQ(object.origin.text(), "here");
  wait(object, 1);
  wait(object, 2);
  table_.set_value(step_, object, tracked(1));
  EXPECT_EQ(object.state, Owned::State::ready);
  EXPECT_TRUE(ran_.empty()) << "what waits runs outside";
  perform();
  EXPECT_EQ(ran_, (std::vector<int>{1, 2})) << "in the order in which it came";
  EXPECT_TRUE(object.waiting.empty());
  EXPECT_TRUE(ended_.empty());
}

TEST_F(OwnerTableTest, AFailureIsWhatEverybodyGets) {
  Owned& object = pending(1, now_ + 1s);
  wait(object, 1);
  table_.set_failure(step_, object, {.code = Code::remote_error, .message = "first"});
  EXPECT_EQ(object.state, Owned::State::failed);
  EXPECT_EQ(table_.next_wakeup(), kNever) << "its time does not matter any more";
  table_.set_failure(step_, object, {.code = Code::timeout, .message = "second"});
  EXPECT_EQ(object.failure->message, "first");
  perform();
  EXPECT_EQ(ran_, std::vector<int>{1});
}

TEST_F(OwnerTableTest, AnExpectedObjectMayFail) {
  Owned& object = table_.at(id(1));
  table_.add_fork(object, fork(1), worker(2));
  table_.set_failure(step_, object, {.code = Code::cancelled, .message = "never came"});
  EXPECT_EQ(object.state, Owned::State::failed);
}

TEST_F(OwnerTableTest, ALateValueIsDestroyedOnceAndOutside) {
  Owned& object = pending(1);
  table_.set_failure(step_, object, {.code = Code::timeout});
  table_.set_value(step_, object, tracked(7));
  EXPECT_EQ(object.state, Owned::State::failed);
  EXPECT_EQ(object.value.object, nullptr);
  EXPECT_TRUE(ended_.empty()) << "not during the call";
  perform();
  EXPECT_EQ(ended_, std::vector<int>{7});
}

TEST_F(OwnerTableTest, ASecondValueIsDestroyedAndTheFirstStays) {
  Owned& object = ready(1);
  table_.set_value(step_, object, tracked(8));
  perform();
  EXPECT_EQ(ended_, std::vector<int>{8});
  EXPECT_EQ(object.state, Owned::State::ready);
  EXPECT_NE(object.value.object, nullptr);
}

TEST_F(OwnerTableTest, ADeadlineThatPassesIsATimeout) {
  pending(2, now_ + 2s);
  Owned& first = pending(1, now_ + 1s);
  wait(first, 1);
  EXPECT_EQ(table_.next_wakeup(), now_ + 1s);
  step_.now = now_ + 1s - 1ns;
  table_.on_time(step_);
  EXPECT_EQ(first.state, Owned::State::pending);
  step_.now = now_ + 1s;
  table_.on_time(step_);
  EXPECT_EQ(first.state, Owned::State::failed);
  EXPECT_EQ(first.failure->code, Code::timeout);
  EXPECT_EQ(table_.find(id(2))->state, Owned::State::pending);
  EXPECT_EQ(table_.next_wakeup(), now_ + 2s);
  perform();
  EXPECT_EQ(ran_, std::vector<int>{1});
  // Freed afterwards, its timer must not be removed twice.
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_EQ(table_.find(id(1)), nullptr);
}

TEST_F(OwnerTableTest, AnObjectThatIsFreedNeedsNoTimer) {
  Owned& object = pending(1, now_ + 1s);
  (void)object;
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_EQ(table_.next_wakeup(), kNever);
  step_.now = now_ + 2s;
  table_.on_time(step_);
  EXPECT_TRUE(table_.objects().empty());
}

TEST_F(OwnerTableTest, FreedWhenTheLastForkAndTheLastHandleAreGone) {
  Owned& object = ready(1);
  object.handles = 2;
  EXPECT_TRUE(table_.add_fork(object, fork(2), worker(2)));
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_TRUE(table_.remove_fork(step_, fork(2), worker(2)));
  EXPECT_NE(table_.find(id(1)), nullptr) << "handles are left";
  table_.release(step_, object);
  EXPECT_NE(table_.find(id(1)), nullptr);
  table_.release(step_, object);
  EXPECT_EQ(table_.find(id(1)), nullptr);
  EXPECT_TRUE(ended_.empty()) << "a user's destructor does not run under a lock";
  EXPECT_EQ(step_.work.size(), 1u) << "but on the executor";
  EXPECT_TRUE(step_.garbage.empty());
  perform();
  EXPECT_EQ(ended_, std::vector<int>{1});
  EXPECT_TRUE(table_.forks().empty());
}

TEST_F(OwnerTableTest, AValueWithoutADestructorNeedsNoThread) {
  Owned& object = pending(1);
  table_.set_value(step_, object, tracked(1, true));
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_TRUE(step_.work.empty());
  EXPECT_EQ(step_.garbage.size(), 1u);
  EXPECT_TRUE(ended_.empty());
  perform();
  EXPECT_EQ(ended_, std::vector<int>{1});
}

TEST_F(OwnerTableTest, AHandleAlsoHoldsWithoutForks) {
  Owned& object = ready(1);
  object.handles = 1;
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_NE(table_.find(id(1)), nullptr);
  EXPECT_TRUE(table_.add_fork(object, fork(2), worker(2)));
  table_.release(step_, object);
  EXPECT_NE(table_.find(id(1)), nullptr) << "sent on meanwhile";
}

TEST_F(OwnerTableTest, AFailedObjectIsForgottenLikeAnyOther) {
  Owned& object = pending(1);
  table_.set_failure(step_, object, {.code = Code::remote_error});
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_TRUE(table_.objects().empty());
  perform();
  EXPECT_TRUE(ended_.empty());
}

TEST_F(OwnerTableTest, AForkIsEnteredOnce) {
  Owned& one = ready(1);
  Owned& two = ready(2);
  EXPECT_FALSE(table_.add_fork(one, fork(1), worker(1)));
  EXPECT_FALSE(table_.add_fork(two, fork(1), worker(2))) << "for whatever object";
  EXPECT_EQ(one.forks, 1u);
  EXPECT_EQ(two.forks, 1u);
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_EQ(table_.find(id(1)), nullptr);
  EXPECT_NE(table_.find(id(2)), nullptr);
}

TEST_F(OwnerTableTest, AnUnknownDeletionAndAnothersIsDropped) {
  ready(1);
  EXPECT_FALSE(table_.remove_fork(step_, fork(9), worker(1))) << "unknown";
  EXPECT_FALSE(table_.remove_fork(step_, fork(1), worker(2))) << "another's";
  EXPECT_EQ(table_.objects().size(), 1u);
  EXPECT_TRUE(table_.remove_fork(step_, fork(1), worker(1)));
  EXPECT_FALSE(table_.remove_fork(step_, fork(1), worker(1))) << "repeated";
  perform();
  EXPECT_EQ(ended_, std::vector<int>{1});
}

TEST_F(OwnerTableTest, ALostCreatorFailsOnlyWhatItWasToCreate) {
  Owned& expected = table_.at(id(1, 1));
  table_.add_fork(expected, fork(11, 3), worker(3));
  Owned& of_another = table_.at(id(1, 2));
  table_.add_fork(of_another, fork(12, 3), worker(3));
  Owned& begun = pending(2);
  Owned& there = ready(3);
  wait(expected, 1);
  table_.on_creator_lost(step_, worker(1), "worker1");
  EXPECT_EQ(expected.state, Owned::State::failed);
  EXPECT_EQ(expected.failure->code, Code::worker_lost);
  EXPECT_NE(expected.failure->message.find("worker1"), std::string::npos);
  EXPECT_EQ(of_another.state, Owned::State::expected);
  EXPECT_EQ(begun.state, Owned::State::pending) << "it runs on: others may refer to the result";
  EXPECT_EQ(there.state, Owned::State::ready);
  perform();
  EXPECT_EQ(ran_, std::vector<int>{1});
  EXPECT_EQ(table_.objects().size(), 4u) << "its holders are there still";
}

TEST_F(OwnerTableTest, WaitersOfALostCreatorRunInTheOrderOfTheObjects) {
  for (int i : {5, 3, 9, 1, 7}) {
    Owned& object = table_.at(id(static_cast<uint64_t>(i)));
    table_.add_fork(object, fork(static_cast<uint64_t>(i)), worker(2));
    wait(object, i);
  }
  table_.on_creator_lost(step_, worker(1), "worker1");
  perform();
  EXPECT_EQ(ran_, (std::vector<int>{1, 3, 5, 7, 9}));
}

TEST_F(OwnerTableTest, ForksOfLostWorkersGoTogetherInOneOrder) {
  for (int i = 1; i <= 40; ++i) {
    Owned& object = ready(static_cast<uint64_t>(i));
    if (i % 4 == 0) table_.add_fork(object, fork(100 + static_cast<uint64_t>(i)), worker(3));
  }
  table_.remove_forks_of(step_, {worker(1), worker(2)});
  EXPECT_TRUE(ended_.empty());
  perform();
  std::vector<int> expected;
  for (int i = 1; i <= 40; ++i) {
    if (i % 4 != 0) expected.push_back(i);
  }
  EXPECT_EQ(ended_, expected) << "all but those that another holds, in the same order in every run";
  EXPECT_EQ(table_.objects().size(), 10u);
  EXPECT_EQ(table_.forks().size(), 10u);
}

TEST_F(OwnerTableTest, ClearingDestroysEveryValueOnceAndRunsNothingMore) {
  ready(2);
  ready(1);
  Owned& waited_for = pending(3, now_ + 1s);
  wait(waited_for, 1);
  std::weak_ptr<Work> work = waited_for.waiting[0];
  table_.clear(step_);
  EXPECT_TRUE(table_.objects().empty());
  EXPECT_TRUE(table_.forks().empty());
  EXPECT_EQ(table_.next_wakeup(), kNever);
  EXPECT_TRUE(ended_.empty());
  EXPECT_FALSE(work.expired()) << "what waits is not destroyed under the lock either";
  perform();
  EXPECT_EQ(ended_, (std::vector<int>{1, 2}));
  EXPECT_TRUE(work.expired());
  EXPECT_TRUE(ran_.empty());
}

TEST_F(OwnerTableTest, TheOriginNamesFunctionAndCaller) {
  const auto caller =
      std::make_shared<const WorkerInfo>(WorkerInfo{.name = "ann", .rank = {1}, .incarnation = {11}, .address = ""});
  const Origin unknown{.place = {}, .function = 1, .signature = 2, .caller = caller};
  EXPECT_EQ(unknown.text(), "a function that is not here, called by ann");
}

}  // namespace
}  // namespace holdfast
