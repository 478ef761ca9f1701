// How a member says which losses it has passed, and hears which are settled.
#include <holdfast/cluster/member_test_support.h>

namespace holdfast {
namespace {

using Numbers = std::vector<uint64_t>;

class MemberSettlingTest : public MemberTest {
 protected:
  void hear_settled(uint64_t number) { hear(kSettled, Counter64{number}); }
  // A newcomer to a job that has lost that many.
  void join_after(uint64_t losses) {
    start_join();
    connect();
    Accepted late = accepted();
    late.losses_settled = losses;
    hear(kAccepted, late);
    hear(cluster_message(kReady));
  }
};

TEST_F(MemberSettlingTest, LossesAreToldWithTheirNumbers) {
  join();
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  EXPECT_EQ(loss_numbers_, (Numbers{1, 2}));
}

TEST_F(MemberSettlingTest, NothingIsPassedUnlessItIsReported) {
  join();
  hear_lost(1, 4, 4);
  EXPECT_TRUE(said_heartbeats().empty());
  wait(3s);
  const Heartbeat last = said_heartbeats().at(0);
  EXPECT_EQ(last.losses_seen, 1u);
  EXPECT_EQ(last.losses_settled, 0u);
  EXPECT_EQ(last.settled_heard, 0u);
}

TEST_F(MemberSettlingTest, AReportIsSaidAtOnceAndWithEveryHeartbeat) {
  join();
  answering_ = true;
  wait(100ms);
  answering_ = false;
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  report_settled(1);
  std::vector<Heartbeat> said = said_heartbeats();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].losses_settled, 1u);
  EXPECT_EQ(said[0].losses_seen, 2u);
  report_settled(1);
  report_settled(0);
  EXPECT_TRUE(said_heartbeats().empty()) << "only growth is news";
  report_settled(2);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 2u);
  wait(2500ms);
  said = said_heartbeats();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].losses_settled, 2u);
}

TEST_F(MemberSettlingTest, ALossMayBePassedAsSoonAsItIsHeard) {
  join();
  settling_at_once_ = true;
  hear_lost(1, 4, 4);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 1u);
}

TEST_F(MemberSettlingTest, AReportDuringACutIsSaidAfterTheReconnect) {
  join();
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  break_connection();
  report_settled(1);
  wait(1s);
  connect();
  report_settled(2);
  EXPECT_TRUE(said_heartbeats().empty()) << "not before ACCEPTED";
  hear(kAccepted, accepted());  // a coordinator that has not heard of it says 0
  wait(0s);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 2u);
}

TEST_F(MemberSettlingTest, AReportThatGotLostIsSaidAgainAfterTheReconnect) {
  join();
  hear_lost(1, 4, 4);
  report_settled(1);
  said();
  reconnect();
  wait(0s);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 1u);
}

// Each report is a heartbeat. Those must not push out the one that shows how long the coordinator has been silent.
TEST_F(MemberSettlingTest, ManyReportsDoNotHideASilentCoordinator) {
  join();
  wait(0s);
  for (uint64_t number = 1; number <= 100; ++number) hear_lost(number, 4, 100 + static_cast<uint32_t>(number));
  Step all(now_);
  for (uint64_t number = 1; number <= 100 && all.closes.empty(); ++number) {
    report_settled(number);
    all = wait(100ms);
  }
  ASSERT_EQ(all.closes.size(), 1u);
  EXPECT_EQ(all.closes[0].connection, connection_);
  EXPECT_TRUE(fenced_.empty());
}

TEST_F(MemberSettlingTest, ManyReportsKeepTheLease) {
  join();
  answering_ = true;
  for (uint64_t number = 1; number <= 100; ++number) {
    hear_lost(number, 4, 100 + static_cast<uint32_t>(number));
    report_settled(number);
  }
  wait(60s);
  EXPECT_TRUE(fenced_.empty());
}

TEST_F(MemberSettlingTest, ANewcomerHasPassedTheLossesBeforeItsTime) {
  join_after(2);
  wait(0s);
  Heartbeat first = said_heartbeats().at(0);
  EXPECT_EQ(first.losses_seen, 0u);
  EXPECT_EQ(first.losses_settled, 2u);
  settling_at_once_ = true;
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  EXPECT_TRUE(said_heartbeats().empty()) << "it has passed these";
  hear_lost(3, 6, 6);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 3u);
}

TEST_F(MemberSettlingTest, SettledIsDeliveredOncePerGrowth) {
  join();
  hear_lost(1, 4, 4);
  hear_lost(2, 5, 5);
  hear_lost(3, 6, 6);
  hear_settled(0);
  EXPECT_EQ(settled_, Numbers{});
  hear_settled(1);
  hear_settled(1);
  hear_settled(3);
  hear_settled(2);  // late
  EXPECT_EQ(settled_, (Numbers{1, 3}));
  wait(3s);
  EXPECT_EQ(said_heartbeats().back().settled_heard, 3u);
}

TEST_F(MemberSettlingTest, SettledIsNotBelievedBeforeItsLossWasHeard) {
  join();
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{});
  wait(3s);
  EXPECT_EQ(said_heartbeats().back().settled_heard, 0u) << "so it will be said again";
  hear_lost(1, 4, 4);
  EXPECT_EQ(settled_, Numbers{});
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{1});
  hear_settled(UINT64_MAX);
  EXPECT_EQ(settled_, Numbers{1});
}

TEST_F(MemberSettlingTest, ANewcomerMayHearOfLossesBeforeItsTime) {
  join_after(1);
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{}) << "in order with LOST, for it as for all";
  hear_lost(1, 4, 4);
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{1});
}

TEST_F(MemberSettlingTest, SettledIsRememberedAcrossAReconnect) {
  join();
  hear_lost(1, 4, 4);
  hear_settled(1);
  reconnect();
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{1});
  wait(0s);
  EXPECT_EQ(said_heartbeats().back().settled_heard, 1u);
}

TEST_F(MemberSettlingTest, WhatOvertakesAcceptedIsIgnored) {
  start_join();
  connect();
  hear_lost(1, 4, 4);
  hear_settled(1);
  EXPECT_EQ(loss_numbers_, Numbers{});
  hear(kAccepted, accepted());
  hear_lost(1, 4, 4);
  EXPECT_EQ(loss_numbers_, Numbers{1}) << "once";
  EXPECT_EQ(settled_, Numbers{});
}

TEST_F(MemberSettlingTest, ItIsSettledInShutdownToo) {
  join();
  leave_together(now_ + 60s);
  hear_lost(1, 4, 4);
  report_settled(1);
  EXPECT_EQ(said_heartbeats().at(0).losses_settled, 1u);
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{1});
}

TEST_F(MemberSettlingTest, WhoeverHasLeftOrIsFencedIsDone) {
  join();
  hear_lost(1, 4, 4);
  run([&](Step& step) { member().leave(step, "done"); });
  said();
  report_settled(1);
  EXPECT_TRUE(said().empty());
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{});

  member_.emplace(options_, *this, ids_, Random(6));
  joined_.clear();
  join();
  hear_lost(1, 4, 4);
  hear(kFenced, Text{"no heartbeat for 10 s"});
  report_settled(1);
  EXPECT_TRUE(said().empty());
  hear_settled(1);
  EXPECT_EQ(settled_, Numbers{});
}

TEST_F(MemberSettlingTest, SettledWithoutANumberEndsTheConnection) {
  join();
  const Step step = hear(cluster_message(kSettled));
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
}

}  // namespace
}  // namespace holdfast
