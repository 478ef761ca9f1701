// All links of one worker: who may connect, what is refused and how, and what hostile bytes lead to.
#include <holdfast/link/links.h>

#include <set>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

constexpr Kind kTestKind{96};
constexpr Kind kBadKind{97};  // the receiver says that it does not decode

template <class T>
InFrame frame_of(Kind kind, const T& value, FrameHeader header = {}) {
  InFrame frame{.header = header, .message = {.kind = kind, .body = {}, .attachments = {}}};
  frame.header.kind = kind;
  wire::Writer writer(frame.message);
  wire::encode(writer, value);
  return frame;
}

InFrame numbered(uint64_t sequence, Kind kind = kTestKind, uint64_t acknowledged = 0) {
  return {.header = {.kind = kind, .sequence = sequence, .acknowledged = acknowledged},
          .message = {.kind = kind, .body = Bytes(4, 0), .attachments = {}}};
}

MessagePtr message_of(size_t bytes) {
  return std::make_shared<const Message>(Message{.kind = kTestKind, .body = Bytes(bytes, 0), .attachments = {}});
}

class LinksTest : public testing::Test, public LinkReceiver {
 protected:
  LinksTest() { make(); }
  void make() { links_.emplace(options_, *this, ids_, Random(3)); }
  Links& links() { return *links_; }

  void join() { links().set_self({.name = "self", .rank = {0}, .incarnation = {1}, .address = "self:1"}); }
  static WorkerPtr peer(uint32_t rank = 1, uint32_t incarnation = 5) {
    return std::make_shared<const WorkerInfo>(WorkerInfo{.name = "worker" + std::to_string(rank),
                                                         .rank = {rank},
                                                         .incarnation = {incarnation},
                                                         .address = "peer:" + std::to_string(rank)});
  }
  static Hello hello(uint64_t epoch = 1, WorkerPtr from = peer()) {
    return {.job = "", .from = *from, .to_rank = {0}, .to_incarnation = {1}, .epoch = epoch};
  }

  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    return step;
  }
  uint64_t send(const WorkerPtr& to, size_t bytes = 10) {
    uint64_t number = 0;
    run([&](Step& step) { number = links().send(step, to, message_of(bytes), true); });
    return number;
  }
  ConnectionId accept(Step* at = nullptr) {
    const ConnectionId connection{next_accepted_ += 2};
    Step step = run([&](Step& step) { links().on_accepted(step, connection); });
    if (at != nullptr) *at = std::move(step);
    return connection;
  }
  Step feed(ConnectionId connection, std::vector<InFrame> frames) {
    return run([&](Step& step) { links().on_frames(step, connection, frames); });
  }
  Step feed(ConnectionId connection, InFrame frame) {
    std::vector<InFrame> frames;
    frames.push_back(std::move(frame));
    return feed(connection, std::move(frames));
  }
  std::vector<OutFrame> collect(ConnectionId connection) {
    std::vector<OutFrame> out;
    links().collect(connection, 1 << 20, out);
    return out;
  }
  // A connection from `from` that is up; what went out on it so far is thrown away.
  ConnectionId connected(const WorkerPtr& from = peer(), uint64_t epoch = 1) {
    const ConnectionId connection = accept();
    feed(connection, frame_of(kHello, hello(epoch, from)));
    EXPECT_EQ(collect(connection).at(0).header.kind, kWelcome);
    return connection;
  }
  // What a stranger is told that says this HELLO.
  Refused refusal(const Hello& said) {
    const ConnectionId connection = accept();
    const Step step = feed(connection, frame_of(kHello, said));
    EXPECT_TRUE(step.closes.empty()) << "the dialler closes";
    EXPECT_TRUE(step.trusts.empty());
    const std::vector<OutFrame> frames = collect(connection);
    EXPECT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames.at(0).header.kind, kRefused);
    EXPECT_EQ(links().link_count(), 0u);
    return wire::decode_message<Refused>(*frames.at(0).message).take();
  }
  void expect_corrupt(const Step& step, ConnectionId connection) {
    ASSERT_EQ(step.closes.size(), 1u);
    EXPECT_EQ(step.closes[0].connection, connection);
    EXPECT_EQ(step.closes[0].why.code, Code::corrupt) << step.closes[0].why.message;
    EXPECT_FALSE(links().owns(connection));
    EXPECT_TRUE(collect(connection).empty());
  }

  Status on_message(Step& step, const WorkerPtr& from, Message message) override {
    got_.push_back(std::move(message));
    if (losing_) links().lose(step, from->id(), {.code = Code::worker_lost, .message = "lost in its own message"});
    if (got_.back().kind == kBadKind) return Failure{.code = Code::corrupt, .message = "does not decode"};
    return {};
  }
  void on_fenced(Step&, const std::string& text) override { fenced_.push_back(text); }

  LinkOptions options_;
  ConnectionIds ids_;
  std::optional<Links> links_;
  Time now_ = Time{} + 1h;
  uint64_t next_accepted_ = 1;
  std::vector<Message> got_;
  std::vector<std::string> fenced_;
  bool losing_ = false;
  uint64_t epoch_for_tests_ = 0;
};

