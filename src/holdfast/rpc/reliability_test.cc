// What happens to processes and networks, and what a user sees of it: the rows of docs/reliability.md that are not
// tested elsewhere. Workers are processes of their own, and the faults are real ones.
#include <sched.h>
#include <sys/resource.h>

#include <fstream>
#include <sstream>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/rpc/proxy_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::reliability_test {
namespace {

using namespace test;

int64_t answer(int64_t n) { return n + 1; }
uint64_t size_of(const Bytes& bytes) { return bytes.size(); }
int64_t own_pid() { return ::getpid(); }

int serve_job() {
  Worker worker(Options::from_env());
  worker.shutdown(600s);
  return 0;
}
const Role serve_role("reliability_serve", serve_job);

// The same, and its process hosts the coordinator.
int host_job() {
  Options options = Options::from_env();
  options.host_coordinator = true;
  options.lease = 3s;
  Worker worker(options);
  worker.shutdown(600s);
  return 0;
}
const Role host_role("reliability_host", host_job);

// The letter of its state in /proc: 'T' is stopped.
char state_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  return name_end == text.npos || name_end + 2 >= text.size() ? '?' : text[name_end + 2];
}

// This process is rank 0; the others are processes that serve.
class ReliabilityTest : public testing::Test {
 protected:
  void start(int others, Duration lease, const std::function<void(Options&)>& adjust = {}) {
    coordinator.emplace(1 + others, lease);
    for (int rank = 1; rank <= others; ++rank) {
      processes.push_back(std::make_unique<TestProcess>("reliability_serve", coordinator->options(rank)));
    }
    Options options = coordinator->options(0);
    if (adjust) adjust(options);
    worker.emplace(options);
    for (int rank = 1; rank <= others; ++rank) pids.push_back(worker->peer(rank).call<own_pid>());
  }
  bool stop_process(size_t index) {
    processes[index]->signal(SIGSTOP);
    return eventually([&] { return state_of(pids[index]) == 'T'; });
  }
  void end() {
    worker->shutdown();
    for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
  }

  std::optional<TestCoordinator> coordinator;
  std::vector<std::unique_ptr<TestProcess>> processes;
  std::optional<Worker> worker;
  std::vector<int64_t> pids;
};

TEST_F(ReliabilityTest, AWorkerStoppedForLessThanItsLeaseGoesOn) {
  start(1, 600s);
  ASSERT_TRUE(stop_process(0));
  std::vector<Future<int64_t>> calls;
  for (int64_t i = 0; i < 50; ++i) calls.push_back(worker->peer(1).async<answer>(i));
  EXPECT_THROW(worker->peer(1).with_timeout(50ms).call<answer>(1), Timeout);
  for (const auto& call : calls) EXPECT_FALSE(call.ready());
  processes[0]->signal(SIGCONT);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)].get(), i + 1);
  end();
}

// Nobody reads, and the socket is full: only those who call that worker wait.
TEST_F(ReliabilityTest, AFullSocketHoldsUpNobodyElse) {
  start(2, 600s);
  ASSERT_TRUE(stop_process(0));
  const Bytes bytes(1 << 20);
  std::vector<Future<uint64_t>> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(worker->peer(1).async<size_of>(bytes));  // more than sockets hold
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(worker->peer(2).call<answer>(i), i + 1);
  EXPECT_EQ(worker->peer(2).call<size_of>(bytes), bytes.size());
  for (const auto& call : calls) EXPECT_FALSE(call.ready());
  processes[0]->signal(SIGCONT);
  for (auto& call : calls) EXPECT_EQ(call.get(), bytes.size());
  end();
}

// A reader that comes and goes: the window bounds what waits for it, and all arrives.
TEST_F(ReliabilityTest, ASlowReaderGetsEverythingAndBoundsTheSender) {
  start(1, 600s, [](Options& options) { options.inflight_bytes_max = 4 << 20; });
  const Bytes bytes(1 << 20);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(stop_process(0));
    std::vector<Future<uint64_t>> calls;
    for (int i = 0; i < 3; ++i) calls.push_back(worker->peer(1).with_timeout(kForever).async<size_of>(bytes));
    // The window is full: a further call waits for room, and says so when its time is up.
    const Timeout error = expect_throw<Timeout>([&] { worker->peer(1).with_timeout(20ms).call<size_of>(bytes); });
    EXPECT_CONTAINS(error.what(), "not sent");
    processes[0]->signal(SIGCONT);
    for (auto& call : calls) EXPECT_EQ(call.get(), bytes.size());
  }
  end();
}

// The connection is open for both sides, but nothing comes through: one of them notices and dials anew. Which one is
// open: the callee may still wait for the acknowledgement of its first answer. So both sit behind a proxy.
TEST(Reliability, AHalfOpenConnectionIsReplaced) {
  TestCoordinator coordinator(2, 600s);
  std::vector<Options> options{coordinator.options(0), coordinator.options(1)};
  std::vector<std::unique_ptr<Proxy>> proxies;
  for (Options& one : options) {
    one.port_first = free_port();
    proxies.push_back(std::make_unique<Proxy>("127.0.0.1:" + std::to_string(one.port_first)));
    one.advertise = proxies.back()->address();
  }
  const auto connections = [&] { return proxies[0]->connections() + proxies[1]->connections(); };
  const std::vector<std::unique_ptr<Worker>> workers = join(options);
  Peer peer = workers[0]->peer(1);
  EXPECT_EQ(peer.call<answer>(1), 2);
  EXPECT_EQ(connections(), 1);
  proxies[1]->freeze_all();
  EXPECT_EQ(peer.call<answer>(2), 3);
  EXPECT_GE(connections(), 2);
  shut_down({workers[0].get(), workers[1].get()});
}

