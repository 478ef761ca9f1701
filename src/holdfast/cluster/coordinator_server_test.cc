// The coordinator on a real port, with a thread of its own.
#include <holdfast/cluster/coordinator_server.h>

#include <gtest/gtest.h>

#include <holdfast/cluster/member.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

// A member without anything above it, on a transport that the test's thread polls.
class Client final : public TransportEvents, public MemberEvents {
 public:
  Client(const std::string& coordinator, uint32_t rank, uint32_t world_size)
      : member_(options(coordinator, rank, world_size), *this, ids_, Random(rank + 1)), transport_(*this) {
    run([&](Step& step) { member_.join(step, "nowhere:1", kNever, [this](Status status) { joined_ = status.ok(); }); });
  }

  // Until `done`; every wait of these tests ends this way.
  void poll_until(const std::function<bool()>& done) {
    while (!done()) {
      run([&](Step& step) { member_.on_time(step); });
      transport_.poll(std::min(member_.next_wakeup(), steady_now() + 10ms));
      perform();
    }
  }
  template <class F>
  void run(F&& event) {
    step_.now = steady_now();
    event(step_);
    perform();
  }
  bool joined() const { return joined_; }
  bool connected() const { return member_.connected(); }
  Member& member() { return member_; }
  std::vector<std::string> fenced;
  std::vector<Rank> lost;

 private:
  static MemberOptions options(const std::string& coordinator, uint32_t rank, uint32_t world_size) {
    MemberOptions options;
    options.rank = rank;
    options.world_size = world_size;
    options.coordinator = coordinator;
    return options;
  }
  void perform() {
    Step step = std::exchange(step_, Step(steady_now()));
    for (Step::Dial& dial : step.dials) transport_.connect(dial.connection, dial.address);
    for (ConnectionId connection : step.flushes) transport_.flush(connection);
    for (Step::Close& close : step.closes) transport_.close(close.connection, close.why);
    for (Closure& closure : step.closures) closure();
  }

  void on_accepted(ConnectionId) override {}
  void on_connected(ConnectionId) override { member_.on_connected(step_); }
  void on_frames(ConnectionId, std::vector<InFrame>& frames) override { member_.on_frames(step_, frames); }
  void on_progress(ConnectionId) override {}
  void on_closed(ConnectionId connection, const Failure& why) override {
    if (member_.owns(connection)) member_.on_closed(step_, why);
  }
  void collect(ConnectionId connection, size_t, std::vector<OutFrame>& out) override {
    member_.collect(connection, out);
  }
  void on_accepted(Step&, const WorkerInfo&) override {}
  void on_worker_lost(Step&, const WorkerInfo& worker, const std::string&, uint64_t) override {
    lost.push_back(worker.rank);
  }
  void on_settled(Step&, uint64_t) override {}
  void on_fenced(Step&, const std::string& reason) override { fenced.push_back(reason); }
  void on_check(Step&, uint64_t) override {}

  ConnectionIds ids_;
  Member member_;
  Step step_{steady_now()};
  TcpTransport transport_;
  bool joined_ = false;
};

TEST(CoordinatorServer, ALostWorkerIsFencedAndTheOthersHearOfIt) {
  CoordinatorServer server({.world_size = 2}, {});
  EXPECT_TRUE(server.wait_until_empty(0s));
  Client first(server.address(), 0, 2);
  first.poll_until([&] { return first.connected() && !first.member().self().name.empty(); });
  EXPECT_FALSE(server.wait_until_empty(0s));
  Client second(server.address(), 1, 2);
  second.poll_until([&] { return second.joined(); });
  first.poll_until([&] { return first.joined(); });

  server.declare_lost({1}, "its process ended");
  first.poll_until([&] { return !first.lost.empty(); });
  EXPECT_EQ(first.lost, std::vector{Rank{1}});
  second.poll_until([&] { return !second.fenced.empty(); });
  EXPECT_EQ(second.fenced, std::vector<std::string>{"its process ended"});

  first.run([&](Step& step) { first.member().leave(step, "done"); });
  first.poll_until([&] { return !first.connected(); });  // the server closes when it has read that
  EXPECT_TRUE(server.wait_until_empty(1min));
}

TEST(CoordinatorServer, APortInUseIsUnavailable) {
  CoordinatorServer server({.world_size = 1}, {});
  ListenOptions same;
  same.port_first = same.port_last =
      static_cast<uint16_t>(std::stoi(server.address().substr(server.address().rfind(':') + 1)));
  EXPECT_THROW(CoordinatorServer({.world_size = 1}, same), Unavailable);
}

TEST(CoordinatorServer, ItMayEndBeforeItsWorkers) {
  auto server = std::make_unique<CoordinatorServer>(CoordinatorOptions{.world_size = 1}, ListenOptions{});
  Client client(server->address(), 0, 1);
  client.poll_until([&] { return client.joined(); });
  server.reset();
  client.poll_until([&] { return !client.connected(); });
  EXPECT_TRUE(client.fenced.empty()) << "not before the lease is over";
}

}  // namespace
}  // namespace holdfast
