// Joining and its errors, the graceful end, lazy connections, several jobs on one machine.
#include <holdfast/rpc/proxy_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>

#include <set>

namespace holdfast::membership_test {
namespace {

using namespace test;

double scale(double x, double k) { return x * k; }
std::string whoami() { return current_worker().name(); }
WorkerInfo my_info() { return current_worker().info(); }

Gate gate;
int pass_gate(int value) { return gate.pass() ? value : -1; }
std::atomic<bool> saw_cancelled{false};
int run_until_cancelled() {
  gate.pass();
  saw_cancelled = eventually([] { return cancelled(); });
  return 1;
}

// ---- joining

TEST(Join, AWorldOfOneNeedsNothing) {
  Worker worker{Options()};
  EXPECT_EQ(worker.name(), "worker0");
  EXPECT_EQ(worker.rank(), 0);
  EXPECT_EQ(worker.world_size(), 1);
  EXPECT_EQ(worker.self().call<scale>(3, 2), 6.0);
  EXPECT_EQ(worker.peer("worker0").call<whoami>(), "worker0");
  worker.shutdown();
}

TEST(Join, RankZeroMayHostTheCoordinator) {
  std::vector<Options> all(3);
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  for (int rank = 0; rank < 3; ++rank) {
    Options& options = all[static_cast<size_t>(rank)];
    options.rank = rank;
    options.world_size = 3;
    options.coordinator = address;
    options.host_coordinator = rank == 0;
  }
  std::vector<std::unique_ptr<Worker>> workers = join(all);
  EXPECT_EQ(workers[2]->peer(0).call<whoami>(), "worker0");
  shut_down({workers[0].get(), workers[1].get(), workers[2].get()});
}

// Without ranks they are given out in the order in which workers come.
TEST(Join, NamesOfOnesOwnAndNoRanks) {
  TestCoordinator coordinator(3);
  std::vector<Options> all{coordinator.options(0), coordinator.options(1), coordinator.options(2)};
  for (Options& options : all) options.rank.reset();
  all[0].name = "trainer";
  all[1].name = "server";
  std::vector<std::unique_ptr<Worker>> workers = join(all);
  EXPECT_EQ(workers[0]->peer("server").call<whoami>(), "server");
  EXPECT_EQ(workers[2]->name(), "worker" + std::to_string(workers[2]->rank()));
  const std::set<int> ranks{workers[0]->rank(), workers[1]->rank(), workers[2]->rank()};
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  const WorkerInfo info = workers[0]->peer(workers[2]->rank()).call<my_info>();
  EXPECT_EQ(info, workers[2]->info());
  EXPECT_EQ(workers[1]->peer(info).call<whoami>(), workers[2]->name());
  shut_down({workers[0].get(), workers[1].get(), workers[2].get()});
}

// A job of two whose second place is still free, so that wrong ones can try to take it.
class JoinRefusedTest : public testing::Test {
 protected:
  JoinRefusedTest() : coordinator(2) {
    Options options = coordinator.options(0);
    options.name = "first";
    first = std::thread([this, options] {
      worker = std::make_unique<Worker>(options);
      worker->shutdown();
    });
    EXPECT_TRUE(eventually([this] { return coordinator.server().member_count() == 1; }));
  }
  ~JoinRefusedTest() override {
    // Those who were refused did no harm: the right one still gets in.
    Worker second(coordinator.options(1));
    second.shutdown();
    first.join();
  }

  std::string refusal(const std::function<void(Options&)>& change) {
    Options options = coordinator.options(1);
    change(options);
    return expect_throw<InvalidArgument>([&] { Worker worker(options); }).what();
  }

