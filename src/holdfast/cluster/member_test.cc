// A member, driven by messages and times: how it joins, stays, looks up, hears of losses, and leaves.
#include <holdfast/cluster/member_test_support.h>

namespace holdfast {
namespace {

// ---- joining

TEST_F(MemberTest, JoiningEndsWithReady) {
  start_join();
  EXPECT_TRUE(said().empty());
  connect();
  const std::vector<Message> first = said();
  ASSERT_EQ(first.size(), 1u);
  const Join join = wire::decode_message<Join>(first[0]).take();
  EXPECT_EQ(join.rank, 3u);
  EXPECT_EQ(join.address, "me:1");
  const Step step = hear(kAccepted, accepted());
  EXPECT_EQ(step.trusts, std::vector{connection_});
  EXPECT_EQ(selves_.size(), 1u);
  EXPECT_TRUE(joined_.empty());
  hear(cluster_message(kReady));
  ASSERT_EQ(joined_.size(), 1u);
  hear(cluster_message(kReady));
  EXPECT_EQ(joined_.size(), 1u) << "once";
}

TEST_F(MemberTest, JoinIsSaidAgainUntilItIsAnswered) {
  start_join();
  connect();
  EXPECT_EQ(said(kJoin).size(), 1u);
  wait(1s);
  const std::vector<Message> again = said(kJoin);
  ASSERT_EQ(again.size(), 1u);
  break_connection();
  wait(1s);
  connect();
  EXPECT_EQ(wire::decode_message<Join>(said(kJoin).at(0)).take().instance,
            wire::decode_message<Join>(again[0]).take().instance);
}

TEST_F(MemberTest, ARefusedJoinSaysWhy) {
  start_join();
  connect();
  const Step step = hear(kJoinRefused, Text{"worker3 cannot join: rank 3 is taken by eve at x:1"});
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_EQ(joined_[0].failure().code, Code::invalid_argument);
  EXPECT_EQ(joined_[0].failure().message, "worker3 cannot join: rank 3 is taken by eve at x:1 (coordinator at boss:1)");
  EXPECT_EQ(step.closes.at(0).connection, connection_);
  break_connection();
  EXPECT_EQ(member().next_wakeup(), kNever) << "it does not try again";
}

TEST_F(MemberTest, AJoinThatTimesOutSaysWhoIsMissing) {
  start_join(now_ + 30s);
  break_connection();
  for (int i = 0; i < 100 && joined_.empty(); ++i) {
    if (!wait(500ms).dials.empty()) break_connection();
  }
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_EQ(joined_[0].failure().code, Code::timeout);
  EXPECT_EQ(joined_[0].failure().message,
            "joining timed out: the coordinator at boss:1 cannot be reached (connection refused)");
}

TEST_F(MemberTest, AJoinThatTimesOutInAnIncompleteWorldSaysWhoIsMissing) {
  start_join(now_ + 30s);
  connect();
  hear(kAccepted, accepted());
  hear(kWaiting, Text{"7 of 8 workers are here; missing: rank 5"});
  answering_ = true;
  wait(30s);
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_EQ(joined_[0].failure().message, "joining timed out: 7 of 8 workers are here; missing: rank 5");
}

// The others may take minutes. JOIN is repeated all the while, and each ACCEPTED must not put off the heartbeat.
TEST_F(MemberTest, WaitingForTheOthersLongerThanALeaseIsNoLoss) {
  start_join();
  connect();
  hear(kAccepted, accepted());
  answering_ = true;
  for (int second = 0; second < 60; ++second) {
    wait(1s);
    hear(kAccepted, accepted());
  }
  EXPECT_TRUE(fenced_.empty());
  hear(cluster_message(kReady));
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_TRUE(joined_[0].ok());
}

TEST_F(MemberTest, ACoordinatorThatConnectsAndSaysNothingIsDialledAnew) {
  start_join();
  connect();
  const ConnectionId silent = connection_;
  const Step step = wait(options_.dial_timeout);
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, silent);
  break_connection();
  EXPECT_EQ(wait(1s).dials.size(), 1u);
}

TEST_F(MemberTest, AttemptsToReachTheCoordinatorAreSpacedOut) {
  start_join();
  Duration longest{};
  for (int i = 0; i < 20; ++i) {
    break_connection();
    const Duration pause = member().next_wakeup() - now_;
    longest = std::max(longest, pause);
    EXPECT_LT(pause, options_.dial_backoff_max * 3 / 2);
    wait(pause);
  }
  EXPECT_GT(longest, options_.dial_backoff_max / 2);
}

// An answer to an old JOIN leaves little of the lease, which one lost heartbeat would end.
TEST_F(MemberTest, AnAcceptanceThatComesLateIsAskedForAgain) {
  Accepted answer = accepted();
  answer.lease_ms = 4000;
  start_join();
  connect();
  wait(3s);
  said(kJoin);
  hear(kAccepted, answer);
  EXPECT_EQ(said(kJoin).size(), 1u) << "more than half of the lease is over";
  EXPECT_TRUE(said(kHeartbeat).empty());
  wait(100ms);
  hear(kAccepted, answer);
  hear(cluster_message(kReady));
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_TRUE(joined_[0].ok());
  wait(3800ms);
  EXPECT_TRUE(fenced_.empty()) << "the lease counts from the second JOIN";
  wait(200ms);
  EXPECT_EQ(fenced_.size(), 1u);
}

// ---- staying

TEST_F(MemberTest, TheLeaseRunsFromWhenTheHeartbeatWasSent) {
  join();
  wait(1s);
  EXPECT_EQ(said(kHeartbeat).size(), 1u) << "the first goes out at once, the next after a quarter of the lease";
  hear(kHeartbeatAck, Counter64{1});
  wait(1500ms + 2400ms);
  EXPECT_EQ(said(kHeartbeat).size(), 1u);  // number 2, at 2.5 s
  hear(kHeartbeatAck, Counter64{2});
  EXPECT_TRUE(fenced_.empty());
  break_connection();
  wait(2500ms + 10s - 4900ms - 1ms);
  EXPECT_TRUE(fenced_.empty());
  wait(1ms);
  ASSERT_EQ(fenced_.size(), 1u);
  EXPECT_EQ(fenced_[0], "the coordinator at boss:1 could not be reached for 10 s (the lease): connection refused");
}

TEST_F(MemberTest, BeforeTheFirstHeartbeatTheLeaseRunsFromJoin) {
  start_join();
  connect();
  wait(3s);
  hear(kAccepted, accepted());
  break_connection();
  wait(7s - 1ms);
  EXPECT_TRUE(fenced_.empty());
  wait(1ms);
  EXPECT_EQ(fenced_.size(), 1u) << "the coordinator counts from when it heard JOIN, which was earlier";
}

TEST_F(MemberTest, AfterAReconnectAHeartbeatGoesOutAtOnce) {
  join();
  answering_ = true;
  wait(1s);
  answering_ = false;
  break_connection();
  wait(1s);
  connect();
  said();
  hear(kAccepted, accepted());
  wait(0s);
  EXPECT_EQ(said(kHeartbeat).size(), 1u);
}

// Cut more often than heartbeats go out: each reconnect must count, else the worker would give itself up.
TEST_F(MemberTest, AFlappingConnectionDoesNotLoseTheLease) {
  join();
  answering_ = true;
  for (int i = 0; i < 30; ++i) {
    reconnect();
    wait(200ms);
  }
  EXPECT_TRUE(fenced_.empty());
}

TEST_F(MemberTest, JoinIsSaidAgainAfterAReconnectUntilItIsAnswered) {
  join();
  break_connection();
  wait(1s);
  connect();
  EXPECT_EQ(said(kJoin).size(), 1u);
  wait(1s);
  EXPECT_EQ(said(kJoin).size(), 1u) << "the first may have been lost";
}

TEST_F(MemberTest, ACoordinatorThatAnswersNoHeartbeatsIsDialledAnewWithinTheLease) {
  join();
  wait(0s);
  const ConnectionId dead = connection_;
  const Step step = wait(5s);
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, dead);
  EXPECT_TRUE(fenced_.empty());
  reconnect();
  answering_ = true;
  wait(30s);
  EXPECT_TRUE(fenced_.empty());
}

