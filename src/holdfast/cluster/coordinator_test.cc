// The coordinator, driven by messages and times: who may join, who is lost and who hears of it, and when all may go.
#include <holdfast/cluster/coordinator_test_support.h>

namespace holdfast {
namespace {

// ---- joining

TEST_F(CoordinatorTest, TheLastToJoinMakesTheWorldReady) {
  make(2);
  const ConnectionId first = join(join_of(0, "alice"));
  const std::vector<Heard> accepted = heard(first);
  ASSERT_EQ(accepted.size(), 1u);
  const auto answer = accepted[0].as<Accepted>();
  EXPECT_EQ(answer.self.name, "alice");
  EXPECT_EQ(answer.self.incarnation.value, 1u);
  EXPECT_EQ(answer.world_size, 2u);
  EXPECT_EQ(answer.lease_ms, 10000u);
  const ConnectionId second = join(join_of(1));
  EXPECT_EQ(kinds(second), (std::vector{kAccepted, kReady}));
  EXPECT_EQ(kinds(first), std::vector{kReady});
}

TEST_F(CoordinatorTest, AJobThatStartsEarlyTakesTheOthersLater) {
  make({.job = "job", .world_size = 2, .start_at = 1});
  const ConnectionId first = join(join_of(1));
  EXPECT_EQ(kinds(first), (std::vector{kAccepted, kReady}));
  EXPECT_TRUE(coordinator().ready());
  EXPECT_EQ(kinds(join(join_of(0))), (std::vector{kAccepted, kReady}));
  EXPECT_TRUE(heard(first).empty()) << "it has started long ago";
}

TEST_F(CoordinatorTest, WhoeverNamesNoRankGetsTheLowestFreeOne) {
  world_size_ = 4;
  make(4);
  join(join_of(1));
  for (const uint32_t expected : {0, 2, 3}) {
    const auto self = heard(join(join_of(std::nullopt))).at(0).as<Accepted>().self;
    EXPECT_EQ(self.rank.value, expected);
    EXPECT_EQ(self.name, "worker" + std::to_string(expected));
  }
  declare_lost(2);
  EXPECT_EQ(heard(join(join_of(std::nullopt))).at(0).as<Accepted>().self.rank.value, 2u);
}

TEST_F(CoordinatorTest, ARefusalSaysWhy) {
  make(2);
  Join other = join_of(0);
  other.job = "elsewhere";
  EXPECT_EQ(refusal(other), "rank 0 cannot join: this coordinator serves another job");
  Join size = join_of(0);
  size.world_size = 3;
  EXPECT_EQ(refusal(size), "rank 0 cannot join: it was started with world size 3, but this job's world size is 2");
  EXPECT_EQ(refusal(join_of(2)), "rank 2 cannot join: rank 2 is outside a world of 2");
  Join alice = join_of(0, "alice");
  alice.address = "host:7";
  join(alice);
  Join frames = join_of(1);
  frames.frame_bytes_max = 5;
  EXPECT_EQ(refusal(frames), "rank 1 cannot join: its frame_bytes_max is 5, but that of the others is 1000");
  EXPECT_EQ(refusal(join_of(0, "bob")), "bob cannot join: rank 0 is taken by alice at host:7");
  EXPECT_EQ(refusal(join_of(1, "alice")), "alice cannot join: the name alice is taken by rank 0 at host:7");
  join(join_of(1));
  EXPECT_EQ(refusal(join_of(std::nullopt)), "a worker cannot join: the world of 2 is full: alice, worker1");
  EXPECT_EQ(coordinator().member_count(), 2u);
}

TEST_F(CoordinatorTest, ANameThatSomebodyChoseIsNotGivenToAnother) {
  make(2);
  join(join_of(0, "worker1"));
  EXPECT_NE(refusal(join_of(1)).find("the name worker1 is taken by rank 0"), std::string::npos);
  EXPECT_NE(refusal(join_of(std::nullopt)).find("the name worker1 is taken by rank 0"), std::string::npos);
}

TEST_F(CoordinatorTest, NamesAreBounded) {
  make(2);
  EXPECT_LT(refusal(join_of(0, std::string(60000, 'x'))).size(), 1000u);
  EXPECT_EQ(coordinator().member_count(), 0u);
}

TEST_F(CoordinatorTest, ARepeatedJoinGetsTheSameAnswer) {
  make(2);
  const Join again = join_of(0);
  const ConnectionId connection = join(again);
  const auto first = heard(connection).at(0).as<Accepted>();
  say(connection, cluster_message(kJoin, again));
  const auto second = heard(connection).at(0).as<Accepted>();
  EXPECT_EQ(second.self, first.self);
  EXPECT_EQ(coordinator().member_count(), 1u);
}

TEST_F(CoordinatorTest, AReconnectedMemberHearsWhatItMissed) {
  const std::vector<ConnectionId> who = world(4);
  close(who[0]);
  declare_lost(2);
  declare_lost(3);
  EXPECT_TRUE(heard(who[0]).empty());
  Join again = join_of(0, "", 100);
  again.losses_seen = 1;
  const ConnectionId back = join(again);
  const std::vector<Heard> answer = heard(back);
  ASSERT_EQ(answer.size(), 3u);
  EXPECT_EQ(answer[0].as<Accepted>().self.incarnation.value, 1u) << "the same life";
  EXPECT_EQ(answer[1].as<Lost>().number, 2u);
  EXPECT_EQ(answer[1].as<Lost>().worker.rank.value, 3u);
  EXPECT_EQ(answer[2].kind, kReady);
}

TEST_F(CoordinatorTest, ANewConnectionReplacesTheOldOne) {
  const std::vector<ConnectionId> who = world(2);
  const ConnectionId fresh = connect();
  const Step step = say(fresh, cluster_message(kJoin, join_of(0, "", 100)));
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, who[0]);
  heard(fresh);
  heartbeat(who[0]);
  EXPECT_TRUE(heard(who[0]).empty()) << "nothing more over the old one";
  close(who[0]);
  heartbeat(fresh);
  EXPECT_EQ(kinds(fresh), std::vector{kHeartbeatAck}) << "its end is not the end of the new one";
}

// Else others, who know them, could name them to it, and it would wait for ever.
TEST_F(CoordinatorTest, ANewcomerHearsOfThoseWhoWereLostBefore) {
  std::vector<ConnectionId> who = world(3);
  declare_lost(1);
  declare_lost(2);
  const ConnectionId fresh = join(join_of(2));
  EXPECT_EQ(losses(fresh), (Numbers{1, 2}));
}

TEST_F(CoordinatorTest, AConnectionThatDoesNotJoinIsClosed) {
  make(2);
  const ConnectionId silent = connect();
  const ConnectionId refused = connect();
  say(refused, cluster_message(kJoin, join_of(9)));
  const ConnectionId joined = join(join_of(0));
  EXPECT_LE(coordinator().next_wakeup(), now_ + 5s);
  std::vector<ConnectionId> closed;
  for (int i = 0; i < 6; ++i) {
    for (const Step::Close& close : wait(1s).closes) closed.push_back(close.connection);
    heartbeat(joined);
  }
  EXPECT_EQ(closed, (std::vector{silent, refused}));
  EXPECT_GT(coordinator().next_wakeup(), now_);
}

TEST_F(CoordinatorTest, WhateverIsNotExpectedEndsTheConnection) {
  const std::vector<ConnectionId> who = world(2);
  const ConnectionId stranger = connect();
  EXPECT_EQ(say(stranger, cluster_message(kHeartbeat, Heartbeat{})).closes.at(0).why.code, Code::corrupt);
  for (const Kind kind : {Kind{1}, kAccepted, kReleased, Kind{77}, kHeartbeat, kLookup, kQuiet, kLeave, kJoin}) {
    const Step step = say(who[0], cluster_message(kind));  // the known ones have no body here
    ASSERT_EQ(step.closes.size(), 1u) << kind.value;
    EXPECT_EQ(step.closes[0].connection, who[0]);
    EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
  }
  EXPECT_EQ(coordinator().member_count(), 2u);
}

TEST_F(CoordinatorTest, OneConnectionIsOneWorker) {
  make(2);
  const ConnectionId connection = join(join_of(0));
  const Step step = say(connection, cluster_message(kJoin, join_of(1)));
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
  EXPECT_EQ(coordinator().member_count(), 1u);
}

// ---- looking up

TEST_F(CoordinatorTest, LookupsAnswerByNameAndByRank) {
  const std::vector<ConnectionId> who = world(3);
  const auto ask = [&](const Lookup& lookup) {
    say(who[0], cluster_message(kLookup, lookup));
    return heard(who[0]).at(0).as<Found>();
  };
  EXPECT_EQ(ask({.request = 1, .name = "worker2"}).worker->rank.value, 2u);
  EXPECT_EQ(ask({.request = 2, .name = "", .rank = 1}).worker->name, "worker1");
  const Found none = ask({.request = 3, .name = "eve"});
  EXPECT_EQ(none.request, 3u);
  EXPECT_FALSE(none.worker);
  EXPECT_EQ(none.text, "there is no worker \"eve\" in this job; there are worker0, worker1, worker2");
  EXPECT_FALSE(ask({.request = 4, .name = "", .rank = 4000000000}).worker);
}

// ---- losing

TEST_F(CoordinatorTest, AMissedLeaseIsALossForGood) {
  const std::vector<ConnectionId> who = world(3);
  wait(9s);
  heartbeat(who[0]);
  heartbeat(who[1]);
  heard(who[0]);
  heard(who[1]);
  EXPECT_LE(coordinator().next_wakeup(), now_ + 1s);
  wait(1s);
  EXPECT_EQ(coordinator().member_count(), 2u);
  const auto lost = heard(who[0]).at(0).as<Lost>();
  EXPECT_EQ(lost.number, 1u);
  EXPECT_EQ(lost.worker.rank.value, 2u);
  EXPECT_EQ(lost.reason, "no heartbeat for 10 s (the lease)");
  EXPECT_EQ(kinds(who[1]), std::vector{kLost});
  EXPECT_EQ(kinds(who[2]), std::vector{kFenced});
  heartbeat(who[2]);
  EXPECT_EQ(kinds(who[2]), std::vector{kFenced}) << "it may not have heard";
  EXPECT_EQ(kinds(join(join_of(2, "", 102))), std::vector{kFenced}) << "nor come back";
  EXPECT_EQ(heard(join(join_of(2))).at(0).as<Accepted>().self.incarnation.value, 4u) << "another may";
}

TEST_F(CoordinatorTest, TheConnectionOfTheFencedIsClosedAfterAWhile) {
  const std::vector<ConnectionId> who = world(2);
  declare_lost(1);
  std::vector<ConnectionId> closed;
  for (int i = 0; i < 6; ++i) {
    for (const Step::Close& close : wait(1s).closes) closed.push_back(close.connection);
    heartbeat(who[0]);
  }
  EXPECT_EQ(closed, std::vector{who[1]});
}

TEST_F(CoordinatorTest, ALossThatWasMissedIsSaidAgainWithTheHeartbeat) {
  const std::vector<ConnectionId> who = world(4);
  declare_lost(2);
  declare_lost(3);
  EXPECT_EQ(losses(who[0]), (Numbers{1, 2}));
  heartbeat(who[0], 1);
  EXPECT_EQ(losses(who[0]), (Numbers{2}));
  heartbeat(who[0], 2);
  EXPECT_TRUE(losses(who[0]).empty());
  heartbeat(who[0], UINT64_MAX);
  EXPECT_EQ(kinds(who[0]), std::vector{kHeartbeatAck});
}

TEST_F(CoordinatorTest, LosingNobodyIsNothing) {
  const std::vector<ConnectionId> who = world(2);
  declare_lost(1);
  heard(who[0]);
  declare_lost(1);
  declare_lost(99);
  EXPECT_TRUE(heard(who[0]).empty());
}

TEST_F(CoordinatorTest, WhoeverLeavesIsLostToTheOthersWithItsOwnWords) {
  const std::vector<ConnectionId> who = world(2);
  const Step step = say(who[1], cluster_message(kLeave, Text{"had enough"}));
  EXPECT_EQ(step.closes.at(0).connection, who[1]) << "it waits for this";
  const auto lost = heard(who[0]).at(0).as<Lost>();
  EXPECT_EQ(lost.reason, "had enough");
  EXPECT_EQ(coordinator().member_count(), 1u);
}

TEST_F(CoordinatorTest, WordsOfLeaveAreBounded) {
  const std::vector<ConnectionId> who = world(2);
  say(who[1], cluster_message(kLeave, Text{std::string(60000, 'x')}));
  EXPECT_LT(heard(who[0]).at(0).message.body.size(), 5000u);
}

// ---- the end of a job

TEST_F(CoordinatorTest, AllAreReleasedAfterTwoQuietRounds) {
  const std::vector<ConnectionId> who = world(2);
  quiet(who[0], 0, true, 5);
  EXPECT_EQ(asked(who[0]), 0u);
  quiet(who[1], 0, true, 8);
  EXPECT_EQ(asked(who[0]), 1u);
  EXPECT_EQ(asked(who[1]), 1u);
  quiet(who[0], 1, true, 5);
  EXPECT_FALSE(coordinator().released());
  quiet(who[1], 1, true, 8);
  EXPECT_TRUE(coordinator().released());
  EXPECT_EQ(kinds(who[0]), std::vector{kReleased});
  EXPECT_EQ(kinds(who[1]), std::vector{kReleased});
  say(who[0], cluster_message(kLeave, Text{"done"}));
  EXPECT_TRUE(heard(who[1]).empty()) << "no LOST among the released";
}

TEST_F(CoordinatorTest, ActivityBetweenTheRoundsMeansAnotherRound) {
  const std::vector<ConnectionId> who = world(2);
  quiet(who[0], 0, true, 5);
  quiet(who[1], 0, true, 8);
  ASSERT_EQ(asked(who[0]), 1u);
  quiet(who[0], 1, true, 5);
  quiet(who[1], 1, true, 9);  // it served a call in between
  EXPECT_FALSE(coordinator().released());
  EXPECT_EQ(asked(who[0]), 2u);
  quiet(who[0], 1, true, 5);  // an answer to the old round, late
  quiet(who[1], 2, true, 9);
  EXPECT_FALSE(coordinator().released());
  quiet(who[0], 2, true, 5);
  EXPECT_TRUE(coordinator().released());
}

TEST_F(CoordinatorTest, BusyAgainMeansThatARoundIsVoid) {
  const std::vector<ConnectionId> who = world(2);
  quiet(who[0], 0, false, 1);
  quiet(who[0], 0, true, 5);
  quiet(who[1], 0, true, 8);
  quiet(who[1], 1, true, 8);
  quiet(who[0], 0, false, 6);
  quiet(who[0], 0, true, 7);
  EXPECT_FALSE(coordinator().released());
  EXPECT_EQ(asked(who[1]), 2u);
  quiet(who[0], 2, true, 7);
  EXPECT_FALSE(coordinator().released()) << "what was confirmed in round 1 does not count in round 2";
  quiet(who[1], 2, true, 8);
  EXPECT_TRUE(coordinator().released());
}

TEST_F(CoordinatorTest, ARepeatedConfirmationCountsOnce) {
  const std::vector<ConnectionId> who = world(2);
  quiet(who[0], 0, true, 5);
  quiet(who[1], 0, true, 8);
  quiet(who[0], 1, true, 5);
  quiet(who[0], 1, true, 5);
  EXPECT_FALSE(coordinator().released());
}

TEST_F(CoordinatorTest, AQuestionThatGotLostIsAskedAgain) {
  const std::vector<ConnectionId> who = world(2);
  quiet(who[0], 0, true, 5);
  quiet(who[1], 0, true, 8);
  asked(who[0]);
  asked(who[1]);
  quiet(who[0], 1, true, 5);
  wait(1s);
  EXPECT_EQ(heard(who[0], kWaiting).at(0).as<Text>().text, "no answer yet from worker1");
  EXPECT_EQ(asked(who[1]), 1u);
}

TEST_F(CoordinatorTest, ADeathDuringReleaseStartsAnotherRoundForTheRest) {
  const std::vector<ConnectionId> who = world(3);
  for (ConnectionId each : who) quiet(each, 0, true, 1);
  quiet(who[0], 1, true, 1);
  quiet(who[1], 1, true, 1);
  declare_lost(2);
  EXPECT_FALSE(coordinator().released()) << "what it did last may have kept the others busy";
  EXPECT_EQ(asked(who[0]), 2u);
  quiet(who[0], 2, true, 1);
  quiet(who[1], 2, true, 1);
  EXPECT_TRUE(coordinator().released());
}

TEST_F(CoordinatorTest, TheDeathOfTheOnlyBusyOneLetsTheOthersGo) {
  const std::vector<ConnectionId> who = world(3);
  quiet(who[0], 0, true, 1);
  quiet(who[1], 0, true, 1);
  quiet(who[2], 0, false, 1);
  EXPECT_EQ(asked(who[0]), 0u);
  say(who[2], cluster_message(kLeave, Text{"gave up"}));
  EXPECT_EQ(asked(who[0]), 1u);
}

TEST_F(CoordinatorTest, NobodyIsReleasedWhileALostOneIsStartedAgain) {
  const std::vector<ConnectionId> who = world(3);
  quiet(who[0], 0, true, 1);
  quiet(who[1], 0, true, 1);
  declare_lost(2, true);
  EXPECT_EQ(asked(who[0]), 0u);
  wait(1s);
  EXPECT_EQ(heard(who[0], kWaiting).at(0).as<Text>().text, "not yet in shutdown: rank 2, which is started again");
  const ConnectionId back = join(join_of(2));
  EXPECT_EQ(asked(who[0]), 0u) << "now it works";
  quiet(back, 0, true, 1);
  EXPECT_EQ(asked(who[0]), 1u);
}

TEST_F(CoordinatorTest, AllAreReleasedIfTheOneWhoWasToReturnDoesNot) {
  const std::vector<ConnectionId> who = world(3);
  quiet(who[0], 0, true, 1);
  quiet(who[1], 0, true, 1);
  declare_lost(2, true);
  EXPECT_EQ(asked(who[0]), 0u);
  declare_lost(2, false);
  EXPECT_EQ(asked(who[0]), 1u);
}

TEST_F(CoordinatorTest, ReleasedIsSaidAgainToWhomeverMissedIt) {
  const std::vector<ConnectionId> who = world(1);
  quiet(who[0], 0, true, 1);
  quiet(who[0], 1, true, 1);
  ASSERT_TRUE(coordinator().released());
  heard(who[0]);
  heartbeat(who[0]);
  EXPECT_EQ(kinds(who[0]), (std::vector{kHeartbeatAck, kReleased}));
  close(who[0]);
  EXPECT_EQ(heard(join(join_of(0, "", 100)), kReleased).size(), 1u);
}

// ---- telling those who wait

TEST_F(CoordinatorTest, WhoeverWaitsLearnsForWhom) {
  world_size_ = 3;
  make(3);
  const ConnectionId first = join(join_of(1));
  heard(first);
  EXPECT_EQ(coordinator().next_wakeup(), now_ + 1s);
  wait(1s);
  EXPECT_EQ(heard(first).at(0).as<Text>().text, "1 of 3 workers are here; missing: rank 0, rank 2");
  EXPECT_EQ(coordinator().next_wakeup(), now_ + 1s);
}

TEST_F(CoordinatorTest, WhoeverWaitsForTheEndLearnsForWhom) {
  const std::vector<ConnectionId> who = world(3);
  wait(1s);
  quiet(who[0], 0, true, 1);
  quiet(who[1], 0, false, 1);
  for (ConnectionId each : who) heard(each);
  wait(1s);
  EXPECT_EQ(heard(who[0]).at(0).as<Text>().text, "not yet in shutdown: worker2; still busy with calls: worker1");
  EXPECT_TRUE(heard(who[2]).empty()) << "it does not wait";
}

TEST_F(CoordinatorTest, TextsAreShortInAWorldOfTenThousand) {
  world_size_ = 10000;
  make(10000);
  const ConnectionId first = join(join_of(0));
  heard(first);
  wait(1s);
  const std::string missing = heard(first).at(0).as<Text>().text;
  EXPECT_NE(missing.find("and 9987 more"), std::string::npos) << missing;
  EXPECT_LT(missing.size(), 300u);

  for (uint32_t rank = 1; rank < 10000; ++rank) join(join_of(rank));
  ASSERT_TRUE(coordinator().ready());
  heard(first);
  say(first, cluster_message(kLookup, Lookup{.request = 1, .name = "eve"}));
  EXPECT_LT(heard(first).at(0).as<Found>().text.size(), 300u);
  quiet(first, 0, false, 1);
  wait(1s);
  const std::string waiting = heard(first).at(0).as<Text>().text;
  EXPECT_NE(waiting.find("and 9987 more"), std::string::npos) << waiting;
  EXPECT_LT(waiting.size(), 400u);
}

}  // namespace
}  // namespace holdfast
