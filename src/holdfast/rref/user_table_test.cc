// The references that one worker holds to objects of others: each row of the user's states in docs/rref.md, what is
// said when, and when a loss is settled.
#include <algorithm>

#include <holdfast/rref/rref_test_support.h>

namespace holdfast {
namespace {

using test::worker_info;
using namespace std::chrono_literals;
using Said = std::vector<std::string>;

class UserTableTest : public testing::Test {
 protected:
  ForkId fork(uint64_t counter) { return {parent_->id(), counter}; }
  RRefId rref(uint64_t counter) { return {worker_info(8)->id(), counter}; }
  Used& created(uint64_t counter) { return table_.add_created(fork(counter), rref(counter), owner_); }
  Used& from_owner(uint64_t counter) { return table_.add_from_owner(fork(counter), rref(counter), owner_); }
  Used& from_user(uint64_t counter, bool owner_lost = false) {
    return table_.add_from_user(step_, fork(counter), rref(counter), owner_, parent_, owner_lost);
  }
  void accept(uint64_t counter) { table_.on_accept(step_, fork(counter), owner_->id()); }
  void child_accept(uint64_t counter, const WorkerPtr& from) {
    table_.on_child_accept(step_, fork(counter), from->id());
  }
  Said said() {
    step_.now = after(step_.now, 1ms);
    controls_.on_time(step_);
    Said all = post_.take();
    for (std::string& text : all) text.erase(text.find(' '), text.find(" to ") - text.find(' '));  // the number
    return all;
  }