  TestCoordinator coordinator;
  std::unique_ptr<Worker> worker;
  std::thread first;
};

TEST_F(JoinRefusedTest, ATakenName) {
  const std::string text = refusal([](Options& options) { options.name = "first"; });
  EXPECT_CONTAINS(text, "the name first is taken by rank 0");
  EXPECT_CONTAINS(text, coordinator.address());
}
TEST_F(JoinRefusedTest, ATakenRank) {
  EXPECT_CONTAINS(refusal([](Options& options) { options.rank = 0; }), "rank 0 is taken by first");
}
TEST_F(JoinRefusedTest, ARankOutside) {
  EXPECT_CONTAINS(refusal([](Options& options) { options.rank = 2; }), "rank 2 is outside a world of 2");
}
TEST_F(JoinRefusedTest, AnotherWorldSize) {
  const std::string text = refusal([](Options& options) { options.world_size = 3; });
  EXPECT_CONTAINS(text, "world size 3");
  EXPECT_CONTAINS(text, "is 2");
}
TEST_F(JoinRefusedTest, AnotherJob) {
  EXPECT_CONTAINS(refusal([](Options& options) { options.job = "yesterday's"; }), "another job");
}
TEST_F(JoinRefusedTest, AnotherFrameLimit) {
  EXPECT_CONTAINS(refusal([](Options& options) { options.frame_bytes_max = 5000; }), "frame_bytes_max is 5000");
}

TEST(Join, AFullWorld) {
  TestJob job(1);
  Options options;
  options.coordinator = job.coordinator_address();
  options.job = "test";
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { Worker worker(options); }).what(), "is full: worker0");
  job.shutdown();
}

TEST(Join, TheTimeoutNamesWhoIsMissing) {
  TestCoordinator coordinator(4);
  std::vector<std::thread> threads;
  std::atomic<int> said{0};
  for (int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      Options options = coordinator.options(rank);
      options.join_timeout = 2500ms;  // the coordinator says every second for whom it waits
      const Timeout error = expect_throw<Timeout>([&] { Worker worker(options); });
      if (contains(error.what(), "missing: rank 1, rank 3")) ++said;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(said, 1);  // the last one may see the other give up
}

TEST(Join, NoCoordinatorAtTheAddress) {
  Options options;
  options.world_size = 2;
  options.join_timeout = 200ms;
  options.coordinator = "127.0.0.1:" + std::to_string(free_port());
  const Timeout error = expect_throw<Timeout>([&] { Worker worker(options); });
  EXPECT_CONTAINS(error.what(), options.coordinator);
  EXPECT_CONTAINS(error.what(), "Connection refused");
}

TEST(Join, APortInUse) {
  Listener taken = open_listener({}).take();
  const Socket closing(taken.fd);
  Options options;
  options.port_first = taken.bound.port;
  EXPECT_CONTAINS(expect_throw<Unavailable>([&] { Worker worker(options); }).what(), std::to_string(taken.bound.port));
  Options host;
  host.coordinator = taken.bound.text();
  host.host_coordinator = true;
  expect_throw<Unavailable>([&] { Worker worker(host); });
}

// The place of one who left can be taken again; the name then means the new one, the old Peer stays with the old.
TEST(Join, AReplacement) {
  TestCoordinator coordinator(2);
  std::vector<std::unique_ptr<Worker>> workers = join({coordinator.options(0), coordinator.options(1)});
  Peer before = workers[0]->peer(1);
  EXPECT_EQ(before.call<whoami>(), "worker1");
  workers[1].reset();
  expect_throw<WorkerLost>([&] { before.with_timeout(kPatience).call<pass_gate>(1); });
  workers[1] = std::make_unique<Worker>(coordinator.options(1));
  Peer now = workers[0]->peer(1);
  EXPECT_NE(now.info().incarnation, before.info().incarnation);
  EXPECT_EQ(now.call<whoami>(), "worker1");
  expect_throw<WorkerLost>([&] { before.call<whoami>(); });
  shut_down({workers[0].get(), workers[1].get()});
}

// ---- the graceful end

TEST(ShutdownTest, TwiceAndCallsAfterwards) {
  TestJob job(2);
  Peer peer = job[0].peer(1);
  Peer self = job[0].self();
  EXPECT_EQ(peer.call<scale>(1, 2), 2.0);
  job.shutdown();
  job[0].shutdown();
  for (Peer* to : {&peer, &self}) {
    EXPECT_CONTAINS(expect_throw<Shutdown>([&] { to->call<scale>(1, 2); }).what(), "shut down");
  }
  expect_throw<Shutdown>([&] { job[0].peer(1); });
}

// One worker wants to end while another still calls it: it serves until nothing is under way.
TEST(ShutdownTest, WaitsForCallsThatRun) {
  gate.reset();
  TestJob job(2);
  std::atomic<bool> ended{false};
  Future<int> running = job[0].peer(1).async<pass_gate>(5);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  std::thread ending([&] {
    job.shutdown();
    ended = true;
  });
  EXPECT_FALSE(running.wait_for(50ms));
  EXPECT_FALSE(ended);
  gate.open();
  EXPECT_EQ(running.get(), 5);
  ending.join();
}

// A call that is made while others already wait for the end still runs.
TEST(ShutdownTest, ServesUntilTheLastOneIsDone) {
  TestJob job(3);
  std::thread first([&] { shut_down({&job[1], &job[2]}); });
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(job[0].peer(1 + i % 2).call<scale>(i, 2), i * 2.0);
  }
  job[0].shutdown();
  first.join();
}

