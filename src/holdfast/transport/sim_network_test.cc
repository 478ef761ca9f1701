// What is the simulator's own: its clock, its mishaps, and that one seed is one history.
#include <holdfast/transport/sim_network.h>

#include <functional>

#include <gtest/gtest.h>

#include <holdfast/transport/faulty.h>
#include <holdfast/transport/test_support.h>

namespace holdfast {
namespace {

using test::kAccepted;
using test::kDialled;
using test::kEnough;
using test::make_frame;
using test::Recorder;
using namespace std::chrono_literals;

class SimTest : public testing::Test {
 protected:
  void open() {
    at_a.trusting = a.get();
    at_b.trusting = b.get();
    a->connect(kDialled, "b");
    run_all();
    ASSERT_TRUE(at_a.connected(kDialled));
  }
  void run_all() {
    while (network.step()) {
    }
  }
  void send(uint64_t sequence) {
    at_a.put(kDialled, make_frame(sequence, 10));
    a->flush(kDialled);
  }
  Recorder at_a, at_b;
  SimNetwork network{{.seed = 5}};
  std::unique_ptr<Transport> a = network.make_transport("a", at_a);
  std::unique_ptr<Transport> b = network.make_transport("b", at_b);
};

TEST_F(SimTest, TimersRunInOrderOfTimeThenOfInsertion) {
  std::vector<int> order;
  network.schedule(Time(2ms), [&] { order.push_back(3); });
  network.schedule(Time(1ms), [&] { order.push_back(1); });
  network.schedule(Time(1ms), [&] { order.push_back(2); });
  network.schedule(Time(9ms), [&] { order.push_back(4); });
  EXPECT_EQ(network.next_event_at(), Time(1ms));
  network.run_until(Time(5ms));
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
  EXPECT_EQ(network.now(), Time(5ms));
  network.schedule(Time(1ms), [&] { order.push_back(5); });
  EXPECT_TRUE(network.step());
  EXPECT_EQ(network.now(), Time(5ms)) << "the past is now";
  EXPECT_TRUE(network.step());
  EXPECT_FALSE(network.step());
  EXPECT_EQ(order, (std::vector{1, 2, 3, 5, 4}));
}

TEST_F(SimTest, ShortPartitionOnlyDelays) {
  open();
  network.partition("b", "a");
  for (uint64_t i = 1; i <= 5; ++i) send(i);
  network.run_until(network.now() + 1s);
  EXPECT_EQ(at_b.frame_count(kAccepted), 0u);
  network.heal();
  send(6);
  run_all();
  const auto got = at_b.frames(kAccepted);
  ASSERT_EQ(got.size(), 6u);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].header.sequence, i + 1);
  EXPECT_FALSE(at_a.closed(kDialled));
}

TEST_F(SimTest, LongPartitionClosesBothSides) {
  open();
  network.partition("a", "b");
  send(1);
  run_all();
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_TRUE(at_b.closed(kAccepted));
  EXPECT_EQ(at_a.why(kDialled).code, Code::unavailable);
  EXPECT_EQ(at_b.frame_count(kAccepted), 0u);
  a->connect(ConnectionId{4}, "b");
  run_all();
  EXPECT_TRUE(at_a.closed(ConnectionId{4}));
  network.heal();
  a->connect(ConnectionId{6}, "b");
  run_all();
  EXPECT_TRUE(at_a.connected(ConnectionId{6}));
}

TEST_F(SimTest, PartitionTouchesNobodyElse) {
  open();
  Recorder at_c;
  const auto c = network.make_transport("c", at_c);
  network.partition("a", "c");
  send(1);
  run_all();
  EXPECT_EQ(at_b.frame_count(kAccepted), 1u);
}

TEST_F(SimTest, CutResetsWhatIsThereAndNothingElse) {
  open();
  send(1);
  network.cut("b", "a");
  run_all();
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_TRUE(at_b.closed(kAccepted));
  EXPECT_EQ(at_b.frame_count(kAccepted), 0u) << "what was under way is lost";
  a->connect(ConnectionId{4}, "b");
  run_all();
  EXPECT_TRUE(at_a.connected(ConnectionId{4}));
}

TEST_F(SimTest, CrashIsSeenByThePeerAndNotByTheDead) {
  open();
  at_b.put(kAccepted, make_frame(1, 10));
  b->flush(kAccepted);
  network.take_down("b");
  send(1);
  run_all();
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_EQ(at_a.frame_count(kDialled), 0u) << "what it sent vanishes with it";
  EXPECT_FALSE(at_b.closed(kAccepted));
  EXPECT_EQ(at_b.frame_count(kAccepted), 0u);
  // The dead may still be called by those who do not know yet.
  b->connect(ConnectionId{2}, "a");
  b->flush(kAccepted);
  b->close(kAccepted, kEnough);
  a->connect(ConnectionId{4}, "b");
  run_all();
  EXPECT_TRUE(at_a.closed(ConnectionId{4}));
  EXPECT_EQ(at_a.accepted().size(), 0u);
  // And the next one of that name is somebody new.
  Recorder at_next;
  const auto next = network.make_transport("b", at_next);
  a->connect(ConnectionId{6}, "b");
  run_all();
  EXPECT_TRUE(at_a.connected(ConnectionId{6}));
  EXPECT_EQ(at_next.accepted().size(), 1u);
  b = nullptr;
  run_all();
  EXPECT_FALSE(at_a.closed(ConnectionId{6})) << "destroying the dead does not touch its successor";
}

