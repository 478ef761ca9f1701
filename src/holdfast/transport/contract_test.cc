// The contract of transport.h, over every transport. What reliable transports promise is checked with exact
// expectations; what all of them promise, with faults switched on.
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/transport/faulty.h>
#include <holdfast/transport/security.h>
#include <holdfast/transport/sim_network.h>
#include <holdfast/transport/tcp.h>
#include <holdfast/transport/test_support.h>

namespace holdfast {
namespace {

using test::ApiCall;
using test::kDialled;
using test::kEnough;
using test::make_frame;
using test::Recorder;
using test::same;

// Two endpoints that can reach each other, and a way to let time pass.
class World {
 public:
  virtual ~World() = default;
  virtual std::string address_of_b() = 0;
  virtual std::string address_of_nobody() = 0;
  // Lets something happen; false if nothing ever will.
  virtual bool advance() = 0;
  virtual Time now() = 0;

  bool pump_until(const std::function<bool()>& done) {
    const Time give_up = steady_now() + std::chrono::seconds(60);
    while (!done()) {
      if (steady_now() > give_up) return false;
      tend();
      if (!advance() && !done()) return false;
    }
    return true;
  }
  // Releases what the faulty decorators hold back.
  void tend() {
    for (const auto* transport : {&a, &b}) {
      auto* faulty = dynamic_cast<FaultyTransport*>(transport->get());
      if (faulty != nullptr && faulty->next_wakeup() <= now()) faulty->on_time(now());
    }
  }
  Time next_wakeup() {
    Time next = kNever;
    for (const auto* transport : {&a, &b}) {
      if (auto* faulty = dynamic_cast<FaultyTransport*>(transport->get())) next = std::min(next, faulty->next_wakeup());
    }
    return next;
  }

  Recorder at_a, at_b;
  std::unique_ptr<Transport> a, b;
};

using Wrap = std::function<std::unique_ptr<Transport>(World&, TransportEvents&, const FaultyTransport::MakeInner&)>;

std::unique_ptr<Transport> bare(World&, TransportEvents& events, const FaultyTransport::MakeInner& make) {
  return make(events);
}

Wrap faulty(FaultPlan plan) {
  return [plan](World& world, TransportEvents& events, const FaultyTransport::MakeInner& make) {
    return std::make_unique<FaultyTransport>(
        events, plan, [&world] { return world.now(); }, make);
  };
}

class TcpWorld : public World {
 public:
  TcpWorld(const Wrap& wrap, bool shared_memory, const Security& security)
      : tls_(make_tls(security).take()), shared_memory_(shared_memory) {
    a = wrap(*this, at_a, [&](TransportEvents& events) { return make(events, tcp_a_); });
    b = wrap(*this, at_b, [&](TransportEvents& events) { return make(events, tcp_b_); });
    address_ = tcp_b_->listen({}).take();
    // A port on which somebody listened a moment ago, and nobody does now.
    Recorder nobody;
    TcpTransport gone(nobody);
    nobody_ = gone.listen({}).take();
  }
  ~TcpWorld() override {
    a = nullptr;
    b = nullptr;
  }
  std::string address_of_b() override { return address_; }
  std::string address_of_nobody() override { return nobody_; }
  Time now() override { return steady_now(); }
  bool advance() override {
    for (TcpTransport* tcp : {tcp_a_, tcp_b_}) {
      if (tcp != nullptr) tcp->poll(std::min(next_wakeup(), steady_now() + std::chrono::milliseconds(1)));
    }
    return true;
  }