TEST_F(MemberTest, BeingFencedEndsEverything) {
  join();
  lookup("eve", {}, now_ + 60s);
  leave_together(now_ + 60s);
  const Step step = hear(kFenced, Text{"no heartbeat for 10 s"});
  EXPECT_EQ(fenced_, std::vector<std::string>{"no heartbeat for 10 s"});
  EXPECT_EQ(step.closes.size(), 1u);
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].failure().code, Code::worker_lost);
  ASSERT_EQ(left_.size(), 1u);
  EXPECT_EQ(left_[0].failure().code, Code::worker_lost);
  break_connection();
  EXPECT_EQ(member().next_wakeup(), kNever);
  lookup("eve", {}, now_ + 60s);
  EXPECT_EQ(found_.size(), 2u);
}

TEST_F(MemberTest, ACoordinatorThatForgotThisWorkerFencesIt) {
  join();
  break_connection();
  wait(1s);
  connect();
  hear(kAccepted, accepted(1));  // started anew, it counts from one
  EXPECT_EQ(fenced_.size(), 1u);
  EXPECT_EQ(selves_.size(), 1u);
}

TEST_F(MemberTest, ACoordinatorThatRefusesAMemberFencesIt) {
  join();
  break_connection();
  wait(1s);
  connect();
  hear(kJoinRefused, Text{"the world is full"});
  EXPECT_EQ(fenced_, std::vector<std::string>{"the world is full"});
  break_connection();
  wait(1min);
  EXPECT_EQ(member().next_wakeup(), kNever);
}

