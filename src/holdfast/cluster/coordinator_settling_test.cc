// When the coordinator says that losses are settled, and to whom it says so again.
#include <holdfast/cluster/coordinator_test_support.h>

namespace holdfast {
namespace {

class CoordinatorSettlingTest : public CoordinatorTest {};

TEST_F(CoordinatorSettlingTest, ALossIsSettledWhenAllWhoAreLeftHavePassedIt) {
  const std::vector<ConnectionId> who = world(4);
  declare_lost(3);
  settle(who[0], 1);
  settle(who[1], 1);
  settle(who[1], 1);  // repeated: counts once
  heartbeat(who[2], 1, 0);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(settled(who[rank]), Numbers{}) << rank;
  settle(who[2], 1);
  for (uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(settled(who[rank]), Numbers{1}) << rank;
  EXPECT_EQ(settled(who[3]), Numbers{}) << "it is gone";
}

TEST_F(CoordinatorSettlingTest, WithoutALossThereIsNothingToSettle) {
  const std::vector<ConnectionId> who = world(2);
  settle(who[0], 0);
  settle(who[1], 0);
  EXPECT_EQ(kinds(who[0]), std::vector{kHeartbeatAck});
}

// 2 got a reference from 3, which was lost, and passed it on to 1 before it was lost itself. 0 and 1 have passed the
// first loss, but 1 has not confirmed what it got from 2.
TEST_F(CoordinatorSettlingTest, AnEarlierLossIsNotSettledBeforeTheLatest) {
  const std::vector<ConnectionId> who = world(4);
  declare_lost(3);
  settle(who[0], 1);
  settle(who[1], 1);
  declare_lost(2);
  EXPECT_EQ(settled(who[0]), Numbers{}) << "all who are left have passed loss 1, but not loss 2";
  heartbeat(who[0], 2, 1);
  heartbeat(who[1], 2, 1);
  settle(who[0], 2);
  EXPECT_EQ(settled(who[0]), Numbers{});
  settle(who[1], 2);
  EXPECT_EQ(settled(who[0]), Numbers{2});
  EXPECT_EQ(settled(who[1]), Numbers{2});
}

TEST_F(CoordinatorSettlingTest, AReportAboutAnEarlierLossDoesNotCountForTheLatest) {
  const std::vector<ConnectionId> who = world(4);
  declare_lost(3);
  declare_lost(2);
  settle(who[0], 2);
  settle(who[1], 1);
  EXPECT_EQ(settled(who[0]), Numbers{});
  settle(who[1], 2);
  EXPECT_EQ(settled(who[0]), Numbers{2});
}

TEST_F(CoordinatorSettlingTest, WhoeverLeavesByItselfIsALossToSettle) {
  const std::vector<ConnectionId> who = world(2);
  say(who[1], cluster_message(kLeave, Text{"had enough"}));
  EXPECT_EQ(kinds(who[0]), std::vector{kLost}) << "not settled by its going";
  settle(who[0], 1);
  EXPECT_EQ(settled(who[0]), Numbers{1});
}

TEST_F(CoordinatorSettlingTest, AnEarlierReportIsNotTakenBack) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(2);
  settle(who[0], 1);
  heartbeat(who[0], 1, 0);
  settle(who[1], 1);
  EXPECT_EQ(settled(who[0]), Numbers{1});
}

TEST_F(CoordinatorSettlingTest, SettledThatWasMissedIsSaidAgainWithTheHeartbeat) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(2);
  settle(who[0], 1);
  settle(who[1], 1);
  EXPECT_EQ(settled(who[0]), Numbers{1});
  heartbeat(who[0], 1, 1, 0);
  EXPECT_EQ(settled(who[0]), Numbers{1});
  heartbeat(who[0], 1, 1, 1);
  EXPECT_EQ(settled(who[0]), Numbers{}) << "it has heard";
  EXPECT_EQ(settled(who[1]), Numbers{1}) << "only whoever missed it hears it again";
  declare_lost(1);
  heard(who[0]);
  heartbeat(who[0], 2, 1, 0);
  EXPECT_EQ(settled(who[0]), Numbers{1}) << "what is settled remains so";
}

TEST_F(CoordinatorSettlingTest, WhatWasMissedIsSaidInOrder) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(2);
  settle(who[0], 1);
  settle(who[1], 1);
  heard(who[0]);
  heartbeat(who[0], 0, 0, 0);
  EXPECT_EQ(kinds(who[0]), (std::vector{kHeartbeatAck, kLost, kSettled}));
}

TEST_F(CoordinatorSettlingTest, WhoeverComesBackHearsItAfterTheLoss) {
  const std::vector<ConnectionId> who = world(4);
  declare_lost(3);
  for (uint32_t rank = 0; rank < 3; ++rank) settle(who[rank], 1);
  close(who[0]);
  heard(who[0]);
  const ConnectionId back = join(join_of(0, "", 100));
  EXPECT_EQ(kinds(back), (std::vector{kAccepted, kLost, kSettled, kReady}));
}