 private:
  // Forgets the pointer when the transport goes.
  struct Watched : Transport {
    Watched(TransportEvents& events, TcpTransport*& place, const TcpOptions& options)
        : tcp(events, options), place_(place) {
      place_ = &tcp;
    }
    ~Watched() override { place_ = nullptr; }
    void connect(ConnectionId id, const std::string& address) override { tcp.connect(id, address); }
    void flush(ConnectionId id) override { tcp.flush(id); }
    void close(ConnectionId id, Failure why) override { tcp.close(id, std::move(why)); }
    void trust(ConnectionId id) override { tcp.trust(id); }
    bool reliable() const override { return tcp.reliable(); }
    TcpTransport tcp;
    TcpTransport*& place_;
  };
  std::unique_ptr<Transport> make(TransportEvents& events, TcpTransport*& place) {
    return std::make_unique<Watched>(
        events, place,
        TcpOptions{.tls = tls_, .handshake_timeout = test::kPatientHandshake, .shared_memory = shared_memory_});
  }
  const std::shared_ptr<const TlsContext> tls_;
  const bool shared_memory_;
  TcpTransport* tcp_a_ = nullptr;
  TcpTransport* tcp_b_ = nullptr;
  std::string address_, nobody_;
};

class SimWorld : public World {
 public:
  SimWorld(const Wrap& wrap, SimOptions options) : network_(options) {
    a = wrap(*this, at_a, [&](TransportEvents& events) { return network_.make_transport("a", events); });
    b = wrap(*this, at_b, [&](TransportEvents& events) { return network_.make_transport("b", events); });
  }
  ~SimWorld() override {
    a = nullptr;
    b = nullptr;
  }
  std::string address_of_b() override { return "b"; }
  std::string address_of_nobody() override { return "nobody"; }
  Time now() override { return network_.now(); }
  bool advance() override {
    const Time wakeup = next_wakeup();
    if (wakeup != kNever && wakeup <= network_.next_event_at()) {
      network_.run_until(wakeup);
      return true;
    }
    return network_.step();
  }