// ---- strangers

TEST_F(LinksTest, BeforeJoiningEveryHelloIsToldToComeLater) {
  const Refused refused = refusal(hello());
  EXPECT_EQ(refused.reason, RefusedReason::busy);
  EXPECT_EQ(refused.epoch, 0u);
}

TEST_F(LinksTest, AnotherJobIsAStranger) {
  join();
  Hello other = hello();
  other.job = "other";
  EXPECT_EQ(refusal(other).reason, RefusedReason::stranger);
}

TEST_F(LinksTest, WhoeverLooksForSomebodyElseIsAStranger) {
  join();
  Hello rank = hello();
  rank.to_rank = {4};
  EXPECT_EQ(refusal(rank).reason, RefusedReason::stranger);
  Hello life = hello();
  life.to_incarnation = {2};
  const Refused refused = refusal(life);
  EXPECT_EQ(refused.reason, RefusedReason::stranger);
  EXPECT_EQ(refused.text, "this is self (rank 0, incarnation 1), not rank 0, incarnation 2");
}

TEST_F(LinksTest, NobodyElseMayPassForThisWorker) {
  join();
  EXPECT_EQ(refusal(hello(1, peer(0, 1))).reason, RefusedReason::stranger);
  EXPECT_EQ(refusal(hello(1, peer(0, 2))).reason, RefusedReason::stranger);
}

TEST_F(LinksTest, TheLostAreFenced) {
  join();
  run([&](Step& step) { links().lose(step, peer()->id(), {}); });
  EXPECT_EQ(refusal(hello()).reason, RefusedReason::fenced);
  EXPECT_EQ(refusal(hello(1, peer(1, 4))).reason, RefusedReason::fenced) << "an earlier life";
  connected(peer(1, 6));
  EXPECT_EQ(links().link_count(), 1u) << "a later one is welcome";
}

TEST_F(LinksTest, AnOldHelloIsToldTheEpochToGoPast) {
  join();
  connected(peer(), 6);
  const ConnectionId late = accept();
  feed(late, frame_of(kHello, hello(6)));
  const Refused refused = wire::decode_message<Refused>(*collect(late).at(0).message).take();
  EXPECT_EQ(refused.reason, RefusedReason::busy);
  EXPECT_EQ(refused.epoch, 6u);
}

TEST_F(LinksTest, AnythingBeforeHelloIsCorrupt) {
  join();
  for (InFrame frame : {numbered(1), numbered(0, kPing), numbered(0, kWelcome), numbered(0, Kind{4711}),
                        numbered(0, kHello), frame_of(kHello, hello(), {.sequence = 1})}) {
    const ConnectionId connection = accept();
    expect_corrupt(feed(connection, std::move(frame)), connection);
  }
  EXPECT_EQ(links().link_count(), 0u);
}

