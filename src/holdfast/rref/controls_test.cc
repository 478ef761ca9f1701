// What the reference protocol has to say, gathered: how many together, how long it waits, what goes first.
#include <holdfast/rref/rref_test_support.h>

namespace holdfast {
namespace {

using test::worker_info;
using namespace std::chrono_literals;
using Said = std::vector<std::string>;

class ControlsTest : public testing::Test {
 protected:
  ForkId fork(uint64_t counter) { return {worker_info(9)->id(), counter}; }
  ForkRequest request(uint64_t counter) { return {.rref = {worker_info(8)->id(), counter}, .fork = fork(counter)}; }
  Said at(Time time) {
    step_.now = time;
    controls_.on_time(step_);
    return post_.take();
  }

  test::RecordedPost post_;
  Controls controls_{post_};
  const Time start_ = Time{} + 1h;
  Step step_{start_};
  const WorkerPtr one_ = worker_info(1);
  const WorkerPtr two_ = worker_info(2);
};

TEST_F(ControlsTest, WordsWaitForCompanyAndThenGoInOneMessage) {
  EXPECT_TRUE(controls_.empty());
  EXPECT_EQ(controls_.next_wakeup(), kNever);
  controls_.accept(step_, one_, fork(1));
  EXPECT_FALSE(controls_.empty());
  EXPECT_EQ(controls_.next_wakeup(), start_ + 1ms);
  step_.now = start_ + 500us;
  controls_.accept(step_, one_, fork(2));
  controls_.accept(step_, two_, fork(3));
  EXPECT_EQ(controls_.next_wakeup(), start_ + 1ms) << "the first one's time counts, for all";
  EXPECT_EQ(at(start_ + 1ms - 1ns), Said{});
  EXPECT_EQ(at(start_ + 1ms), (Said{"ACCEPT 1 to worker1: 9.19.1 9.19.2", "ACCEPT 1 to worker2: 9.19.3"}));
  EXPECT_TRUE(controls_.empty());
  EXPECT_EQ(controls_.next_wakeup(), kNever);
  EXPECT_EQ(at(start_ + 1h), Said{});
  EXPECT_EQ(controls_.messages_sent(), 2u);
}

TEST_F(ControlsTest, EachPeerHasItsNumbersAndTheirOrderIsThatOfTheFirstWord) {
  controls_.user_delete(step_, two_, fork(1));
  controls_.accept(step_, one_, fork(2));
  controls_.child_accept(step_, two_, fork(3));
  controls_.request(step_, one_, request(4));
  controls_.accept(step_, two_, fork(5));
  EXPECT_EQ(at(start_ + 1ms), (Said{"ACCEPT 1 to worker2: 9.19.5", "CHILD_ACCEPT 2 to worker2: 9.19.3",
                                    "USER_DELETE 3 to worker2: 9.19.1", "FORK_REQUEST 1 to worker1: 8.18.4/9.19.4",
                                    "ACCEPT 2 to worker1: 9.19.2"}));
  controls_.accept(step_, one_, fork(6));
  EXPECT_EQ(at(start_ + 1s), Said{"ACCEPT 3 to worker1: 9.19.6"});
}

TEST_F(ControlsTest, SixtyFourGoAtOnce) {
  for (uint64_t i = 1; i < 64; ++i) controls_.user_delete(step_, one_, fork(i));
  controls_.accept(step_, one_, fork(100));
  controls_.accept(step_, two_, fork(101));
  EXPECT_EQ(post_.take(), Said{});
  controls_.user_delete(step_, one_, fork(64));
  const Said said = post_.take();
  ASSERT_EQ(said.size(), 2u) << "with everything else for that peer";
  EXPECT_EQ(said[0], "ACCEPT 1 to worker1: 9.19.100");
  EXPECT_TRUE(said[1].starts_with("USER_DELETE 2 to worker1: 9.19.1 9.19.2 "));
  EXPECT_TRUE(said[1].ends_with(" 9.19.63 9.19.64"));
  EXPECT_FALSE(controls_.empty()) << "the other peer's words still wait";
  EXPECT_EQ(at(start_ + 1ms), Said{"ACCEPT 1 to worker2: 9.19.101"});
}

TEST_F(ControlsTest, OnlyRequestsGoBeforeOtherMessages) {
  controls_.accept(step_, one_, fork(1));
  controls_.before_send(step_, one_->id());
  EXPECT_EQ(post_.take(), Said{}) << "an accept can wait";
  controls_.request(step_, one_, request(2));
  controls_.request(step_, two_, request(3));
  controls_.before_send(step_, worker_info(3)->id());
  EXPECT_EQ(post_.take(), Said{}) << "to somebody else";
  controls_.before_send(step_, one_->id());
  EXPECT_EQ(post_.take(), Said{"FORK_REQUEST 1 to worker1: 8.18.2/9.19.2"});
  controls_.before_send(step_, one_->id());
  EXPECT_EQ(post_.take(), Said{}) << "once";
  EXPECT_EQ(at(start_ + 1ms), (Said{"ACCEPT 2 to worker1: 9.19.1", "FORK_REQUEST 1 to worker2: 8.18.3/9.19.3"}));
}

TEST_F(ControlsTest, ALostPeerIsForgotten) {
  controls_.forget(one_->id());
  controls_.request(step_, one_, request(1));
  controls_.accept(step_, two_, fork(2));
  EXPECT_TRUE(controls_.is_new(one_->id(), 5));
  controls_.forget(one_->id());
  EXPECT_FALSE(controls_.empty());
  EXPECT_EQ(at(start_ + 1ms), Said{"ACCEPT 1 to worker2: 9.19.2"});
  EXPECT_TRUE(controls_.empty());
  controls_.request(step_, two_, request(3));
  controls_.before_send(step_, two_->id());
  EXPECT_EQ(post_.take(), Said{"FORK_REQUEST 2 to worker2: 8.18.3/9.19.3"});
  controls_.forget(two_->id());
  EXPECT_TRUE(controls_.empty());
  EXPECT_EQ(controls_.next_wakeup(), kNever);
}

TEST_F(ControlsTest, ANumberThatIsNotHigherIsARepetition) {
  EXPECT_FALSE(controls_.is_new(one_->id(), 0)) << "they count from 1";
  EXPECT_TRUE(controls_.is_new(one_->id(), 1));
  EXPECT_FALSE(controls_.is_new(one_->id(), 1));
  EXPECT_TRUE(controls_.is_new(one_->id(), 3));
  EXPECT_FALSE(controls_.is_new(one_->id(), 2));
  EXPECT_TRUE(controls_.is_new(two_->id(), 1)) << "each peer's own";
  EXPECT_TRUE(controls_.is_new(one_->id(), UINT64_MAX));
  EXPECT_FALSE(controls_.is_new(one_->id(), UINT64_MAX));
}

TEST_F(ControlsTest, NumbersReceivedAndSentAreNotOne) {
  EXPECT_TRUE(controls_.is_new(one_->id(), 7));
  controls_.accept(step_, one_, fork(1));
  EXPECT_EQ(at(start_ + 1ms), Said{"ACCEPT 1 to worker1: 9.19.1"});
  EXPECT_FALSE(controls_.is_new(one_->id(), 7));
}

}  // namespace
}  // namespace holdfast