TEST_F(CoordinatorSettlingTest, WhoeverIsCutOffIsWaitedFor) {
  const std::vector<ConnectionId> who = world(3);
  close(who[0]);
  declare_lost(2);
  settle(who[1], 1);
  EXPECT_EQ(settled(who[1]), Numbers{});
  const ConnectionId back = join(join_of(0, "", 100));
  EXPECT_EQ(heard(back, kAccepted).at(0).as<Accepted>().losses_settled, 0u) << "it is no newcomer";
  EXPECT_EQ(settled(who[1]), Numbers{}) << "to be back is not enough";
  settle(back, 1);
  EXPECT_EQ(settled(who[1]), Numbers{1});
  EXPECT_EQ(settled(back), Numbers{1});
}

TEST_F(CoordinatorSettlingTest, ANewcomerHasPassedTheLossesBeforeItsTime) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(1);
  declare_lost(2);
  const Join newcomer = join_of(2);
  const ConnectionId fresh = join(newcomer);
  EXPECT_EQ(heard(fresh, kAccepted).at(0).as<Accepted>().losses_settled, 2u);
  EXPECT_EQ(heartbeat(fresh, 0, 2).closes.size(), 0u) << "though it has not heard of them yet";
  settle(who[0], 2);
  EXPECT_EQ(settled(who[0]), Numbers{2}) << "it need not be waited for";

  // The answer to its JOIN got lost; somebody is lost before it asks again: that one is not before its time.
  declare_lost(0);
  say(fresh, cluster_message(kJoin, newcomer));
  EXPECT_EQ(heard(fresh, kAccepted).at(0).as<Accepted>().losses_settled, 2u);
  heartbeat(fresh, 3, 3, 2);
  EXPECT_EQ(settled(fresh), Numbers{3});
}

TEST_F(CoordinatorSettlingTest, ANewcomerHearsWhatIsSettledAndTheOthersDoNotHearItAgain) {
  const std::vector<ConnectionId> who = world(2);
  declare_lost(1);
  settle(who[0], 1);
  EXPECT_EQ(settled(who[0]), Numbers{1});
  EXPECT_EQ(kinds(join(join_of(1))), (std::vector{kAccepted, kLost, kSettled, kReady}));
  EXPECT_TRUE(heard(who[0]).empty());
}

TEST_F(CoordinatorSettlingTest, ANewcomerDoesNotSpeakForTheOthers) {
  const std::vector<ConnectionId> who = world(2);
  declare_lost(1);
  const ConnectionId fresh = join(join_of(1));
  EXPECT_EQ(settled(fresh), Numbers{});
  settle(fresh, 1);
  EXPECT_EQ(settled(fresh), Numbers{});
  settle(who[0], 1);
  EXPECT_EQ(settled(fresh), Numbers{1});
}

TEST_F(CoordinatorSettlingTest, WhenNobodyIsLeftNothingHappensUntilSomebodyJoins) {
  const std::vector<ConnectionId> who = world(2);
  declare_lost(0);
  declare_lost(1);
  EXPECT_EQ(kinds(who[1]), (std::vector{kLost, kFenced}));
  const ConnectionId fresh = join(join_of(0));
  EXPECT_EQ(kinds(fresh), (std::vector{kAccepted, kLost, kLost, kReady, kSettled}));
}

// To believe any of these would free objects that are in use.
TEST_F(CoordinatorSettlingTest, WhoeverHasPassedWhatItCannotKnowIsCorrupt) {
  const std::vector<ConnectionId> who = world(3);
  const auto refuses = [&](uint64_t losses_seen, uint64_t losses_settled) {
    const Step step = heartbeat(who[0], losses_seen, losses_settled);
    EXPECT_TRUE(heard(who[0]).empty());
    return step.closes.size() == 1 && step.closes[0].connection == who[0] && step.closes[0].why.code == Code::corrupt;
  };
  EXPECT_TRUE(refuses(1, 1)) << "there was no loss";
  declare_lost(2);
  heard(who[0]);
  EXPECT_TRUE(refuses(2, 2)) << "there was one";
  EXPECT_TRUE(refuses(UINT64_MAX, UINT64_MAX));
  EXPECT_TRUE(refuses(0, 1)) << "it has not heard of it";
  settle(who[1], 1);
  EXPECT_EQ(settled(who[1]), Numbers{}) << "none of that counted";
  settle(who[0], 1);
  EXPECT_EQ(settled(who[1]), Numbers{1});
  EXPECT_EQ(coordinator().member_count(), 2u);
}

TEST_F(CoordinatorSettlingTest, ToHaveHeardOfWhatWasNeverSettledHarmsOnlyOneself) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(2);
  heartbeat(who[0], 1, 1, UINT64_MAX);
  settle(who[1], 1);
  EXPECT_EQ(settled(who[1]), Numbers{1});
}

TEST_F(CoordinatorSettlingTest, AfterTheReleaseNothingIsSettledAnyMore) {
  const std::vector<ConnectionId> who = world(3);
  declare_lost(2);
  settle(who[0], 1);
  quiet(who[0], 0, true, 1);
  quiet(who[1], 0, true, 1);
  quiet(who[0], 1, true, 1);
  quiet(who[1], 1, true, 1);
  ASSERT_TRUE(coordinator().released());
  heard(who[0]);
  settle(who[1], 1);
  EXPECT_TRUE(heard(who[0]).empty());
  say(who[1], cluster_message(kLeave, Text{"done"}));
  EXPECT_TRUE(heard(who[0]).empty());
}

}  // namespace
}  // namespace holdfast
