// The same Node and Coordinator as in production, in a simulated world: calls under cuts, loss, partitions and
// deaths. Each test is headed by what its program does.
#include <holdfast/sim/world.h>

#include <set>

#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>

namespace holdfast::sim {
namespace {

using namespace std::chrono_literals;

// Handlers count how often each token arrives at them: a token seen twice is a call that ran twice.
std::map<uint64_t, int> runs_of_token;

uint64_t count_token(uint64_t token) {
  ++runs_of_token[token];
  return token + 1;
}

struct Tally {
  int done = 0;
  int failed = 0;
  std::vector<Code> codes;
};

void issue(World& world, uint32_t from, uint32_t to, uint64_t token, Tally& tally, Duration timeout = 60s) {
  world.worker(from)
      .peer(world.worker(to).self())
      .with_timeout(timeout)
      .async<count_token>(token)
      .then([&tally, token](Future<uint64_t> done) {
        if (done.failed()) {
          ++tally.failed;
          tally.codes.push_back(done.failure().code);
        } else {
          ++tally.done;
          EXPECT_EQ(done.get(), token + 1);
        }
      });
}

void expect_nothing_left(World& world) {
  for (uint32_t rank = 0; rank < world.size(); ++rank) {
    if (!world.worker(rank).alive()) continue;
    const Node& node = world.worker(rank).node();
    EXPECT_EQ(node.calls().made_count(), 0u) << "worker " << rank;
    EXPECT_EQ(node.calls().served_count(), 0u) << "worker " << rank;
    EXPECT_TRUE(node.links().settled()) << "worker " << rank;
  }
}

// Calls from everybody to everybody while connections are cut at random. All complete, each handler runs once.
uint64_t run_with_cuts(uint64_t seed, SimOptions network, int calls) {
  runs_of_token.clear();
  World world({.seed = seed, .workers = 4, .network = network});
  if (!world.join()) {
    ADD_FAILURE() << "nobody joined, seed " << seed;
    return 0;
  }
  Tally tally;
  Random random(seed);
  int issued = 0;
  while (issued < calls) {
    const auto from = static_cast<uint32_t>(random.below(4));
    const auto to = static_cast<uint32_t>(random.below(4));
    issue(world, from, to, static_cast<uint64_t>(issued++), tally);
    if (random.chance(0.1)) world.cut(static_cast<uint32_t>(random.below(4)), static_cast<uint32_t>(random.below(4)));
    world.network().run_until(world.now() + Duration(random.below(300'000)));
  }
  EXPECT_TRUE(world.run([&] { return tally.done + tally.failed == calls; }, 60s)) << "seed " << seed;
  EXPECT_EQ(tally.done, calls) << "seed " << seed;
  for (const auto& [token, runs] : runs_of_token) EXPECT_EQ(runs, 1) << "token " << token << " seed " << seed;
  world.run([&] { return false; }, 5s);
  expect_nothing_left(world);
  return world.network().trace_hash();
}

TEST(World, CallsRunOnceWhileConnectionsAreCut) {
  for (uint64_t seed = 1; seed <= (test::kSanitizer ? 20 : 60); ++seed) run_with_cuts(seed, {}, 150);
}

TEST(World, CallsRunOnceOnANetworkThatLosesRepeatsAndReorders) {
  SimOptions network;
  network.loss = 0.05;
  network.duplication = 0.05;
  network.reordering = 0.1;
  for (uint64_t seed = 1; seed <= (test::kSanitizer ? 20 : 60); ++seed) run_with_cuts(seed, network, 150);
}

TEST(World, TheSameSeedGivesTheSameHistory) {
  SimOptions network;
  network.loss = 0.02;
  network.reordering = 0.05;
  const uint64_t hash = run_with_cuts(7, network, 100);
  EXPECT_EQ(run_with_cuts(7, network, 100), hash);
  EXPECT_NE(run_with_cuts(8, network, 100), hash);
}

// A worker dies while others call it: their calls fail with WorkerLost within the lease; nothing is left.
TEST(World, ADeadWorkersCallsFailWithinTheLease) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    World world({.seed = seed, .workers = 3, .lease = 2s});
    ASSERT_TRUE(world.join());
    Tally tally;
    for (uint64_t i = 0; i < 30; ++i) issue(world, static_cast<uint32_t>(i % 2), 2, i, tally);
    world.network().run_until(world.now() + Duration(world.random().below(2'000'000)));
    world.kill(2);
    ASSERT_TRUE(world.run([&] { return tally.done + tally.failed == 30; }, 5s)) << "seed " << seed;
    for (Code code : tally.codes) EXPECT_EQ(code, Code::worker_lost);
    world.run([&] { return false; }, 2s);
    expect_nothing_left(world);
  }
}

// A replacement joins under the same rank: it is called; calls to the earlier life fail.
TEST(World, AReplacementIsANewWorker) {
  World world({.seed = 3, .workers = 3});
  ASSERT_TRUE(world.join());
  const WorkerPtr before = world.worker(2).self();
  world.kill(2);
  world.declare_lost(2, "its process ended");
  world.restart(2);
  ASSERT_TRUE(world.join());
  EXPECT_GT(world.worker(2).self()->incarnation, before->incarnation);
  Tally tally;
  issue(world, 0, 2, 5, tally);
  ASSERT_TRUE(world.run([&] { return tally.done == 1; }, 5s));
  bool lost = false;
  world.worker(0).peer(before).with_timeout(5s).async<count_token>(uint64_t{1}).then([&](Future<uint64_t> done) {
    lost = done.failed() && done.failure().code == Code::worker_lost && !done.failure().maybe_executed;
  });
  EXPECT_TRUE(world.run([&] { return lost; }, 5s));
}

// Somebody names a life to a newcomer that ended before it joined: its call fails, it does not wait for ever.
TEST(World, ANewcomerKnowsOfTheDead) {
  World world({.seed = 6, .workers = 3});
  ASSERT_TRUE(world.join());
  const WorkerPtr dead = world.worker(2).self();
  for (uint32_t rank : {2, 1}) {
    world.kill(rank);
    world.declare_lost(rank, "its process ended");
    world.restart(rank);
    ASSERT_TRUE(world.join());
  }
  bool lost = false;
  world.worker(1).peer(dead).with_timeout(1h).async<count_token>(uint64_t{1}).then([&](Future<uint64_t> done) {
    lost = done.failed() && done.failure().code == Code::worker_lost && !done.failure().maybe_executed;
  });
  EXPECT_TRUE(world.run([&] { return lost; }, 30s));
}

// The last worker is started long after the others: they wait, and keep their leases.
TEST(World, TheOthersWaitForTheLastLongerThanALease) {
  World world({.seed = 8, .workers = 3});
  world.kill(2);
  EXPECT_FALSE(world.join(60s));
  world.restart(2);
  EXPECT_TRUE(world.join(5s));
}

// A partition shorter than the lease delays calls and loses none; a longer one makes the cut-off worker lost.
TEST(World, APartitionThatHealsLosesNothing) {
  World world({.seed = 5, .workers = 2});
  ASSERT_TRUE(world.join());
  Tally tally;
  issue(world, 0, 1, 1, tally);
  ASSERT_TRUE(world.run([&] { return tally.done == 1; }, 5s));
  world.partition(0, 1);
  for (uint64_t i = 10; i < 20; ++i) issue(world, 0, 1, i, tally);
  world.network().run_until(world.now() + 7s);
  EXPECT_EQ(tally.done, 1);
  world.network().heal();
  EXPECT_TRUE(world.run([&] { return tally.done == 11; }, 10s));
  EXPECT_EQ(tally.failed, 0);
}

// Two workers dial each other at the same moment, many times over: one connection stays, all calls complete.
TEST(World, SimultaneousDialsEndInOneConnection) {
  for (uint64_t seed = 1; seed <= (test::kSanitizer ? 40 : 200); ++seed) {
    World world({.seed = seed, .workers = 2});
    ASSERT_TRUE(world.join());
    Tally tally;
    issue(world, 0, 1, 1, tally);
    issue(world, 1, 0, 2, tally);
    ASSERT_TRUE(world.run([&] { return tally.done == 2; }, 10s)) << "seed " << seed;
    world.run([&] { return false; }, 6s);
    EXPECT_EQ(world.worker(0).node().links().connection_count(), 1u) << "seed " << seed;
    EXPECT_EQ(world.worker(1).node().links().connection_count(), 1u) << "seed " << seed;
  }
}

// Everybody shuts down while calls are still under way: nobody is released before all are done.
TEST(World, ShutdownWaitsForTheLastCall) {
  for (uint64_t seed = 1; seed <= (test::kSanitizer ? 20 : 60); ++seed) {
    World world({.seed = seed, .workers = 4, .handler_delay_max = 5ms});
    ASSERT_TRUE(world.join());
    Tally tally;
    for (uint64_t i = 0; i < 40; ++i) {
      issue(world, static_cast<uint32_t>(world.random().below(4)), static_cast<uint32_t>(world.random().below(4)), i,
            tally);
    }
    int released = 0;
    for (uint32_t rank = 0; rank < 4; ++rank) {
      world.worker(rank).shutdown(60s, [&](Status status) {
        EXPECT_TRUE(status.ok());
        EXPECT_EQ(tally.done, 40) << "released while calls were under way, seed " << seed;
        ++released;
      });
    }
    EXPECT_TRUE(world.run([&] { return released == 4; }, 30s)) << "seed " << seed;
  }
}

// Servers wait in shutdown while a client calls them; then it shuts down too. Acknowledgements wait for company for as
// long as LinkOptions::ack_delay, but not when everybody waits for the end.
TEST(World, ShutdownDoesNotWaitForAcknowledgements) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    World world({.seed = seed, .workers = 4});
    ASSERT_TRUE(world.join());
    int released = 0;
    const auto shut_down = [&](uint32_t rank) { world.worker(rank).shutdown(60s, [&](Status) { ++released; }); };
    for (uint32_t rank = 1; rank < 4; ++rank) shut_down(rank);
    Tally tally;
    for (uint32_t rank = 1; rank < 4; ++rank) issue(world, 0, rank, rank, tally);
    ASSERT_TRUE(world.run([&] { return tally.done == 3; }, 1s));
    shut_down(0);
    EXPECT_TRUE(world.run([&] { return released == 4; }, LinkOptions().ack_delay / 2)) << "seed " << seed;
  }
}

// A call whose time is up before its handler starts does not run, and the caller gets Timeout.
TEST(World, ExpiredWorkIsNotStarted) {
  runs_of_token.clear();
  World world({.seed = 9, .workers = 2, .handler_delay_max = 50ms});
  ASSERT_TRUE(world.join());
  Tally tally;
  for (uint64_t i = 0; i < 100; ++i) issue(world, 0, 1, i, tally, 10ms);
  ASSERT_TRUE(world.run([&] { return tally.done + tally.failed == 100; }, 5s));
  for (Code code : tally.codes) EXPECT_EQ(code, Code::timeout);
  world.run([&] { return false; }, 5s);
  EXPECT_GT(tally.failed, 0);
  EXPECT_GT(tally.done, 0);
  EXPECT_LT(runs_of_token.size(), 100u);
  EXPECT_GE(runs_of_token.size(), static_cast<size_t>(tally.done));
  expect_nothing_left(world);
}

// Calls beyond the window are refused until earlier ones have started.
TEST(World, TheWindowBoundsWhatIsInFlight) {
  World world({.seed = 4, .workers = 2, .inflight_bytes_max = 1000});
  ASSERT_TRUE(world.join());
  Tally tally;
  for (uint64_t i = 0; i < 100; ++i) issue(world, 0, 1, i, tally);
  EXPECT_GT(tally.failed, 0);
  EXPECT_TRUE(world.run([&] { return tally.done + tally.failed == 100; }, 5s));
  for (Code code : tally.codes) EXPECT_EQ(code, Code::overloaded);
  const int before = tally.failed;
  issue(world, 0, 1, 1000, tally);
  EXPECT_TRUE(world.run([&] { return tally.done + tally.failed == 101; }, 5s));
  EXPECT_EQ(tally.failed, before);
}

// A thousand workers join; the coordinator says a bounded number of things to each.
TEST(World, JoiningTakesAFewMessagesPerWorker) {
  World world({.seed = 2, .workers = 1000});
  uint64_t frames = 0;
  world.network().set_trace(
      [&](Time, const std::string&, const std::string&, const FrameHeader&, const Message&) { ++frames; });
  ASSERT_TRUE(world.join());
  EXPECT_LT(frames, 1000u * 8);
}

}  // namespace
}  // namespace holdfast::sim