// ---- the coordinator

TEST(Reliability, WithoutItsCoordinatorEveryWorkerEndsWithTheLease) {
  Options options;
  options.world_size = 3;
  options.coordinator = "127.0.0.1:" + std::to_string(free_port());
  options.job = "test";
  options.timeout = options.join_timeout = options.shutdown_timeout = kPatience;
  options.rank = 0;
  TestProcess host("reliability_host", options);
  options.rank = 2;
  TestProcess other("reliability_serve", options);
  options.rank = 1;
  Worker worker(options);
  Peer peer = worker.peer(2);
  EXPECT_EQ(peer.call<answer>(1), 2);
  host.signal(SIGKILL);
  EXPECT_EQ(host.wait(), -SIGKILL);
  // Until the lease is over, workers that know each other go on.
  const WorkerLost lost = expect_throw<WorkerLost>([&] {
    for (int64_t i = 0;; ++i) EXPECT_EQ(peer.call<answer>(i), i + 1);
  });
  EXPECT_TRUE(lost.worker() == "worker1" || lost.worker() == "worker2") << lost.what();
  EXPECT_TRUE(eventually([&] {
    try {
      peer.call<answer>(1);
      return false;
    } catch (const WorkerLost& error) {
      return error.worker() == "worker1";
    }
  }));
  EXPECT_THROW(worker.shutdown(), WorkerLost);
  EXPECT_EQ(other.wait(), 99);  // its shutdown threw, too
}

// ---- limits of the process

std::vector<Socket> taken_descriptors;

// Everything up to the limit.
int64_t take_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_cur, 256);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  for (;;) {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return static_cast<int64_t>(taken_descriptors.size());
    taken_descriptors.emplace_back(fd);
  }
}
void give_descriptors_back() { taken_descriptors.clear(); }
int64_t ask_first(int64_t n) { return current_worker().peer(1).call<answer>(n); }

TEST_F(ReliabilityTest, WithoutDescriptorsWhatIsConnectedGoesOnAndTheRestWaits) {
  // The checks of virtual calls that come with AddressSanitizer look at memory through a pipe: without descriptors they
  // take a good object for a bad one. dev and tsan run this.
  if (kSanitizer && !kThreadSanitizer) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  start(2, 600s);
  EXPECT_GT(worker->peer(1).call<take_descriptors>(), 0);
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(worker->peer(1).call<answer>(i), i + 1);
  // A worker that is not connected to it yet.
  Future<int64_t> waits = worker->peer(2).async<ask_first>(7);
  EXPECT_FALSE(waits.wait_for(100ms));
  worker->peer(1).call<give_descriptors_back>();
  EXPECT_EQ(waits.get(), 8);
  end();
}

// Only so much more memory than now.
void limit_memory(int64_t more_bytes) {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages;
  const auto bytes = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + more_bytes);
  const rlimit limit{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &limit);
}
uint64_t allocate(uint64_t bytes) { return Bytes(bytes).size(); }
Bytes make_bytes(uint64_t bytes) { return Bytes(bytes); }

TEST_F(ReliabilityTest, AtTheMemoryLimitAHandlerThrowsAndTheWorkerGoesOn) {
  // Its shadow memory alone goes over any limit that a test could set; dev runs this.
  if (kSanitizer) GTEST_SKIP() << "a sanitizer needs address space of its own";
  start(1, 600s);
  worker->peer(1).call<limit_memory>(192 << 20);
  const RemoteError error = expect_throw<RemoteError>([&] { worker->peer(1).call<allocate>(1u << 30); });
  EXPECT_EQ(error.type(), "std::bad_alloc");
  EXPECT_EQ(worker->peer(1).call<answer>(1), 2);
  EXPECT_EQ(worker->peer(1).call<make_bytes>(1 << 20).size(), 1u << 20);
  end();
}

// Runs on rank 2.
void limit_memory_of_first(int64_t more_bytes) { current_worker().peer(1).call<limit_memory>(more_bytes); }

// A message for which there is no memory closes its connection, and is sent again until there is: what the same worker
// sends later waits behind it, what others send does not.
TEST_F(ReliabilityTest, AMessageThatDoesNotFitIntoMemoryWaitsUntilItDoes) {
  // Its shadow memory alone goes over any limit that a test could set; dev runs this.
  if (kSanitizer) GTEST_SKIP() << "a sanitizer needs address space of its own";
  start(2, 600s, [](Options& options) { options.inflight_bytes_max = 1 << 30; });
  worker->peer(1).call<limit_memory>(64 << 20);
  EXPECT_THROW(worker->peer(1).with_timeout(1s).call<size_of>(Bytes(256 << 20)), Timeout);
  Future<int64_t> behind = worker->peer(1).async<answer>(1);
  EXPECT_FALSE(behind.wait_for(100ms));
  worker->peer(2).call<limit_memory_of_first>(int64_t{1} << 40);
  EXPECT_EQ(behind.get(), 2);
  end();
}

}  // namespace
}  // namespace holdfast::reliability_test