 private:
  SimNetwork network_;
};

struct Maker {
  std::string name;
  std::function<std::unique_ptr<World>()> make;
};

Maker tcp_world(std::string name, Wrap wrap, Security security = {}) {
  return {std::move(name), [wrap, security] { return std::make_unique<TcpWorld>(wrap, false, security); }};
}
Maker shared_memory_world(std::string name, Wrap wrap, Security security = {}) {
  return {std::move(name), [wrap, security] { return std::make_unique<TcpWorld>(wrap, true, security); }};
}
Maker sim_world(std::string name, Wrap wrap, SimOptions options = {}) {
  return {std::move(name), [wrap, options] { return std::make_unique<SimWorld>(wrap, options); }};
}

const FaultPlan kRough = {
    .drop = 0.1, .duplicate = 0.1, .delay = 0.1, .reorder = 0.1, .delay_max = std::chrono::milliseconds(2), .seed = 7};

std::vector<Maker> reliable_worlds() {
  return {tcp_world("tcp", bare),
          sim_world("sim", bare),
          sim_world("faulty_sim_without_faults", faulty({})),
          tcp_world("faulty_tcp_without_faults", faulty({})),
          tcp_world("tls", bare, {.mode = SecurityMode::secret, .secret = Secret("a secret of tests")}),
          tcp_world("tls_then_plain", bare, {.secret = Secret("a secret of tests")}),
          shared_memory_world("shared_memory", bare),
          shared_memory_world("faulty_shared_memory_without_faults", faulty({})),
          shared_memory_world("tls_then_shared_memory", bare,
                              {.mode = SecurityMode::secret, .secret = Secret("a secret of tests")})};
}
std::vector<Maker> unreliable_worlds() {
  return {sim_world("sim_lossy", bare, {.seed = 3, .loss = 0.1, .duplication = 0.1, .reordering = 0.1}),
          sim_world("faulty_sim", faulty(kRough)), tcp_world("faulty_tcp", faulty(kRough)),
          shared_memory_world("faulty_shared_memory", faulty(kRough))};
}
std::vector<Maker> all_worlds() {
  auto all = reliable_worlds();
  for (Maker& maker : unreliable_worlds()) all.push_back(std::move(maker));
  return all;
}
std::string name_of_maker(const testing::TestParamInfo<Maker>& info) { return info.param.name; }

class Contract : public testing::TestWithParam<Maker> {
 protected:
  void SetUp() override {
    world = GetParam().make();
    world->at_a.trusting = world->a.get();
    world->at_b.trusting = world->b.get();
  }
  // Connects a to b; answers b's name for the connection.
  ConnectionId open(ConnectionId id = kDialled) {
    const size_t before = world->at_b.accepted().size();
    {
      const ApiCall call;
      world->a->connect(id, world->address_of_b());
    }
    EXPECT_TRUE(world->pump_until([&] { return world->at_a.connected(id) && world->at_b.accepted().size() > before; }));
    return world->at_b.accepted().back();
  }
  void send(bool from_a, ConnectionId id, const std::vector<OutFrame>& frames) {
    for (const OutFrame& frame : frames) (from_a ? world->at_a : world->at_b).put(id, frame);
    const ApiCall call;
    (from_a ? world->a : world->b)->flush(id);
  }
  void close(bool from_a, ConnectionId id, Failure why) {
    const ApiCall call;
    (from_a ? world->a : world->b)->close(id, std::move(why));
  }
  std::unique_ptr<World> world;
};

class AnyTransport : public Contract {};
class ReliableTransport : public Contract {};
class UnreliableTransport : public Contract {};
INSTANTIATE_TEST_SUITE_P(Worlds, AnyTransport, testing::ValuesIn(all_worlds()), name_of_maker);
INSTANTIATE_TEST_SUITE_P(Worlds, ReliableTransport, testing::ValuesIn(reliable_worlds()), name_of_maker);
INSTANTIATE_TEST_SUITE_P(Worlds, UnreliableTransport, testing::ValuesIn(unreliable_worlds()), name_of_maker);

TEST_P(AnyTransport, ConnectsAndAccepts) {
  const ConnectionId accepted = open();
  EXPECT_FALSE(world->at_a.closed(kDialled));
  EXPECT_FALSE(world->at_b.closed(accepted));
  const ConnectionId second = open(ConnectionId{4});
  EXPECT_NE(accepted, second);
}

TEST_P(AnyTransport, ConnectingToNobodyClosesOnce) {
  {
    const ApiCall call;
    world->a->connect(kDialled, world->address_of_nobody());
  }
  ASSERT_TRUE(world->pump_until([&] { return world->at_a.closed(kDialled); }));
  EXPECT_FALSE(world->at_a.connected(kDialled));
  EXPECT_EQ(world->at_a.why(kDialled).code, Code::unavailable);
  EXPECT_NE(world->at_a.why(kDialled).message.find(world->address_of_nobody()), std::string::npos);
}

TEST_P(AnyTransport, CloseIsSeenOnceByBothSides) {
  const ConnectionId accepted = open();
  close(true, kDialled, kEnough);
  close(true, kDialled, {.code = Code::shutdown, .message = "again"});
  ASSERT_TRUE(world->pump_until([&] { return world->at_a.closed(kDialled) && world->at_b.closed(accepted); }));
  EXPECT_EQ(world->at_a.why(kDialled).code, Code::cancelled) << "the first reason stays";
  EXPECT_EQ(world->at_b.why(accepted).code, Code::unavailable);
  // Late calls on what is gone do nothing (the recorder fails on any event after on_closed).
  close(true, kDialled, kEnough);
  close(false, accepted, kEnough);
  send(true, kDialled, {make_frame(1, 10)});
  const ConnectionId next = open(ConnectionId{4});
  close(false, next, kEnough);
  ASSERT_TRUE(world->pump_until([&] { return world->at_a.closed(ConnectionId{4}) && world->at_b.closed(next); }));
}

TEST_P(AnyTransport, CloseWhileConnecting) {
  {
    const ApiCall call;
    world->a->connect(kDialled, world->address_of_b());
    world->a->close(kDialled, kEnough);
  }
  ASSERT_TRUE(world->pump_until([&] { return world->at_a.closed(kDialled); }));
  EXPECT_EQ(world->at_a.why(kDialled).code, Code::cancelled);
}

TEST_P(AnyTransport, BothCloseAtTheSameTime) {
  const ConnectionId accepted = open();
  close(true, kDialled, kEnough);
  close(false, accepted, kEnough);
  ASSERT_TRUE(world->pump_until([&] { return world->at_a.closed(kDialled) && world->at_b.closed(accepted); }));
}

TEST_P(AnyTransport, FlushWithNothingToSend) {
  const ConnectionId accepted = open();
  send(true, kDialled, {});
  send(false, accepted, {});
  send(true, ConnectionId{1000}, {});
  close(true, kDialled, kEnough);
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.closed(accepted); }));
  EXPECT_EQ(world->at_b.frame_count(accepted), 0u);
}