TEST(ShutdownTest, ItsTimeoutNamesWhatRunsAndItEnds) {
  gate.reset();
  saw_cancelled = false;
  TestJob job(2);
  Future<int> running = job[0].peer(1).async<run_until_cancelled>();
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  gate.open();
  // The other one waits longer. Its call fails when this one leaves; whether it then is released is not the question.
  std::thread other([&] {
    try {
      job[0].shutdown(30s);
    } catch (const Error&) {
    }
  });
  const Timeout error = expect_throw<Timeout>([&] { job[1].shutdown(1500ms); });
  EXPECT_CONTAINS(error.what(), "worker1");
  EXPECT_CONTAINS(error.what(), "run_until_cancelled");
  other.join();
  EXPECT_TRUE(saw_cancelled);  // and shutdown() waited for the handler to end
  EXPECT_THROW(running.get(), Error);
}

TEST(ShutdownTest, ItsTimeoutNamesThoseWhoWorkOn) {
  TestJob job(2);
  const Timeout error = expect_throw<Timeout>([&] { job[0].shutdown(1500ms); });
  EXPECT_CONTAINS(error.what(), "not yet in shutdown: worker1");
  // It has left all the same; the other one is alone now.
  job[1].shutdown();
}

// ---- connections

TEST(Connections, AreMadeOnFirstUseOnly) {
  constexpr int kWorkers = 8;
  TestJob job(kWorkers);
  for (int rank = 0; rank < kWorkers; ++rank) EXPECT_EQ(job[rank].stats().connections, 0u);
  for (int round = 0; round < 3; ++round) {
    for (int rank = 0; rank < kWorkers; ++rank) {
      const int next = (rank + 1) % kWorkers;
      EXPECT_EQ(job[rank].peer(next).call<whoami>(), job[next].name());
    }
  }
  for (int rank = 0; rank < kWorkers; ++rank) {
    EXPECT_EQ(job[rank].stats().connections, 2u) << rank;
    EXPECT_EQ(job[rank].stats().links, 2u) << rank;
  }
  job.shutdown();
}

TEST(Connections, TwoWhoCallEachOtherShareOne) {
  TestJob job(2);
  std::vector<std::function<void()>> both;
  for (int rank = 0; rank < 2; ++rank) {
    both.emplace_back([&, rank] {
      for (int i = 0; i < 200; ++i) {
        if (job[rank].peer(1 - rank).call<scale>(i, 2) != i * 2.0) throw std::logic_error("a wrong result");
      }
    });
  }
  EXPECT_NO_THROW(run_together(both));
  EXPECT_TRUE(eventually([&] { return job[0].stats().connections == 1 && job[1].stats().connections == 1; }));
  job.shutdown();
}

// ---- several jobs on one machine

TEST(Jobs, DoNotDisturbEachOther) {
  TestJob one(3, {}, 30s, "one");
  TestJob two(2, {}, 30s, "two");
  EXPECT_EQ(one[0].peer("worker1").call<my_info>(), one[1].info());
  EXPECT_EQ(two[0].peer("worker1").call<my_info>(), two[1].info());

  // Somebody has an address at which a worker of another job listens by now. It is refused there; nothing runs.
  WorkerInfo stray = one[2].info();
  stray.address = two[1].info().address;
  expect_throw<Timeout>([&] { one[0].peer(stray).with_timeout(300ms).call<whoami>(); });
  EXPECT_EQ(two[0].peer(1).call<whoami>(), "worker1");
  EXPECT_EQ(two[1].stats().links, 1u);
  two.shutdown();
  EXPECT_EQ(one[0].peer("worker1").call<whoami>(), "worker1");
}

}  // namespace
}  // namespace holdfast::membership_test