TEST_F(LinksTest, StrangersHaveATimeLimit) {
  join();
  const ConnectionId silent = accept();
  const ConnectionId refused = accept();
  Hello other = hello();
  other.job = "other";
  feed(refused, frame_of(kHello, other));
  EXPECT_EQ(links().next_wakeup(), now_ + options_.dial_timeout);
  now_ += options_.dial_timeout;
  const Step step = run([&](Step& step) { links().on_time(step); });
  ASSERT_EQ(step.closes.size(), 2u);
  EXPECT_EQ(step.closes[0].connection, silent);
  EXPECT_EQ(step.closes[1].connection, refused);
  EXPECT_GT(links().next_wakeup(), now_);
  for (ConnectionId connection : {silent, refused}) {
    run([&](Step& step) { links().on_closed(step, connection, {}); });
  }
  EXPECT_EQ(links().connection_count(), 0u);
}

TEST_F(LinksTest, OnlySoManyStrangersAreListenedTo) {
  join();
  for (size_t i = 0; i < options_.strangers_max; ++i) accept();
  Step step(now_);
  const ConnectionId over = accept(&step);
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, over);
  EXPECT_EQ(step.closes[0].why.code, Code::overloaded);
  EXPECT_EQ(links().connection_count(), options_.strangers_max);
  EXPECT_TRUE(feed(over, frame_of(kHello, hello())).flushes.empty()) << "it may have said HELLO before it was closed";
  EXPECT_EQ(links().link_count(), 0u);
}

TEST_F(LinksTest, AWelcomedStrangerIsOneNoLonger) {
  join();
  const ConnectionId connection = connected();
  now_ += options_.dial_timeout * 2;
  EXPECT_TRUE(run([&](Step& step) { links().on_time(step); }).closes.empty());
  EXPECT_EQ(links().connection_to(peer()->id()), connection);
}

// ---- frames

TEST_F(LinksTest, MessagesAreDeliveredOnceAndInOrder) {
  join();
  const ConnectionId connection = connected();
  std::vector<InFrame> frames;
  for (const uint64_t number : {1, 2, 2, 1, 3}) frames.push_back(numbered(number));
  EXPECT_TRUE(feed(connection, std::move(frames)).closes.empty());
  EXPECT_EQ(got_.size(), 3u);
}

TEST_F(LinksTest, ASecondHelloIsCorrupt) {
  join();
  const ConnectionId connection = connected();
  expect_corrupt(feed(connection, frame_of(kHello, hello(9))), connection);
}

TEST_F(LinksTest, AMessageWithoutANumberIsCorrupt) {
  join();
  for (const Kind kind : {kTestKind, kWelcome, kRefused, Kind{0}, Kind{15}, Kind{65535}}) {
    const ConnectionId connection = connected(peer(), ++epoch_for_tests_);
    expect_corrupt(feed(connection, numbered(0, kind)), connection);
  }
  EXPECT_TRUE(got_.empty());
}

TEST_F(LinksTest, AskingAReliableTransportToSendAgainIsCorrupt) {
  join();
  const ConnectionId connection = connected();
  expect_corrupt(feed(connection, numbered(0, kResend)), connection);
}

TEST_F(LinksTest, AMessageThatDoesNotDecodeEndsTheConnectionButNotTheLink) {
  join();
  const ConnectionId connection = connected();
  std::vector<InFrame> frames;
  frames.push_back(numbered(1, kBadKind));
  frames.push_back(numbered(2));
  expect_corrupt(feed(connection, std::move(frames)), connection);
  EXPECT_EQ(got_.size(), 1u) << "nothing after it is read";
  const ConnectionId next = connected(peer(), 2);
  EXPECT_TRUE(feed(next, numbered(2)).closes.empty());
  EXPECT_EQ(got_.size(), 2u);
}

TEST_F(LinksTest, LyingHeadersEndTheConnection) {
  join();
  const FrameHeader lies[] = {{.sequence = 1, .acknowledged = 1},
                              {.sequence = 1, .acknowledged = UINT64_MAX},
                              {.sequence = 1, .credit_bytes = 1},
                              {.sequence = 2},
                              {.sequence = UINT64_MAX}};
  for (const FrameHeader& lie : lies) {
    const ConnectionId connection = connected(peer(), ++epoch_for_tests_);
    InFrame frame = numbered(1);
    frame.header = lie;
    expect_corrupt(feed(connection, std::move(frame)), connection);
  }
  EXPECT_TRUE(got_.empty());
}