TEST_F(SimTest, TraceSeesEveryFrame) {
  std::vector<std::string> lines;
  network.set_trace([&](Time time, const std::string& from, const std::string& to, const FrameHeader& header,
                        const Message& message) {
    EXPECT_EQ(time, network.now());
    lines.push_back(from + to + std::to_string(header.sequence) + ":" + std::to_string(message.body.size()));
  });
  open();
  send(1);
  send(2);
  run_all();
  EXPECT_EQ(lines, (std::vector<std::string>{"ab1:10", "ab2:10"}));
}

// A busy little world; answers its hash.
uint64_t history(uint64_t seed, uint64_t last_sequence) {
  SimNetwork network({.seed = seed, .loss = 0.1, .duplication = 0.1, .reordering = 0.2});
  Recorder at_a, at_b;
  const FaultPlan plan = {.drop = 0.1, .duplicate = 0.1, .delay = 0.2, .reorder = 0.2, .seed = seed};
  FaultyTransport a(
      at_a, plan, [&] { return network.now(); },
      [&](TransportEvents& events) { return network.make_transport("a", events); });
  const auto b = network.make_transport("b", at_b);
  at_a.trusting = &a;
  at_b.trusting = b.get();
  a.connect(kDialled, "b");
  for (uint64_t i = 1; i <= last_sequence; ++i) {
    at_a.put(kDialled, make_frame(i, i));
    a.flush(kDialled);
    network.step();
    if (a.next_wakeup() <= network.now()) a.on_time(network.now());
  }
  network.run_until(Time(1s));
  network.take_down("b");
  network.run_until(Time(9s));
  return network.trace_hash();
}

TEST(SimHistoryTest, OneSeedIsOneHistory) {
  EXPECT_EQ(history(1, 200), history(1, 200));
  EXPECT_NE(history(1, 200), history(2, 200));
  EXPECT_NE(history(1, 200), history(1, 100));
}

// ---- the decorator, where the clock is ours ----

class FaultyTest : public testing::Test {
 protected:
  void open(FaultPlan plan) {
    a = std::make_unique<FaultyTransport>(
        at_a, plan, [&] { return network.now(); },
        [&](TransportEvents& events) { return network.make_transport("a", events); });
    b = network.make_transport("b", at_b);
    a->connect(kDialled, "b");
    run_all();
  }
  void run_all() {
    while (network.step()) {
    }
  }
  void send(uint64_t first, uint64_t last) {
    for (uint64_t i = first; i <= last; ++i) at_a.put(kDialled, make_frame(i, 10));
    a->flush(kDialled);
    run_all();
  }
  std::vector<uint64_t> received() {
    std::vector<uint64_t> sequences;
    for (const InFrame& frame : at_b.frames(kAccepted)) sequences.push_back(frame.header.sequence);
    return sequences;
  }
  Recorder at_a, at_b;
  SimNetwork network;
  std::unique_ptr<FaultyTransport> a;
  std::unique_ptr<Transport> b;
};

TEST_F(FaultyTest, DropsEveryFrame) {
  open({.drop = 1});
  EXPECT_FALSE(a->reliable());
  send(1, 20);
  EXPECT_EQ(received(), (std::vector<uint64_t>{}));
  EXPECT_EQ(a->counts().dropped, 20u);
  a->calm_down();
  send(21, 22);
  EXPECT_EQ(received(), (std::vector<uint64_t>{21, 22}));
}

TEST_F(FaultyTest, DuplicatesEveryFrame) {
  open({.duplicate = 1});
  send(1, 2);
  EXPECT_EQ(received(), (std::vector<uint64_t>{1, 1, 2, 2}));
  EXPECT_EQ(a->counts().duplicated, 2u);
}

TEST_F(FaultyTest, DelaysUntilItsTimeHasCome) {
  open({.delay = 1, .delay_max = 10ms});
  EXPECT_EQ(a->next_wakeup(), kNever);
  send(1, 3);
  EXPECT_EQ(received(), (std::vector<uint64_t>{}));
  EXPECT_EQ(a->counts().delayed, 3u);
  for (size_t arrived = 0; arrived < 3;) {
    const Time wakeup = a->next_wakeup();
    ASSERT_NE(wakeup, kNever);
    ASSERT_LE(wakeup, network.now() + 10ms);
    network.run_until(wakeup);
    a->on_time(network.now());
    run_all();
    ASSERT_GT(received().size(), arrived);
    arrived = received().size();
  }
  EXPECT_EQ(a->next_wakeup(), kNever);
}