TEST_F(MemberTest, NonsenseFromTheCoordinatorEndsTheConnection) {
  join();
  for (const Kind kind : {Kind{1}, kJoin, kHeartbeat, Kind{99}, kAccepted, kFound, kLost}) {
    const Step step = hear(cluster_message(kind));  // without a body
    ASSERT_EQ(step.closes.size(), 1u) << kind.value;
    EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
  }
  EXPECT_TRUE(fenced_.empty());
}

TEST_F(MemberTest, AnAbsurdLeaseDoesNoHarm) {
  for (const uint64_t lease_ms : {uint64_t{0}, UINT64_MAX}) {
    member_.emplace(options_, *this, ids_, Random(5));
    start_join();
    connect();
    Accepted absurd = accepted();
    absurd.lease_ms = lease_ms;
    hear(kAccepted, absurd);
    wait(10ms);
  }
}

// ---- others

TEST_F(MemberTest, ALookupIsSaidAgainAndAnsweredOnce) {
  join();
  answering_ = false;
  lookup("worker5", {}, now_ + 60s);
  EXPECT_EQ(said(kLookup).size(), 1u);
  wait(1s);
  const std::vector<Message> again = said(kLookup);
  ASSERT_EQ(again.size(), 1u);
  const uint64_t request = wire::decode_message<Lookup>(again[0]).take().request;
  hear(kFound, Found{.request = request, .worker = worker(5, 2)});
  hear(kFound, Found{.request = request, .worker = worker(5, 2)});
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0]->rank.value, 5u);
  wait(2s);
  EXPECT_TRUE(said(kLookup).empty());
  lookup("", {5}, now_ + 60s);
  lookup("worker5", {}, now_ + 60s);
  EXPECT_EQ(found_.size(), 3u) << "from memory";
  EXPECT_TRUE(said(kLookup).empty());
}

TEST_F(MemberTest, ALookupOfNobodySaysWhoIsThere) {
  join();
  lookup("eve", {}, now_ + 60s);
  hear(kFound, Found{.request = 1, .worker = std::nullopt, .text = "there is no worker \"eve\""});
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].failure().code, Code::invalid_argument);
  EXPECT_EQ(found_[0].failure().message, "there is no worker \"eve\"");
}

TEST_F(MemberTest, ALookupTimesOut) {
  join();
  lookup("worker5", {}, now_ + 2s);
  wait(2s - 1ns);
  EXPECT_TRUE(found_.empty());
  wait(1ns);
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].failure().code, Code::timeout);
  EXPECT_EQ(found_[0].failure().message, "the coordinator at boss:1 did not answer in time");
  hear(kFound, Found{.request = 1, .worker = worker(5, 2)});
  EXPECT_EQ(found_.size(), 1u) << "too late";
}