TEST_F(LinksTest, AHelloThatLiesLeavesNothingConnected) {
  join();
  const ConnectionId connection = accept();
  expect_corrupt(feed(connection, frame_of(kHello, hello(), {.acknowledged = 3})), connection);
  EXPECT_EQ(links().connection_count(), 0u);
}

TEST_F(LinksTest, AHandshakeAnsweredWithNonsenseIsTriedAgain) {
  join();
  send(peer());
  for (InFrame answer : {numbered(1), numbered(0, kPing), numbered(0, kWelcome), numbered(0, kRefused)}) {
    const ConnectionId connection = links().find(peer()->id())->connection();
    run([&](Step& step) { links().on_connected(step, connection); });
    expect_corrupt(feed(connection, std::move(answer)), connection);
    now_ = links().next_wakeup();
    EXPECT_EQ(run([&](Step& step) { links().on_time(step); }).dials.size(), 1u);
  }
}

TEST_F(LinksTest, WhatArrivesOnAReplacedConnectionIsIgnored) {
  join();
  const ConnectionId old = connected(peer(), 1);
  const ConnectionId current = connected(peer(), 2);
  EXPECT_FALSE(links().owns(old));
  EXPECT_TRUE(feed(old, numbered(1)).closes.empty());
  EXPECT_TRUE(got_.empty());
  run([&](Step& step) { links().on_closed(step, old, {}); });
  EXPECT_EQ(links().connection_to(peer()->id()), current) << "its end is not the end of the new one";
}

TEST_F(LinksTest, APeerMaySayThatThisWorkerIsFenced) {
  join();
  send(peer());
  const ConnectionId connection = links().find(peer()->id())->connection();
  run([&](Step& step) { links().on_connected(step, connection); });
  const Step step =
      feed(connection, frame_of(kRefused, Refused{.reason = RefusedReason::fenced, .text = "you are dead"}));
  EXPECT_EQ(fenced_, std::vector<std::string>{"you are dead"});
  EXPECT_EQ(step.closes.size(), 1u);
  EXPECT_FALSE(links().owns(connection));
}

// ---- losing a peer

TEST_F(LinksTest, LosingAConnectedPeerClosesAndFreesOutsideTheLock) {
  join();
  const ConnectionId connection = connected();
  send(peer());
  send(peer());
  const Step step = run([&](Step& step) { links().lose(step, peer()->id(), {.code = Code::worker_lost}); });
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, connection);
  EXPECT_EQ(step.garbage.size(), 2u);
  EXPECT_TRUE(step.room_opened) << "whoever waits for room must learn of it";
  EXPECT_EQ(links().link_count(), 0u);
  EXPECT_EQ(links().connection_count(), 0u);
  EXPECT_EQ(send(peer()), 0u);
  EXPECT_TRUE(links().has_room(peer()->id(), 1));
  EXPECT_TRUE(feed(connection, numbered(1)).closes.empty());
  EXPECT_TRUE(got_.empty()) << "what still arrives from the dead is not heard";
}

TEST_F(LinksTest, LosingAPeerThatIsBeingDialledEndsTheAttempt) {
  join();
  send(peer());
  const ConnectionId connection = links().find(peer()->id())->connection();
  const Step step = run([&](Step& step) { links().lose(step, peer()->id(), {.code = Code::worker_lost}); });
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].connection, connection);
  EXPECT_EQ(step.garbage.size(), 1u);
  // It connects all the same before it closes.
  EXPECT_TRUE(run([&](Step& step) { links().on_connected(step, connection); }).flushes.empty());
  EXPECT_TRUE(collect(connection).empty());
  run([&](Step& step) { links().on_closed(step, connection, {}); });
  EXPECT_EQ(links().next_wakeup(), kNever);
}