TEST_P(AnyTransport, DestroyedWithOpenConnections) {
  const ConnectionId accepted = open();
  open(ConnectionId{4});
  send(true, kDialled, {make_frame(1, 100)});
  world->at_a.trusting = nullptr;
  world->a = nullptr;
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.closed(accepted); }));
  EXPECT_FALSE(world->at_a.closed(kDialled)) << "no event comes of the destructor";
}

TEST_P(AnyTransport, NobodyTrustedMayNotSendLargeFrames) {
  world->at_b.trusting = nullptr;
  const ConnectionId accepted = open();
  // More than once, for a transport that may lose it.
  for (uint64_t i = 0; i < 30 && !world->at_b.closed(accepted); ++i) {
    send(true, kDialled, {make_frame(i, kUntrustedFrameBytesMax + 1)});
  }
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.closed(accepted) && world->at_a.closed(kDialled); }));
  EXPECT_EQ(world->at_b.why(accepted).code, Code::corrupt);
  EXPECT_NE(world->at_b.why(accepted).message.find("65537"), std::string::npos) << world->at_b.why(accepted).message;
  EXPECT_NE(world->at_b.why(accepted).message.find("65536"), std::string::npos) << world->at_b.why(accepted).message;
  EXPECT_EQ(world->at_b.frame_count(accepted), 0u);
}

TEST_P(ReliableTransport, NobodyTrustedMayNotSendAttachments) {
  world->at_b.trusting = nullptr;
  const ConnectionId accepted = open();
  send(true, kDialled, {make_frame(1, kUntrustedFrameBytesMax), make_frame(2, 10), make_frame(3, 0, {1})});
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.closed(accepted); }));
  EXPECT_EQ(world->at_b.why(accepted).code, Code::corrupt);
  EXPECT_EQ(world->at_b.frame_count(accepted), 2u) << "what came before the wrong one is delivered";
}

// Trusts the peer in the event that brings frame 1: the large frame behind it may be there already.
class TrustsOnFirstFrame : public Recorder {
 public:
  Transport* transport = nullptr;

 protected:
  void on_some_frames(ConnectionId id, Connection&) override { transport->trust(id); }
};

TEST(TrustTest, TakesEffectForTheNextFrameOfTheSameRead) {
  Recorder at_a;
  TrustsOnFirstFrame at_b;
  TcpTransport a(at_a), b(at_b);
  at_b.transport = &b;
  a.connect(kDialled, b.listen({}).take());
  for (uint64_t i = 1; i <= 3; ++i) at_a.put(kDialled, make_frame(i, i == 1 ? 10 : 100'000, {}));
  const auto accepted_frames = [&] {
    return at_b.accepted().empty() ? size_t{0} : at_b.frame_count(at_b.accepted()[0]);
  };
  const Time give_up = steady_now() + std::chrono::seconds(60);
  while (accepted_frames() < 3 && steady_now() < give_up) {
    a.poll(steady_now() + std::chrono::milliseconds(1));
    b.poll(steady_now() + std::chrono::milliseconds(1));
  }
  EXPECT_EQ(accepted_frames(), 3u);
}

TEST_P(ReliableTransport, IsReliable) { EXPECT_TRUE(world->a->reliable()); }
TEST_P(UnreliableTransport, SaysSo) { EXPECT_FALSE(world->a->reliable()); }

TEST_P(ReliableTransport, FramesOfEverySizeArriveWholeAndInOrder) {
  const ConnectionId accepted = open();
  std::vector<OutFrame> frames;
  uint64_t sequence = 0;
  const size_t large = size_t{test::kSanitizer ? 1 : 8} << 20;
  for (const size_t bytes : std::vector<size_t>{0, 1, 31, 8191, 8192, 8193, 65535, 65536, 65537, large, 3}) {
    frames.push_back(make_frame(++sequence, bytes));
    frames.push_back(make_frame(++sequence, 5, {bytes}));
    frames.push_back(make_frame(++sequence, bytes, {0, 70'000, 1, bytes, 0}));
  }
  send(true, kDialled, frames);
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.frame_count(accepted) == frames.size(); }));
  const auto got = world->at_b.frames(accepted);
  for (size_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(same(frames[i], got[i])) << i;
}

TEST_P(ReliableTransport, ManyAttachments) {
  const ConnectionId accepted = open();
  const OutFrame frame = make_frame(1, 10, std::vector<size_t>(5000, 33));
  send(true, kDialled, {frame, make_frame(2, 1)});
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.frame_count(accepted) == 2; }));
  EXPECT_TRUE(same(frame, world->at_b.frames(accepted)[0]));
}