TEST_F(FaultyTest, ReordersWithTheNextOrAfterAWhile) {
  open({.reorder = 1, .delay_max = 10ms});
  // While one waits the next is not chosen: so pairs are swapped.
  send(1, 5);
  EXPECT_EQ(received(), (std::vector<uint64_t>{2, 1, 4, 3}));
  network.run_until(a->next_wakeup());
  a->on_time(network.now());
  run_all();
  EXPECT_EQ(received(), (std::vector<uint64_t>{2, 1, 4, 3, 5}));
  EXPECT_EQ(a->counts().reordered, 3u);
}

TEST_F(FaultyTest, CutsTheConnection) {
  open({.cut = 1});
  EXPECT_TRUE(a->reliable()) << "a connection may always break";
  send(1, 5);
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_TRUE(at_b.closed(kAccepted));
  EXPECT_EQ(received(), (std::vector<uint64_t>{}));
  EXPECT_EQ(a->counts().cut, 1u);
}

// ---- delivery by hand

using Arrival = SimNetwork::Arrival;

TEST_F(SimTest, ByHandNothingArrivesUnlessPicked) {
  open();
  network.take_over();
  send(1);
  send(2);
  network.schedule(network.now(), [] {});
  while (network.step()) {
  }
  EXPECT_EQ(at_b.frame_count(kAccepted), 0u);
  at_b.put(kAccepted, make_frame(7, 10));
  b->flush(kAccepted);
  // One for each direction, and behind it the rest.
  EXPECT_EQ(network.arrivals().size(), 2u);
  EXPECT_EQ(network.under_way().size(), 3u);
  for (const Arrival& arrival : network.arrivals()) EXPECT_EQ(arrival.what, Arrival::What::frame);
  const auto to = [&](const std::string& address) {
    for (const Arrival& arrival : network.arrivals()) {
      if (arrival.to == address) return arrival;
    }
    ADD_FAILURE() << "nothing is on its way to " << address;
    return Arrival{};
  };
  network.deliver(to("b"));
  EXPECT_EQ(at_b.frame_count(kAccepted), 1u);
  EXPECT_EQ(at_a.frame_count(kDialled), 0u);
  network.deliver(to("a"));
  EXPECT_EQ(at_a.frame_count(kDialled), 1u);
  network.swallow(to("b"));
  EXPECT_TRUE(network.arrivals().empty());
  EXPECT_EQ(at_b.frame_count(kAccepted), 1u);
}

TEST_F(SimTest, ByHandEachSideNoticesACutByItself) {
  open();
  network.take_over();
  send(1);
  network.cut("a", "b");
  auto arrivals = network.arrivals();
  ASSERT_EQ(arrivals.size(), 2u) << "the frame is gone";
  EXPECT_EQ(arrivals[0].what, Arrival::What::broken);
  EXPECT_EQ(arrivals[0].to, "a");
  EXPECT_EQ(arrivals[1].to, "b");
  network.deliver(arrivals[1]);
  EXPECT_FALSE(at_a.closed(kDialled));
  EXPECT_TRUE(at_b.closed(kAccepted));
  network.deliver(network.arrivals().at(0));
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_TRUE(network.arrivals().empty());
}

TEST_F(SimTest, ByHandDialsAndEndsArePickedToo) {
  network.take_over();
  const auto next = [&](Arrival::What what) {
    const auto arrivals = network.arrivals();
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].what, what);
    network.deliver(arrivals[0]);
  };
  a->connect(kDialled, "b");
  next(Arrival::What::dial);
  EXPECT_FALSE(at_a.connected(kDialled));
  next(Arrival::What::connected);
  EXPECT_TRUE(at_a.connected(kDialled));
  b->close(kAccepted, kEnough);
  auto arrivals = network.arrivals();
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].what, Arrival::What::finished);
  EXPECT_EQ(arrivals[1].what, Arrival::What::closed_here);
  network.deliver(arrivals[0]);
  EXPECT_TRUE(at_a.closed(kDialled));
  EXPECT_FALSE(at_b.closed(kAccepted));
  next(Arrival::What::closed_here);
  EXPECT_EQ(at_b.why(kAccepted).code, Code::cancelled);
  // Nobody listens there: refused.
  a->connect(ConnectionId{4}, "nobody");
  next(Arrival::What::dial);
  next(Arrival::What::broken);
  EXPECT_TRUE(at_a.closed(ConnectionId{4}));
  EXPECT_TRUE(network.arrivals().empty());
}

}  // namespace
}  // namespace holdfast