TEST_F(LinksTest, LosingALifeLeavesTheNextOneAlone) {
  join();
  connected(peer(1, 6));
  run([&](Step& step) { links().lose(step, peer(1, 5)->id(), {}); });
  EXPECT_EQ(links().link_count(), 1u);
  EXPECT_EQ(send(peer(1, 6)), 1u);
  EXPECT_EQ(send(peer(1, 5)), 0u);
}

TEST_F(LinksTest, AMessageMayEndItsOwnLink) {
  join();
  const ConnectionId connection = connected();
  losing_ = true;
  std::vector<InFrame> frames;
  frames.push_back(numbered(1));
  frames.push_back(numbered(2));
  EXPECT_EQ(feed(connection, std::move(frames)).closes.size(), 1u);
  EXPECT_EQ(got_.size(), 1u);
  EXPECT_EQ(links().link_count(), 0u);
}

TEST_F(LinksTest, AfterTheEndNothingIsSentOrAccepted) {
  join();
  const ConnectionId up = connected(peer(1));
  send(peer(1));
  send(peer(2));
  const ConnectionId dialled = links().find(peer(2)->id())->connection();
  const ConnectionId stranger = accept();
  const Step step = run([&](Step& step) { links().close_all(step, {.code = Code::shutdown}); });
  std::set<ConnectionId> closed;
  for (const Step::Close& close : step.closes) closed.insert(close.connection);
  EXPECT_EQ(closed, (std::set{up, dialled, stranger}));
  EXPECT_EQ(step.garbage.size(), 2u);
  EXPECT_EQ(links().next_wakeup(), kNever) << "nobody is dialled again";
  EXPECT_TRUE(links().settled());
  EXPECT_EQ(send(peer(1)), 0u);
  Step late(now_);
  accept(&late);
  EXPECT_EQ(late.closes.size(), 1u);
}

// ---- anything at all

// Frames of every kind with headers and bodies at random, on connections in every state: nothing crashes, the
// time of the next wake-up never stays in the past, and connections do not pile up.
TEST_F(LinksTest, RandomFramesNeverBreakIt) {
  for (const bool reliable : {true, false}) {
    options_.reliable = reliable;
    options_.strangers_max = 8;
    make();
    join();
    Random random(11);
    std::vector<ConnectionId> open;
    for (int i = 0; i < 20000; ++i) {
      if (open.size() < 6 && random.chance(0.3)) open.push_back(accept());
      if (random.chance(0.1)) send(peer(1 + static_cast<uint32_t>(random.below(3))));
      if (random.chance(0.02)) {
        run([&](Step& step) { links().lose(step, {{1}, {static_cast<uint32_t>(random.below(5))}}, {}); });
      }
      std::vector<InFrame> frames;
      for (uint64_t count = random.below(3); count > 0; --count) {
        InFrame frame = random.chance(0.4) ? frame_of(kHello, hello(random.below(4), peer(1 + random.below(3))))
                                           : numbered(0, Kind{static_cast<uint16_t>(random.below(8))});
        if (random.chance(0.3)) frame.message.body = Bytes(random.below(30), static_cast<uint8_t>(random.next()));
        if (random.chance(0.5)) frame.header.sequence = random.below(4);
        if (random.chance(0.2)) frame.header.acknowledged = random.below(3);
        if (random.chance(0.1)) frame.header.credit_bytes = random.next() >> random.below(64);
        frames.push_back(std::move(frame));
      }
      Step step(now_);
      if (!open.empty()) links().on_frames(step, open[random.below(open.size())], frames);
      now_ += Duration(random.below(300'000'000));
      step.now = now_;
      links().on_time(step);
      for (const Step::Dial& dial : step.dials) open.push_back(dial.connection);
      for (const Step::Dial& dial : step.dials) links().on_connected(step, dial.connection);
      for (ConnectionId connection : std::vector(open)) collect(connection);
      for (const Step::Close& close : step.closes) {
        links().on_closed(step, close.connection, close.why);
        std::erase(open, close.connection);
      }
      ASSERT_GT(links().next_wakeup(), now_);
      ASSERT_LE(links().connection_count(), 40u);
      ASSERT_LE(links().link_count(), 10u);
    }
  }
}

}  // namespace
}  // namespace holdfast
