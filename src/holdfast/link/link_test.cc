// One link, driven by events and times: what it dials, sends, sends again and acknowledges, and when.
#include <holdfast/link/link_test_support.h>

namespace holdfast::test {
namespace {

// ---- sending

TEST_F(LinkTest, TheFirstMessageDialsAndGoesOutAfterTheHandshake) {
  make();
  const Step dialled = run([&](Step& step) { link().send(step, message_of(1), false); });
  ASSERT_EQ(dialled.dials.size(), 1u);
  EXPECT_EQ(dialled.dials[0].address, "peer:1");
  EXPECT_EQ(dialled.dials[0].connection, link().connection());
  EXPECT_TRUE(collect().empty());

  const Hello hello = connect();
  EXPECT_EQ(hello.from, self_);
  EXPECT_EQ(hello.to_rank.value, 1u);
  EXPECT_EQ(hello.to_incarnation.value, 9u);
  EXPECT_EQ(hello.epoch, 1u);
  EXPECT_TRUE(collect().empty()) << "nothing but HELLO before WELCOME";

  const Step up = welcome();
  EXPECT_EQ(up.trusts, std::vector{link().connection()});
  EXPECT_EQ(up.flushes, std::vector{link().connection()});
  EXPECT_EQ(sent(), (Numbers{1}));
}

TEST_F(LinkTest, MessagesAreNumberedInOrderAndGoOutOnce) {
  make();
  EXPECT_EQ(send(), 1u);
  EXPECT_EQ(send(), 2u);
  connect();
  welcome();
  EXPECT_EQ(send(), 3u);
  EXPECT_EQ(sent(), (Numbers{1, 2, 3}));
  EXPECT_TRUE(collect().empty());
}

TEST_F(LinkTest, ACollectionStopsAtItsSizeButTakesOneFrameAtLeast) {
  make();
  for (int i = 0; i < 3; ++i) send(1000);
  connect();
  welcome();
  EXPECT_EQ(sent(1), (Numbers{1}));
  EXPECT_EQ(sent(1500), (Numbers{2, 3}));
}

TEST_F(LinkTest, AMessageMayHaveArrivedOnceItWasCollected) {
  make();
  send();
  EXPECT_FALSE(link().maybe_sent(1));
  connect();
  welcome();
  EXPECT_FALSE(link().maybe_sent(1));
  collect();
  send();
  EXPECT_TRUE(link().maybe_sent(1));
  EXPECT_FALSE(link().maybe_sent(2));
  close();
  EXPECT_TRUE(link().maybe_sent(1)) << "a broken connection does not take it back";
}

TEST_F(LinkTest, AcknowledgedMessagesAreFreedOutsideTheLock) {
  make();
  for (int i = 0; i < 3; ++i) send();
  connect();
  welcome();
  collect();
  Step step(now_);
  ASSERT_TRUE(link().on_header(step, header_of(2)).ok());
  EXPECT_EQ(step.garbage.size(), 2u);
  EXPECT_EQ(link().unacked_count(), 1u);
}

// ---- reconnecting

TEST_F(LinkTest, AfterAReconnectOnlyWhatThePeerLacksIsSentAgain) {
  make();
  for (int i = 0; i < 5; ++i) send();
  connect();
  welcome();
  EXPECT_EQ(sent(), (Numbers{1, 2, 3, 4, 5}));
  close();
  wait(10ms);
  connect();
  welcome(3);  // two of the acknowledgements were lost
  EXPECT_EQ(sent(), (Numbers{4, 5}));
}

TEST_F(LinkTest, AnAdoptedConnectionResumesToo) {
  make();
  for (int i = 0; i < 3; ++i) send();
  connect();
  welcome();
  collect();
  close();
  ASSERT_TRUE(receive(1));
  Step step(now_);
  ASSERT_FALSE(link().on_hello(step, {3}, header_of(1), hello_of(5)));
  const std::vector<OutFrame> frames = collect();
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].header.kind, kWelcome);
  EXPECT_EQ(frames[0].header.acknowledged, 1u) << "WELCOME tells what we have";
  EXPECT_EQ(frames[1].header.sequence, 2u);
  EXPECT_EQ(frames[2].header.sequence, 3u);
}

