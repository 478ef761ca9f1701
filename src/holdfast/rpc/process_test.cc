// Workers in processes of their own that are killed or stopped.
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::process_test {
namespace {

using namespace test;

double scale(double x, double k) { return x * k; }

// Runs on rank 0: somebody else's handler has begun.
Gate begun;
void report_begun() { begun.pass(); }

// Runs in another process, and never ends by itself.
int report_and_wait() {
  current_worker().peer(0).call<report_begun>();
  eventually([] { return cancelled(); });
  return 1;
}

// Serves until everybody ends.
int serve() {
  Worker worker(Options::from_env());
  worker.shutdown(600s);
  return 0;
}
const Role serve_role("serve", serve);

// Calls without end; when its calls begin to fail it checks that it is told why, and that its end is bounded.
int call_until_lost() {
  Worker worker(Options::from_env());
  Peer peer = worker.peer(0);
  for (;;) {
    try {
      peer.call<scale>(1, 2);
    } catch (const WorkerLost& error) {
      if (error.worker() != worker.name()) return 2;
      break;
    }
    std::this_thread::sleep_for(5ms);
  }
  try {
    worker.peer(0).call<scale>(1, 2);
    return 3;
  } catch (const WorkerLost&) {
  }
  try {
    worker.shutdown(600s);
    return 4;
  } catch (const WorkerLost&) {
  }
  return 0;
}
const Role call_role("call_until_lost", call_until_lost);

// This process has rank 0; each of the others is a process of its own.
class ProcessTest : public testing::Test {
 protected:
  void start(const std::string& role, int others, Duration lease) {
    begun.reset();
    coordinator.emplace(1 + others, lease);
    for (int rank = 1; rank <= others; ++rank) {
      processes.push_back(std::make_unique<TestProcess>(role, coordinator->options(rank)));
    }
    worker.emplace(coordinator->options(0));
  }

  std::optional<TestCoordinator> coordinator;
  std::vector<std::unique_ptr<TestProcess>> processes;
  std::optional<Worker> worker;
};

TEST_F(ProcessTest, CallsAndEndsTogether) {
  start("serve", 2, 30s);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(worker->peer(1 + i % 2).call<scale>(i, 2), i * 2.0);
  worker->shutdown();
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
}

TEST_F(ProcessTest, AKilledWorkersCallsFailWithinTheLease) {
  start("serve", 2, 3s);
  Peer peer = worker->peer(1);
  Future<int> running = peer.async<report_and_wait>();
  ASSERT_TRUE(begun.wait_for_arrivals(1));
  begun.open();
  processes[0]->signal(SIGKILL);
  const WorkerLost lost = expect_throw<WorkerLost>([&] { running.get(); });
  EXPECT_EQ(lost.worker(), "worker1");
  EXPECT_TRUE(lost.maybe_executed());
  EXPECT_CONTAINS(lost.what(), "report_and_wait");
  EXPECT_CONTAINS(lost.what(), "lease");
  EXPECT_FALSE(expect_throw<WorkerLost>([&] { peer.call<scale>(1, 2); }).maybe_executed());
  EXPECT_EQ(worker->peer(2).call<scale>(1, 2), 2.0);  // the others work on
  EXPECT_EQ(processes[0]->wait(), -SIGKILL);
  worker->shutdown();
  EXPECT_EQ(processes[1]->wait(), 0);
}

// The launcher sees a process end and says so: nobody waits for the lease.
TEST_F(ProcessTest, WhatTheLauncherSeesIsKnownAtOnce) {
  start("serve", 1, 600s);
  Future<int> running = worker->peer(1).async<report_and_wait>();
  ASSERT_TRUE(begun.wait_for_arrivals(1));
  begun.open();
  processes[0]->signal(SIGKILL);
  EXPECT_EQ(processes[0]->wait(), -SIGKILL);
  coordinator->server().declare_lost(Rank{1}, "its process was killed");
  const WorkerLost lost = expect_throw<WorkerLost>([&] { running.get(); });
  EXPECT_TRUE(lost.maybe_executed());
  EXPECT_CONTAINS(lost.what(), "its process was killed");
  worker->shutdown();
}

// A killed worker that others wait for in shutdown does not keep them.
TEST_F(ProcessTest, ShutdownDoesNotWaitForTheDead) {
  start("serve", 2, 3s);
  EXPECT_EQ(worker->peer(1).call<scale>(1, 2), 2.0);
  processes[0]->signal(SIGKILL);
  worker->shutdown();
  EXPECT_EQ(processes[1]->wait(), 0);
}

// A worker is stopped for longer than its lease and wakes up: others have declared it lost, and it must learn that
// too, on its next call, and end.
TEST_F(ProcessTest, AWorkerThatWakesUpTooLate) {
  start("call_until_lost", 1, 3s);
  ASSERT_TRUE(eventually([&] { return worker->stats().links == 1; }));
  Peer peer = worker->peer(1);
  EXPECT_EQ(peer.call<scale>(1, 2), 2.0);
  processes[0]->signal(SIGSTOP);
  // The signal takes a moment: a first call may still be answered.
  const WorkerLost lost = expect_throw<WorkerLost>([&] {
    for (;;) peer.call<scale>(1, 2);
  });
  EXPECT_EQ(lost.worker(), "worker1");
  EXPECT_CONTAINS(lost.what(), "lease");
  processes[0]->signal(SIGCONT);
  EXPECT_EQ(processes[0]->wait(), 0);
  worker->shutdown();
}

}  // namespace
}  // namespace holdfast::process_test
