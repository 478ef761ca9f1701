// One link and what its peer does: gives credit, falls silent, dials at the same time, lies.
#include <holdfast/link/link_test_support.h>

namespace holdfast::test {
namespace {

// ---- the window

TEST_F(LinkTest, CallsCountAgainstTheWindowUntilTheyAreCredited) {
  options_.inflight_bytes_max = 1000;
  make();
  EXPECT_TRUE(link().has_room(1000));
  send(600, true);
  EXPECT_TRUE(link().has_room(400));
  EXPECT_FALSE(link().has_room(401));
  send(400, true);
  EXPECT_FALSE(link().has_room(1));
  connect();
  welcome();
  collect();
  ASSERT_TRUE(hear(2).ok());
  EXPECT_FALSE(link().has_room(1)) << "received is not started";
  Step step(now_);
  ASSERT_TRUE(link().on_header(step, header_of(2, 600)).ok());
  EXPECT_TRUE(step.room_opened);
  EXPECT_TRUE(link().has_room(600));
  EXPECT_FALSE(link().has_room(601));
  Step again(now_);
  ASSERT_TRUE(link().on_header(again, header_of(2, 100)).ok()) << "an old frame that was overtaken";
  EXPECT_FALSE(again.room_opened);
  EXPECT_TRUE(link().has_room(600));
}

TEST_F(LinkTest, OneCallMayBeLargerThanTheWindow) {
  options_.inflight_bytes_max = 1000;
  make();
  EXPECT_TRUE(link().has_room(5000));
  send(5000, true);
  EXPECT_FALSE(link().has_room(0));
  connect();
  welcome();
  collect();
  ASSERT_TRUE(hear(1, 5000).ok());
  EXPECT_TRUE(link().has_room(5000));
}

TEST_F(LinkTest, RepliesDoNotCountAgainstTheWindow) {
  options_.inflight_bytes_max = 1000;
  make();
  send(5000, false);
  EXPECT_TRUE(link().has_room(1000));
}

TEST_F(LinkTest, TheWindowCountsEachCallOnceAcrossReconnects) {
  options_.inflight_bytes_max = 1000;
  make();
  send(600, true);
  connect();
  welcome();
  collect();
  close();
  wait(10ms);
  connect();
  welcome();
  EXPECT_EQ(sent(), (Numbers{1}));
  EXPECT_TRUE(link().has_room(400));
  EXPECT_FALSE(link().has_room(401));
  close();
  wait(20ms);
  connect();
  welcome(1, 600);  // WELCOME brings the credit that was lost with the connection
  EXPECT_TRUE(link().has_room(1000));
}

TEST_F(LinkTest, CreditIsReportedWithTheNextFrameOrAtOnceAtAQuarterOfTheWindow) {
  options_.inflight_bytes_max = 1000;
  make();
  adopt();
  EXPECT_TRUE(run([&](Step& step) { link().grant_credit(step, 249); }).flushes.empty());
  EXPECT_EQ(run([&](Step& step) { link().grant_credit(step, 1); }).flushes.size(), 1u);
  EXPECT_EQ(collect().at(0).header.credit_bytes, 250u);
  run([&](Step& step) { link().grant_credit(step, 50); });
  send();
  EXPECT_EQ(collect().at(0).header.credit_bytes, 300u) << "all since the link began";
}

// The callee dropped a cancelled call and its credit was lost with the connection: there is no reply that would
// bring it, so the caller must ask. Else whoever waits for room waits for ever.
TEST_F(LinkTest, CreditThatWasLostWithTheConnectionIsFetched) {
  make();
  send(100, true);
  connect();
  welcome();
  collect();
  ASSERT_TRUE(hear(1).ok());
  EXPECT_FALSE(link().has_unacked());
  EXPECT_TRUE(link().waits());
  close();
  ASSERT_NE(link().next_deadline(), kNever);
  EXPECT_EQ(wait(link().next_deadline() - now_).dials.size(), 1u);
  connect();
  EXPECT_TRUE(welcome(1, 100).room_opened);
  EXPECT_FALSE(link().waits());
  collect();
  close();
  EXPECT_EQ(link().next_deadline(), kNever);
}

TEST_F(LinkTest, CreditThatStaysAwayIsAskedForByPing) {
  make();
  send(100, true);
  connect();
  welcome();
  collect();
  ASSERT_TRUE(hear(1).ok());
  wait(options_.heartbeat);
  EXPECT_EQ(kinds(collect()), std::vector{kPing});
}

// ---- silence

TEST_F(LinkTest, ALinkThatWaitsInSilencePingsAndThenDialsAnew) {
  make();
  send();
  connect();
  welcome();
  collect();
  for (int beat = 1; beat <= 2; ++beat) {
    EXPECT_EQ(link().next_deadline(), now_ + options_.heartbeat);
    wait(options_.heartbeat);
    EXPECT_EQ(kinds(collect()), std::vector{kPing});
    EXPECT_TRUE(tick().flushes.empty()) << "one ping at a time";
  }
  const ConnectionId silent = link().connection();
  const Step step = wait(options_.heartbeat);
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, silent);
  ASSERT_EQ(step.dials.size(), 1u);
  EXPECT_EQ(step.dials[0].connection, link().connection());
}

TEST_F(LinkTest, WhateverIsHeardEndsTheSilence) {
  make();
  send();
  connect();
  welcome();
  collect();
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(wait(options_.heartbeat - 1ns).flushes.empty());
    link().on_heard(now_);  // a part of a large frame
  }
  EXPECT_TRUE(link().up());
}

