// Options::faults in the simulated world: the same Node and FaultyTransport as over real connections, and one seed
// makes one history. docs/faults.md.
#include <map>

#include <gtest/gtest.h>

#include <holdfast/rref/rref.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {
namespace {

using namespace std::chrono_literals;

std::map<int64_t, int> fault_runs;  // of each token

int64_t note_run(int64_t token) {
  ++fault_runs[token];
  return token;
}

WorldOptions faulty_world(const std::string& text, uint32_t workers = 3) {
  fault_runs.clear();
  return {.seed = 5, .workers = workers, .faults = FaultOptions::parse(text)};
}

// Runs the world until the future is there. The code of its failure; nothing if it has a value.
template <class T>
std::optional<Code> outcome_of(World& world, const Future<T>& future) {
  EXPECT_TRUE(world.run([&] { return future.ready(); }, 120s));
  return future.failed() ? std::optional(future.failure().code) : std::nullopt;
}

Peer peer_of(World& world, uint32_t from, uint32_t to) { return world.worker(from).peer(world.worker(to).self()); }

bool all_tables_empty(World& world) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    Host& host = world.worker(rank);
    if (!References::of(host).owned().objects().empty() || !References::of(host).used().references().empty() ||
        !References::of(host).idle()) {
      return false;
    }
  }
  return true;
}

TEST(SimFaults, FailedCallsAreErrorsThatAreNotRetried) {
  World world(faulty_world("workers=worker0 messages_to_fail=CALL num_fail_sends=2 peer=worker2 messages_to_fail="));
  ASSERT_TRUE(world.join());
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 1).async<note_run>(1)), Code::fault_injected);
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 1).async<note_run>(1)), Code::fault_injected);
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 2).async<note_run>(2)), std::nullopt);
  world.run([] { return false; }, 30s);
  EXPECT_EQ(fault_runs, (std::map<int64_t, int>{{2, 1}}));
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 1).async<note_run>(1)), std::nullopt);
  EXPECT_EQ(fault_runs[1], 1);
  EXPECT_EQ(world.worker(0).node().faults()->count(), 2u);
}

TEST(SimFaults, FailedRemotesAndFetchesShowWhenUsed) {
  World world(faulty_world("messages_to_fail=REMOTE_CALL,RREF_FETCH"));
  ASSERT_TRUE(world.join());
  RRef<int64_t> failed = peer_of(world, 0, 1).remote<note_run>(1);
  EXPECT_EQ(outcome_of(world, failed.fetch()), Code::fault_injected);
  RRef<int64_t> made = peer_of(world, 0, 1).remote<note_run>(1);
  EXPECT_EQ(outcome_of(world, made.fetch()), Code::fault_injected);  // the fetch
  EXPECT_EQ(outcome_of(world, made.fetch()), std::nullopt);
  EXPECT_EQ(fault_runs[1], 1);
}

TEST(SimFaults, ControlMessagesAreSentAgainUntilTheyPass) {
  World world(faulty_world(
      "num_fail_sends=5 messages_to_fail=RREF_FORK_REQUEST,RREF_ACCEPT,RREF_CHILD_ACCEPT,RREF_USER_DELETE,REPLY"));
  ASSERT_TRUE(world.join());
  {
    RRef<int64_t> made = peer_of(world, 0, 1).remote<note_run>(1);
    EXPECT_EQ(outcome_of(world, made.fetch()), std::nullopt);
    EXPECT_TRUE(world.run([&] { return made.confirmed_by_owner(); }, 60s));
  }
  EXPECT_TRUE(world.run([&] { return all_tables_empty(world); }, 60s));
  EXPECT_GT(world.worker(1).node().faults()->count(), 0u);
  // Together the workers end, too.
  int ended = 0;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    world.worker(rank).shutdown(60s, [&](Status status) { ended += status.ok() ? 1 : 100; });
  }
  EXPECT_TRUE(world.run([&] { return ended > 0 && ended % 3 == 0; }, 60s));
  EXPECT_EQ(ended, 3);
}

TEST(SimFaults, DelaysAreExact) {
  World world(faulty_world("messages_to_delay=CALL:3s,REPLY:2s"));
  ASSERT_TRUE(world.join());
  const Time before = world.now();
  Future<int64_t> call = peer_of(world, 0, 1).async<note_run>(1);
  world.network().run_until(before + 2999ms);
  EXPECT_EQ(fault_runs[1], 0);
  world.network().run_until(before + 3500ms);
  EXPECT_EQ(fault_runs[1], 1);
  world.network().run_until(before + 4999ms);
  EXPECT_FALSE(call.ready());
  EXPECT_EQ(outcome_of(world, call), std::nullopt);
}

// Calls from everybody to everybody. All complete, each runs once; the history's hash.
uint64_t run_faulty_calls(const std::string& text) {
  World world(faulty_world(text));
  EXPECT_TRUE(world.join());
  std::vector<Future<int64_t>> calls;
  for (int64_t token = 0; token < 200; ++token) {
    const auto from = static_cast<uint32_t>(token % 3);
    calls.push_back(peer_of(world, from, (from + 1 + static_cast<uint32_t>(token) / 3 % 2) % 3).async<note_run>(token));
    world.network().run_until(world.now() + 300us);
  }
  for (const Future<int64_t>& call : calls) EXPECT_EQ(outcome_of(world, call), std::nullopt) << text;
  for (const auto& [token, runs] : fault_runs) EXPECT_EQ(runs, 1) << token << " " << text;
  EXPECT_EQ(fault_runs.size(), 200u);
  return world.network().trace_hash();
}

TEST(SimFaults, LinksRepairWhatHappensToFramesTheSameWayTwice) {
  const uint64_t calm = run_faulty_calls("seed=1");
  for (const char* text : {"drop=0.1", "duplicate=0.1", "reorder=0.2", "delay=0.2 delay_max=20ms", "cut=0.05",
                           "drop=0.05 duplicate=0.1 reorder=0.1 delay=0.1 cut=0.02", "peer=worker2 drop=0.2 cut=0.02",
                           "workers=worker1 drop=0.2 reorder=0.2", "messages_to_delay=CALL:1ms,REPLY:2ms drop=0.1"}) {
    const std::string first = std::string("seed=1 ") + text, second = std::string("seed=2 ") + text;
    const uint64_t hash = run_faulty_calls(first);
    EXPECT_NE(hash, calm) << text;
    EXPECT_EQ(run_faulty_calls(first), hash) << text;
    EXPECT_NE(run_faulty_calls(second), hash) << text;
  }
}

TEST(SimFaults, AKilledWorkerIsLost) {
  World world(faulty_world("workers=worker1 kill=1"));
  ASSERT_TRUE(world.join());
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 2).async<note_run>(1)), std::nullopt);
  const Future<int64_t> call = peer_of(world, 0, 1).async<note_run>(2);  // its answer is its first message
  EXPECT_TRUE(world.run([&] { return !world.worker(1).alive(); }, 10s));
  // The answer may have left before.
  const std::optional<Code> code = outcome_of(world, call);
  EXPECT_TRUE(!code || code == Code::worker_lost);
  EXPECT_EQ(outcome_of(world, peer_of(world, 0, 2).async<note_run>(3)), std::nullopt);
}

TEST(SimFaults, NonsenseThrows) {
  EXPECT_THROW(World(faulty_world("messages_to_fail=NONSENSE")), InvalidArgument);
  EXPECT_THROW(World(faulty_world("messages_to_delay=CALL:-1s")), InvalidArgument);
}

}  // namespace
}  // namespace holdfast::sim
