// Cut connections: two workers that reach each other only through proxies, which reset connections. Every call
// completes and runs exactly once.
#include <holdfast/rpc/proxy_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>

#include <set>

namespace holdfast::reconnect_test {
namespace {

using namespace test;

Gate gate;
std::atomic<int> runs{0};

int pass_gate(int value) {
  ++runs;
  return gate.pass() ? value : -1;
}

// Counts, and notes every token: one that comes twice is a call that ran twice.
std::mutex tokens_mutex;
std::set<int64_t> tokens;
std::atomic<int> repeated{0};
int64_t count_token(int64_t token) {
  std::lock_guard lock(tokens_mutex);
  if (!tokens.insert(token).second) ++repeated;
  return token * 3;
}

Bytes reverse(Bytes bytes) {
  std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

int64_t there_and_back(int64_t token) { return current_worker().peer(0).call<count_token>(token); }

// Two workers in this process, each behind a proxy of its own.
class ReconnectTest : public testing::Test {
 protected:
  ReconnectTest() : coordinator(2) {
    gate.reset();
    runs = repeated = 0;
    tokens.clear();
    std::vector<Options> all;
    for (int rank = 0; rank < 2; ++rank) {
      Options options = coordinator.options(rank);
      options.port_first = free_port();
      proxies.push_back(
          std::make_unique<Proxy>("127.0.0.1:" + std::to_string(options.port_first), static_cast<uint64_t>(rank) + 1));
      options.advertise = proxies.back()->address();
      all.push_back(options);
    }
    workers = join(all);
  }

  void finish() {
    for (auto& proxy : proxies) proxy->cut_after_bytes(0);
    shut_down({workers[0].get(), workers[1].get()});
    EXPECT_EQ(workers[0]->stats().calls_made, 0u);
    EXPECT_EQ(workers[1]->stats().calls_served, 0u);
  }
  int cuts() const { return proxies[0]->cuts() + proxies[1]->cuts(); }

  TestCoordinator coordinator;
  std::vector<std::unique_ptr<Proxy>> proxies;
  std::vector<std::unique_ptr<Worker>> workers;
};

TEST_F(ReconnectTest, TheProxyIsInBetween) {
  EXPECT_EQ(workers[1]->info().address, proxies[1]->address());
  EXPECT_EQ(workers[0]->peer(1).call<count_token>(5), 15);
  EXPECT_EQ(proxies[1]->connections(), 1);
  finish();
}

TEST_F(ReconnectTest, TenThousandCallsUnderCutsRunOnceEach) {
  constexpr int64_t kCalls = 10'000;
  for (auto& proxy : proxies) proxy->cut_after_bytes(30'000);
  Peer peer = workers[0]->peer(1);
  std::vector<Future<int64_t>> results;
  for (int64_t token = 0; token < kCalls; ++token) {
    results.push_back(peer.async<count_token>(token));
    // A bounded number under way, so that calls and replies meet cuts of all kinds.
    if (token >= 100) results[static_cast<size_t>(token - 100)].wait();
  }
  for (int64_t token = 0; token < kCalls; ++token) {
    EXPECT_EQ(results[static_cast<size_t>(token)].get(), token * 3) << token;
  }
  EXPECT_EQ(tokens.size(), static_cast<size_t>(kCalls));
  EXPECT_EQ(repeated, 0);
  EXPECT_GE(cuts(), 50);
  finish();
}

// Calls in both directions at once: each side dials, serves and resends.
TEST_F(ReconnectTest, NestedCallsInBothDirectionsUnderCuts) {
  for (auto& proxy : proxies) proxy->cut_after_bytes(8'000);
  std::vector<std::function<void()>> callers;
  for (int64_t thread = 0; thread < 4; ++thread) {
    callers.emplace_back([&, thread] {
      Peer peer = workers[0]->peer(1);
      for (int64_t i = 0; i < 100; ++i) {
        const int64_t token = thread * 1000 + i;
        if (peer.call<there_and_back>(token) != token * 3) throw std::logic_error("a wrong result");
      }
    });
  }
  EXPECT_NO_THROW(run_together(callers));
  EXPECT_EQ(tokens.size(), 400u);
  EXPECT_EQ(repeated, 0);
  EXPECT_GE(cuts(), 5);
  finish();
}

// Messages far larger than what a socket holds are cut in the middle and arrive whole.
TEST_F(ReconnectTest, LargeMessagesAreCutAndArriveWhole) {
  for (auto& proxy : proxies) proxy->cut_after_bytes(6 << 20);
  Peer peer = workers[0]->peer(1);
  for (int i = 0; i < 10; ++i) {
    Bytes bytes(1 << 20);
    for (size_t at = 0; at < bytes.size(); ++at) bytes[at] = static_cast<uint8_t>(at * 31 + static_cast<size_t>(i));
    Bytes reversed = peer.call<reverse>(bytes);
    std::reverse(reversed.begin(), reversed.end());
    EXPECT_TRUE(reversed == bytes) << i;
  }
  EXPECT_GE(cuts(), 1);
  finish();
}

// The handler runs when the connection is cut; its reply goes over the next one.
TEST_F(ReconnectTest, ACutWhileTheHandlerRuns) {
  Future<int> result = workers[0]->peer(1).async<pass_gate>(9);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  proxies[1]->cut_all();
  ASSERT_TRUE(eventually([&] { return cuts() == 1; }));
  gate.open();
  EXPECT_EQ(result.get(), 9);
  EXPECT_EQ(runs, 1);
  finish();
}

// No way through for a while: calls wait for it, others are not disturbed.
TEST_F(ReconnectTest, CallsWaitWhileThereIsNoWay) {
  Peer peer = workers[0]->peer(1);
  EXPECT_EQ(peer.call<count_token>(1), 3);
  for (auto& proxy : proxies) proxy->set_blocked(true);
  ASSERT_TRUE(eventually([&] { return cuts() >= 1; }));
  Future<int64_t> waiting = peer.async<count_token>(2);
  expect_throw<Timeout>([&] { peer.with_timeout(100ms).call<count_token>(3); });
  EXPECT_EQ(workers[0]->self().call<count_token>(4), 12);
  EXPECT_FALSE(waiting.ready());
  for (auto& proxy : proxies) proxy->set_blocked(false);
  EXPECT_EQ(waiting.get(), 6);
  EXPECT_EQ(repeated, 0);
  finish();
}

// The callee ends for good while it cannot be reached: the calls end too.
TEST_F(ReconnectTest, AWorkerThatLeavesWhileItIsCutOff) {
  Peer peer = workers[0]->peer(1);
  EXPECT_EQ(peer.call<count_token>(1), 3);
  for (auto& proxy : proxies) proxy->set_blocked(true);
  ASSERT_TRUE(eventually([&] { return cuts() >= 1; }));
  Future<int64_t> waiting = peer.async<count_token>(2);
  workers[1].reset();
  const WorkerLost lost = expect_throw<WorkerLost>([&] { waiting.get(); });
  EXPECT_EQ(lost.worker(), "worker1");
  EXPECT_EQ(tokens.size(), 1u);
  workers[0]->shutdown();
}

}  // namespace
}  // namespace holdfast::reconnect_test