  test::RecordedPost post_;
  Controls controls_{post_};
  UserTable table_{controls_};
  Step step_{Time{} + 1h};
  const WorkerPtr owner_ = worker_info(1);
  const WorkerPtr parent_ = worker_info(2);
  const WorkerPtr child_ = worker_info(3);
};

TEST_F(UserTableTest, WhatOneHasCreatedIsUnconfirmedUntilTheOwnerAccepts) {
  Used& used = created(1);
  EXPECT_EQ(used.state, Used::State::unconfirmed);
  EXPECT_EQ(used.handles, 1u);
  EXPECT_EQ(table_.unconfirmed_count(), 1u);
  EXPECT_FALSE(table_.idle());
  EXPECT_EQ(said(), Said{}) << "the creation itself tells the owner";
  accept(1);
  EXPECT_EQ(used.state, Used::State::confirmed);
  EXPECT_TRUE(table_.idle());
  EXPECT_EQ(said(), Said{}) << "it has no parent";
}

TEST_F(UserTableTest, WhatTheOwnerSentIsConfirmedAtOnce) {
  Used& used = from_owner(1);
  EXPECT_EQ(used.state, Used::State::confirmed);
  EXPECT_TRUE(table_.idle());
  table_.release(step_, used);
  EXPECT_EQ(table_.find(fork(1)), nullptr);
  EXPECT_EQ(said(), Said{"USER_DELETE to worker1: 2.12.1"});
}

TEST_F(UserTableTest, WhatAUserSentAsksTheOwnerAndThenTellsTheParent) {
  Used& used = from_user(1);
  EXPECT_EQ(used.state, Used::State::unconfirmed);
  EXPECT_EQ(said(), Said{"FORK_REQUEST to worker1: 8.18.1/2.12.1"});
  accept(1);
  EXPECT_EQ(used.state, Used::State::confirmed);
  EXPECT_EQ(said(), Said{"CHILD_ACCEPT to worker2: 2.12.1"});
  accept(1);
  EXPECT_EQ(said(), Said{}) << "a repeated accept says nothing new";
  table_.release(step_, used);
  EXPECT_EQ(said(), Said{"USER_DELETE to worker1: 2.12.1"});
}

TEST_F(UserTableTest, AnUnconfirmedReferenceIsKeptWithoutHandles) {
  Used& used = from_user(1);
  table_.release(step_, used);
  EXPECT_NE(table_.find(fork(1)), nullptr);
  EXPECT_EQ(said(), Said{"FORK_REQUEST to worker1: 8.18.1/2.12.1"});
  accept(1);
  EXPECT_EQ(table_.find(fork(1)), nullptr);
  EXPECT_EQ(said(), (Said{"CHILD_ACCEPT to worker2: 2.12.1", "USER_DELETE to worker1: 2.12.1"}));
  EXPECT_TRUE(table_.idle());
}

TEST_F(UserTableTest, UnknownAcceptsAndThoseOfOthersAreDropped) {
  Used& used = from_user(1);
  accept(9);
  table_.on_accept(step_, fork(1), parent_->id());
  EXPECT_EQ(used.state, Used::State::unconfirmed) << "only its owner can say so";
  EXPECT_EQ(table_.unconfirmed_count(), 1u);
}

TEST_F(UserTableTest, APendingChildKeepsItsParent) {
  Used& used = from_owner(1);
  table_.add_child(used, fork(50), child_->id());
  table_.add_child(used, fork(51), child_->id());
  EXPECT_EQ(table_.child_count(), 2u);
  EXPECT_FALSE(table_.idle());
  table_.release(step_, used);
  EXPECT_NE(table_.find(fork(1)), nullptr);
  child_accept(50, child_);
  EXPECT_EQ(used.children, 1u);
  child_accept(50, child_);
  EXPECT_EQ(used.children, 1u) << "repeated";
  child_accept(51, owner_);
  EXPECT_EQ(used.children, 1u) << "another's";
  child_accept(99, child_);
  EXPECT_EQ(said(), Said{});
  child_accept(51, child_);
  EXPECT_EQ(table_.find(fork(1)), nullptr);
  EXPECT_EQ(said(), Said{"USER_DELETE to worker1: 2.12.1"});
  EXPECT_TRUE(table_.idle());
}

TEST_F(UserTableTest, ItStaysUntilHandlesChildrenAndConfirmationAreAllDone) {
  // In each order in which the three may end.
  std::vector<int> order = {0, 1, 2};
  do {
    Used& used = from_user(1);
    table_.add_child(used, fork(50), child_->id());
    for (int what : order) {
      ASSERT_NE(table_.find(fork(1)), nullptr);
      if (what == 0) table_.release(step_, used);
      if (what == 1) accept(1);
      if (what == 2) child_accept(50, child_);
    }
    EXPECT_EQ(table_.find(fork(1)), nullptr);
    EXPECT_TRUE(table_.idle());
    const Said all = said();
    EXPECT_EQ(std::count(all.begin(), all.end(), "USER_DELETE to worker1: 2.12.1"), 1);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(UserTableTest, ALostOwnerMakesItDead) {
  Used& confirmed = from_owner(1);
  Used& unconfirmed = from_user(2);
  const WorkerPtr other_owner = worker_info(4);
  Used& of_another = table_.add_from_owner(fork(3), rref(3), other_owner);
  table_.add_child(confirmed, fork(50), child_->id());
  table_.add_child(of_another, fork(51), child_->id());
  Used& kept_by_child = from_owner(5);
  table_.add_child(kept_by_child, fork(52), child_->id());
  table_.release(step_, kept_by_child);
  Used& kept_unconfirmed = from_user(6);
  table_.release(step_, kept_unconfirmed);
  (void)said();
  controls_.forget(owner_->id());
  table_.on_worker_lost(step_, owner_->id());
  EXPECT_EQ(confirmed.state, Used::State::dead);
  EXPECT_EQ(confirmed.children, 0u);
  EXPECT_EQ(unconfirmed.state, Used::State::dead);
  EXPECT_EQ(of_another.state, Used::State::confirmed);
  EXPECT_EQ(of_another.children, 1u);
  EXPECT_EQ(table_.child_count(), 1u) << "pending children of its objects are forgotten";
  EXPECT_EQ(table_.unconfirmed_count(), 0u);
  EXPECT_EQ(table_.find(fork(5)), nullptr) << "nothing keeps them";
  EXPECT_EQ(table_.find(fork(6)), nullptr);
  accept(2);
  EXPECT_EQ(unconfirmed.state, Used::State::dead);
  table_.add_child(confirmed, fork(53), child_->id());
  EXPECT_EQ(table_.child_count(), 1u) << "there is nothing to keep alive";
  table_.release(step_, confirmed);
  table_.release(step_, unconfirmed);
  EXPECT_EQ(table_.references().size(), 1u);
  EXPECT_EQ(said(), Said{}) << "nothing is sent for them";
}

TEST_F(UserTableTest, WhatArrivesAfterItsOwnerWasLostIsDeadAtOnce) {
  Used& used = from_user(1, true);
  EXPECT_EQ(used.state, Used::State::dead);
  EXPECT_TRUE(table_.idle());
  table_.release(step_, used);
  EXPECT_EQ(said(), Said{});
  EXPECT_TRUE(table_.references().empty());
}

TEST_F(UserTableTest, AChildOfALostParentTellsNobody) {
  Used& used = from_user(1);
  (void)said();
  controls_.forget(parent_->id());
  table_.on_worker_lost(step_, parent_->id());
  EXPECT_EQ(used.state, Used::State::unconfirmed) << "it asks the owner as ever";
  accept(1);
  EXPECT_EQ(said(), Said{});
  EXPECT_EQ(used.state, Used::State::confirmed);
}

TEST_F(UserTableTest, ChildrenOfSettledLossesAreRemovedInOneOrder) {
  for (uint64_t i : {7, 3, 9, 1, 5}) {
    Used& used = from_owner(i);
    table_.add_child(used, fork(100 + i), child_->id());
    table_.release(step_, used);
  }
  Used& other = from_owner(20);
  table_.add_child(other, fork(120), parent_->id());
  table_.release(step_, other);
  table_.remove_children_of(step_, {child_->id(), worker_info(7)->id()});
  EXPECT_EQ(said(), Said{"USER_DELETE to worker1: 2.12.1 2.12.3 2.12.5 2.12.7 2.12.9"});
  EXPECT_EQ(table_.child_count(), 1u);
  child_accept(103, child_);
  EXPECT_EQ(table_.child_count(), 1u);
}

TEST_F(UserTableTest, AChildThatWasTheLastOfAnUnconfirmedParentLeavesIt) {
  Used& used = created(1);
  table_.add_child(used, fork(50), child_->id());
  table_.release(step_, used);
  table_.remove_children_of(step_, {child_->id()});
  EXPECT_NE(table_.find(fork(1)), nullptr);
  EXPECT_EQ(said(), Said{});
  accept(1);
  EXPECT_EQ(said(), Said{"USER_DELETE to worker1: 2.12.1"});
}

// ---- losses

TEST_F(UserTableTest, ALossIsSettledAtOnceIfNothingIsUnconfirmed) {
  EXPECT_EQ(table_.settled(), 0u);
  from_owner(1);
  created(2);
  table_.on_loss(1);
  EXPECT_EQ(table_.settled(), 1u) << "only what came from other users counts";
}

TEST_F(UserTableTest, ALossWaitsForWhatWasReceivedBeforeIt) {
  from_user(1);
  table_.on_loss(1);
  from_user(2);
  EXPECT_EQ(table_.settled(), 0u);
  accept(2);
  EXPECT_EQ(table_.settled(), 0u) << "that came later";
  accept(1);
  EXPECT_EQ(table_.settled(), 1u);
}

TEST_F(UserTableTest, LossesAreSettledInOrder) {
  from_user(1);
  table_.on_loss(1);
  from_user(2);
  table_.on_loss(2);
  table_.on_loss(3);
  from_user(3);
  accept(2);
  accept(3);
  EXPECT_EQ(table_.settled(), 0u) << "2 and 3 also wait for what 1 waits for";
  accept(1);
  EXPECT_EQ(table_.settled(), 3u);
}

TEST_F(UserTableTest, InEveryOrderOfConfirmationsALossIsSettledByTheLastThatItWaitsFor) {
  // References 1..5; loss 1 after the second, loss 2 after the fourth.
  std::vector<uint64_t> order = {1, 2, 3, 4, 5};
  do {
    test::RecordedPost post;
    Controls controls(post);
    UserTable table(controls);
    const auto receive = [&](uint64_t counter) {
      table.add_from_user(step_, fork(counter), rref(counter), owner_, parent_, false);
    };
    for (uint64_t i : {1, 2}) receive(i);
    table.on_loss(1);
    for (uint64_t i : {3, 4}) receive(i);
    table.on_loss(2);
    receive(5);
    std::vector<bool> done(6);
    for (uint64_t next : order) {
      table.on_accept(step_, fork(next), owner_->id());
      done[next] = true;
      const bool first = done[1] && done[2];
      const bool second = first && done[3] && done[4];
      ASSERT_EQ(table.settled(), second ? 2u : (first ? 1u : 0u));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(UserTableTest, AReferenceWithoutHandlesStillHoldsALossUp) {
  Used& used = from_user(1);
  table_.release(step_, used);
  table_.on_loss(1);
  EXPECT_EQ(table_.settled(), 0u);
  accept(1);
  EXPECT_EQ(table_.settled(), 1u);
}

TEST_F(UserTableTest, ALostOwnerConfirmsNothingAndHoldsNothingUp) {
  from_user(1);
  const WorkerPtr other_owner = worker_info(4);
  table_.add_from_user(step_, fork(2), rref(2), other_owner, parent_, false);
  table_.on_loss(1);
  table_.on_worker_lost(step_, owner_->id());
  table_.on_loss(2);
  EXPECT_EQ(table_.settled(), 0u);
  table_.on_worker_lost(step_, other_owner->id());
  EXPECT_EQ(table_.settled(), 2u);
  table_.on_loss(3);
  EXPECT_EQ(table_.settled(), 3u);
}

TEST_F(UserTableTest, DeadOnArrivalDoesNotHoldALossUp) {
  from_user(1, true);
  table_.on_loss(1);
  EXPECT_EQ(table_.settled(), 1u);
}

TEST_F(UserTableTest, ClearingForgetsEverything) {
  Used& used = from_user(1);
  table_.add_child(used, fork(50), child_->id());
  table_.on_loss(1);
  table_.clear();
  EXPECT_TRUE(table_.idle());
  EXPECT_TRUE(table_.references().empty());
  accept(1);
  child_accept(50, child_);
  EXPECT_TRUE(table_.idle());
}

}  // namespace
}  // namespace holdfast