TEST_F(LinkTest, HelloTellsWhatWasReceivedBefore) {
  make();
  adopt();
  for (uint64_t number = 1; number <= 4; ++number) ASSERT_TRUE(*receive(number));
  close();
  send();
  wait(10ms);
  run([&](Step& step) { link().on_connected(step); });
  EXPECT_EQ(collect().at(0).header.acknowledged, 4u);
}

TEST_F(LinkTest, ALinkThatWaitsForNothingDoesNotDial) {
  make();
  adopt();
  close();
  EXPECT_EQ(link().next_deadline(), kNever);
  EXPECT_TRUE(wait(1h).dials.empty());
  EXPECT_EQ(run([&](Step& step) { link().send(step, message_of(1), false); }).dials.size(), 1u) << "at once";
}

TEST_F(LinkTest, TheWaitBetweenAttemptsDoublesWithinBounds) {
  make();
  send();
  Duration nominal = options_.dial_backoff_first;
  for (int attempt = 0; attempt < 14; ++attempt) {
    close();
    const Duration wait_for = link().next_deadline() - now_;
    EXPECT_GE(wait_for, nominal / 2) << attempt;
    EXPECT_LT(wait_for, nominal * 3 / 2) << attempt;
    EXPECT_TRUE(wait(wait_for - 1ns).dials.empty());
    EXPECT_EQ(wait(1ns).dials.size(), 1u);
    nominal = std::min<Duration>(nominal * 2, options_.dial_backoff_max);
  }
  // Progress brings it back to the beginning.
  connect();
  welcome();
  collect();
  send();
  ASSERT_TRUE(hear(1).ok());
  close();
  EXPECT_LT(link().next_deadline() - now_, options_.dial_backoff_first * 3 / 2);
}

TEST_F(LinkTest, AHandshakeThatIsNotAnsweredEnds) {
  make();
  send();
  EXPECT_EQ(link().next_deadline(), now_ + options_.dial_timeout);
  const ConnectionId first = link().connection();
  const Step step = wait(options_.dial_timeout);
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, first);
  EXPECT_EQ(step.closes[0].why.code, Code::timeout);
  EXPECT_GT(link().next_deadline(), now_);
  EXPECT_EQ(wait(10ms).dials.size(), 1u);
  EXPECT_NE(link().connection(), first);
}

// ---- receiving

TEST_F(LinkTest, ARepeatedNumberIsDroppedAndAcknowledgedAtOnce) {
  make();
  adopt();
  ASSERT_TRUE(*receive(1));
  collect();
  Step step(now_);
  EXPECT_FALSE(*receive(1, &step));
  EXPECT_EQ(step.flushes.size(), 1u);
  const std::vector<OutFrame> frames = collect();
  ASSERT_EQ(kinds(frames), std::vector{kAck});
  EXPECT_EQ(frames[0].header.acknowledged, 1u);
}

TEST_F(LinkTest, ASkippedNumberIsCorruptOnAReliableTransport) {
  make();
  adopt();
  const Result<bool> result = receive(2);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().code, Code::corrupt);
}

TEST_F(LinkTest, ASkippedNumberIsAskedForOnceOnAnUnreliableTransport) {
  options_.reliable = false;
  make();
  adopt();
  EXPECT_FALSE(*receive(3));
  EXPECT_FALSE(*receive(4));
  EXPECT_EQ(kinds(collect()), std::vector{kResend});
  EXPECT_TRUE(*receive(1));
  EXPECT_FALSE(*receive(5));  // 2 is missing now
  EXPECT_EQ(kinds(collect()), std::vector{kResend});
  EXPECT_TRUE(*receive(2));
}