TEST_F(MemberTest, ALookupIsSaidAgainAfterAReconnect) {
  join();
  lookup("worker5", {}, now_ + 60s);
  said();
  reconnect();
  EXPECT_EQ(said(kLookup).size(), 1u);
}

TEST_F(MemberTest, LossesAreHeardInOrderAndOnce) {
  join();
  hear_lost(2, 5, 5);
  EXPECT_TRUE(lost_.empty()) << "number 1 was missed";
  hear_lost(1, 4, 4);
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  EXPECT_EQ(lost_, (std::vector<uint32_t>{4, 5}));
  wait(3s);
  EXPECT_EQ(wire::decode_message<Heartbeat>(said(kHeartbeat).back()).take().losses_seen, 2u);
  break_connection();
  wait(1s);
  connect();
  EXPECT_EQ(wire::decode_message<Join>(said(kJoin).at(0)).take().losses_seen, 2u);
}

TEST_F(MemberTest, TheLostAreForgotten) {
  join();
  run([&](Step&) { member().learn(worker(5, 4)); });
  hear_lost(1, 5, 3);
  EXPECT_NE(member().known({5}), nullptr) << "an earlier life";
  hear_lost(2, 5, 4);
  EXPECT_EQ(member().known({5}), nullptr);
}

TEST_F(MemberTest, AnAnswerThatWasOvertakenByALossIsNotBelieved) {
  join();
  lookup("worker5", {}, now_ + 60s);
  hear_lost(1, 5, 4);
  hear(kFound, Found{.request = 1, .worker = worker(5, 4)});
  EXPECT_TRUE(found_.empty());
  hear(kFound, Found{.request = 1, .worker = worker(5, 9)});
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0]->incarnation.value, 9u);
}

// ---- leaving

TEST_F(MemberTest, ReleasedMembersLeaveAndAreDone) {
  join();
  leave_together(now_ + 60s);
  EXPECT_EQ(said(kQuiet).size(), 1u);
  hear(kCheck, Counter64{3});
  EXPECT_EQ(wire::decode_message<Quiet>(said(kQuiet).at(0)).take().round, 3u);
  hear(cluster_message(kReleased));
  ASSERT_EQ(left_.size(), 1u);
  EXPECT_TRUE(left_[0].ok());
  EXPECT_EQ(said(kLeave).size(), 1u);
  hear(cluster_message(kReleased));
  EXPECT_EQ(left_.size(), 1u);
  break_connection();
  EXPECT_EQ(member().next_wakeup(), kNever);
}

TEST_F(MemberTest, QuietIsSaidAgainEverySecondAndAfterAReconnect) {
  join();
  leave_together(now_ + 60s);
  said();
  wait(1s);
  EXPECT_EQ(said(kQuiet).size(), 1u);
  reconnect();
  EXPECT_EQ(said(kQuiet).size(), 1u);
}

TEST_F(MemberTest, AShutdownThatTimesOutSaysWhomItWaitedFor) {
  join();
  answering_ = true;
  leave_together(now_ + 5s);
  hear(kWaiting, Text{"not yet in shutdown: worker6"});
  wait(5s);
  ASSERT_EQ(left_.size(), 1u);
  EXPECT_EQ(left_[0].failure().code, Code::timeout);
  EXPECT_EQ(left_[0].failure().message, "not yet in shutdown: worker6");
}

TEST_F(MemberTest, LeavingAtOnceEndsWhateverWaits) {
  join();
  lookup("worker5", {}, kNever);
  leave_together(kNever);
  run([&](Step& step) { member().leave(step, "destroyed"); });
  EXPECT_EQ(wire::decode_message<Text>(said(kLeave).at(0)).take().text, "destroyed");
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_[0].failure().code, Code::shutdown);
  ASSERT_EQ(left_.size(), 1u);
  EXPECT_EQ(left_[0].failure().code, Code::shutdown);
  lookup("worker5", {}, kNever);
  EXPECT_EQ(found_.size(), 2u) << "nobody would answer";
  hear(kAccepted, accepted());
  break_connection();
  EXPECT_EQ(member().next_wakeup(), kNever);
}

}  // namespace
}  // namespace holdfast