TEST_P(ReliableTransport, BothDirectionsAtOnce) {
  const ConnectionId accepted = open();
  std::vector<OutFrame> frames;
  for (uint64_t i = 1; i <= 20; ++i) frames.push_back(make_frame(i, 300'000, {500'000}));
  send(true, kDialled, frames);
  send(false, accepted, frames);
  ASSERT_TRUE(world->pump_until([&] {
    return world->at_b.frame_count(accepted) == frames.size() && world->at_a.frame_count(kDialled) == frames.size();
  }));
  const auto at_a = world->at_a.frames(kDialled), at_b = world->at_b.frames(accepted);
  for (size_t i = 0; i < frames.size(); ++i) {
    ASSERT_TRUE(same(frames[i], at_a[i])) << i;
    ASSERT_TRUE(same(frames[i], at_b[i])) << i;
  }
}

TEST_P(ReliableTransport, ManySmallFrames) {
  const ConnectionId accepted = open();
  std::vector<OutFrame> frames;
  for (uint64_t i = 1; i <= 10'000; ++i) frames.push_back(make_frame(i, i % 97));
  send(true, kDialled, frames);
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.frame_count(accepted) == frames.size(); }));
  const auto got = world->at_b.frames(accepted);
  for (size_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(same(frames[i], got[i])) << i;
}

TEST_P(ReliableTransport, FramesFlushedBeforeTheConnectionStandsAreSentOnceItDoes) {
  world->at_a.put(kDialled, make_frame(1, 10));
  {
    const ApiCall call;
    world->a->connect(kDialled, world->address_of_b());
    world->a->flush(kDialled);
  }
  ASSERT_TRUE(world->pump_until([&] {
    const auto accepted = world->at_b.accepted();
    return !accepted.empty() && world->at_b.frame_count(accepted[0]) == 1;
  }));
}

TEST_P(UnreliableTransport, WhatArrivesWasSent) {
  const ConnectionId accepted = open();
  std::vector<OutFrame> frames;
  constexpr uint64_t kFrames = 500;
  for (uint64_t i = 0; i < kFrames; ++i) frames.push_back(make_frame(i, i * 50, {i}));
  for (uint64_t i = 0; i < kFrames; i += 10) send(true, kDialled, {frames.begin() + i, frames.begin() + i + 10});
  // Some get through (with these seeds and probabilities far more than this).
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.frame_count(accepted) >= kFrames / 2; }));
  close(true, kDialled, kEnough);
  ASSERT_TRUE(world->pump_until([&] { return world->at_b.closed(accepted); }));
  std::set<uint64_t> seen;
  bool repeated = false, reordered = false;
  uint64_t last = 0;
  for (const InFrame& frame : world->at_b.frames(accepted)) {
    const uint64_t sequence = frame.header.sequence;
    ASSERT_LT(sequence, kFrames);
    ASSERT_TRUE(same(frames[sequence], frame));
    repeated |= !seen.insert(sequence).second;
    reordered |= sequence < last;
    last = sequence;
  }
  EXPECT_TRUE(repeated);
  EXPECT_TRUE(reordered);
}

}  // namespace
}  // namespace holdfast