TEST_F(LinkTest, ResendMeansEverythingThatIsNotAcknowledged) {
  options_.reliable = false;
  make();
  for (int i = 0; i < 4; ++i) send();
  connect();
  welcome();
  collect();
  ASSERT_TRUE(hear(1).ok());
  EXPECT_TRUE(collect().empty());
  run([&](Step& step) { link().on_resend(step); });
  EXPECT_EQ(sent(), (Numbers{2, 3, 4}));
}

TEST_F(LinkTest, AnUnreliableTransportIsSentToAgainAfterGrowingWaits) {
  options_.reliable = false;
  options_.heartbeat = 1h;
  make();
  send();
  connect();
  welcome();
  EXPECT_EQ(sent(), (Numbers{1}));
  for (const Duration expected : {100ms, 200ms, 400ms, 800ms, 1600ms, 2000ms, 2000ms}) {
    EXPECT_EQ(link().next_deadline() - now_, expected);
    wait(expected);
    EXPECT_EQ(sent(), (Numbers{1}));
  }
  ASSERT_TRUE(hear(1).ok());
  EXPECT_EQ(link().next_deadline(), kNever);
}

// ---- acknowledging

TEST_F(LinkTest, AnAcknowledgementGoesWithTheNextMessage) {
  make();
  adopt();
  ASSERT_TRUE(*receive(1));
  send();
  const std::vector<OutFrame> frames = collect();
  ASSERT_EQ(kinds(frames), std::vector{kTestKind});
  EXPECT_EQ(frames[0].header.acknowledged, 1u);
  EXPECT_TRUE(wait(options_.ack_delay).flushes.empty());
}

TEST_F(LinkTest, AnAcknowledgementGoesAloneAfterADelay) {
  make();
  adopt();
  Step step(now_);
  ASSERT_TRUE(*receive(1, &step));
  EXPECT_TRUE(step.flushes.empty());
  EXPECT_EQ(link().next_deadline(), now_ + options_.ack_delay);
  EXPECT_TRUE(wait(options_.ack_delay - 1ns).flushes.empty());
  EXPECT_EQ(wait(1ns).flushes.size(), 1u);
  EXPECT_GT(link().next_deadline(), now_) << "looks again later if the socket is full";
  EXPECT_EQ(kinds(collect()), std::vector{kAck});
  EXPECT_EQ(link().next_deadline(), kNever);
  EXPECT_TRUE(collect().empty());
}

TEST_F(LinkTest, InAHurryItAcknowledgesAtOnceAndAsksForWhatIsOwed) {
  make();
  const auto hurry = [&] {
    Step step(now_);
    link().hurry(step);
    return step.flushes.empty() ? std::vector<Kind>() : kinds(collect());
  };
  EXPECT_TRUE(hurry().empty()) << "there is no connection";
  adopt();
  collect();
  EXPECT_TRUE(hurry().empty()) << "nobody owes anything";
  ASSERT_TRUE(*receive(1));
  EXPECT_EQ(hurry(), std::vector{kAck});
  EXPECT_TRUE(hurry().empty());
  send();
  collect();
  EXPECT_EQ(hurry(), std::vector{kPing});
  ASSERT_TRUE(hear(1).ok());
  EXPECT_TRUE(hurry().empty());
}

TEST_F(LinkTest, AnAcknowledgementGoesAloneAfter64Messages) {
  make();
  adopt();
  for (uint64_t number = 1; number <= 64; ++number) {
    Step step(now_);
    ASSERT_TRUE(*receive(number, &step));
    EXPECT_EQ(step.flushes.size(), number < 64 ? 0u : 1u) << number;
  }
  EXPECT_EQ(collect().at(0).header.acknowledged, 64u);
}

TEST_F(LinkTest, APingIsAnsweredAtOnce) {
  make();
  adopt();
  EXPECT_EQ(run([&](Step& step) { link().on_ping(step); }).flushes.size(), 1u);
  EXPECT_EQ(kinds(collect()), std::vector{kAck});
}

}  // namespace
}  // namespace holdfast::test