TEST_F(LinkTest, AnIdleLinkIsSilent) {
  make();
  adopt();
  EXPECT_EQ(link().next_deadline(), kNever);
  EXPECT_TRUE(wait(1h).flushes.empty());
  EXPECT_TRUE(link().up());
}

// ---- two connections at once

TEST_F(LinkTest, WhenBothDialTheHigherRankGivesUpItsAttempt) {
  make(2);
  send();
  const ConnectionId own = link().connection();
  const Step step = run([&](Step& step) { EXPECT_FALSE(link().on_hello(step, {3}, header_of(0), hello_of(1))); });
  EXPECT_EQ(link().connection(), ConnectionId{3});
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, own);
  const std::vector<OutFrame> frames = collect();
  EXPECT_EQ(kinds(frames), (std::vector{kWelcome, kTestKind})) << "no HELLO of the attempt that was given up";
}

TEST_F(LinkTest, WhenBothDialTheLowerRankKeepsItsAttempt) {
  make(0);
  send();
  const ConnectionId own = link().connection();
  for (const bool greeting : {false, true}) {
    if (greeting) connect();
    const Step step = run([&](Step& step) {
      const std::optional<Refused> refused = link().on_hello(step, {3}, header_of(0), hello_of(1));
      ASSERT_TRUE(refused);
      EXPECT_EQ(refused->reason, RefusedReason::busy);
    });
    EXPECT_EQ(link().connection(), own);
    EXPECT_TRUE(step.closes.empty());
  }
}

TEST_F(LinkTest, AHigherEpochTakesOver) {
  make();
  adopt(4);
  const ConnectionId old = link().connection();
  const Step step = run([&](Step& step) { EXPECT_FALSE(link().on_hello(step, {9}, header_of(0), hello_of(5))); });
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, old);
  EXPECT_EQ(link().connection(), ConnectionId{9});
  EXPECT_EQ(wire::decode_message<Welcome>(*collect().at(0).message).take().epoch, 5u);
}

TEST_F(LinkTest, AnOldHelloIsRefusedWithOurEpoch) {
  make();
  adopt(4);
  const ConnectionId current = link().connection();
  for (const uint64_t epoch : {0, 3, 4}) {
    const Step step = run([&](Step& step) {
      const std::optional<Refused> refused = link().on_hello(step, {9}, header_of(0), hello_of(epoch));
      ASSERT_TRUE(refused);
      EXPECT_EQ(refused->reason, RefusedReason::busy);
      EXPECT_EQ(refused->epoch, 4u);
    });
    EXPECT_TRUE(step.closes.empty());
    EXPECT_EQ(link().connection(), current);
  }
}

TEST_F(LinkTest, ARefusedDiallerGoesPastTheEpochItWasTold) {
  make();
  send();
  EXPECT_EQ(connect().epoch, 1u);
  const Step step = run([&](Step& step) { link().on_refused(step, Refused{.epoch = 8}); });
  EXPECT_EQ(step.closes.size(), 1u);
  ASSERT_NE(link().next_deadline(), kNever);
  wait(10ms);
  EXPECT_EQ(connect().epoch, 9u);
}

// ---- peers that lie

TEST_F(LinkTest, AcknowledgingWhatWasNeverSentIsCorrupt) {
  make();
  send();
  connect();
  welcome();
  collect();
  EXPECT_EQ(hear(2).failure().code, Code::corrupt);
  EXPECT_FALSE(hear(UINT64_MAX).ok());
  send();  // queued, not collected
  EXPECT_FALSE(hear(2).ok());
  EXPECT_EQ(link().unacked_count(), 2u);
  collect();
  EXPECT_TRUE(hear(2).ok());
}

TEST_F(LinkTest, CreditForWhatWasNeverCalledIsCorrupt) {
  make();
  send(100, true);
  send(50, false);
  connect();
  welcome();
  collect();
  EXPECT_EQ(hear(2, 101).failure().code, Code::corrupt);
  EXPECT_FALSE(hear(2, UINT64_MAX).ok());
  EXPECT_TRUE(hear(2, 100).ok());
}

TEST_F(LinkTest, AHandshakeThatLiesIsClosedAndTriedAgain) {
  make();
  send();
  connect();
  const ConnectionId connection = link().connection();
  const Step lied = welcome(5);
  ASSERT_EQ(lied.closes.size(), 1u);
  EXPECT_EQ(lied.closes[0].connection, connection);
  EXPECT_EQ(lied.closes[0].why.code, Code::corrupt);
  EXPECT_FALSE(link().up());
  EXPECT_TRUE(collect().empty());

  const Step hello = run([&](Step& step) { link().on_hello(step, {3}, header_of(0, 10), hello_of(1)); });
  ASSERT_EQ(hello.closes.size(), 1u);
  EXPECT_EQ(hello.closes[0].connection, ConnectionId{3});
  EXPECT_FALSE(link().up());
  ASSERT_NE(link().next_deadline(), kNever);
  EXPECT_EQ(wait(1s).dials.size(), 1u);
}

TEST_F(LinkTest, DroppingClosesAndHandsOutWhatWasWaiting) {
  make();
  send();
  send();
  const ConnectionId connection = link().connection();
  const Step step = run([&](Step& step) { link().drop(step, kBroken); });
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, connection);
  EXPECT_EQ(step.garbage.size(), 2u);
}

}  // namespace
}  // namespace holdfast::test
