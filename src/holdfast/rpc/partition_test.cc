// A network that falls apart: two workers in network namespaces of their own, joined by a pair of virtual interfaces,
// of which one is taken down. Needs the right to make namespaces; where that is missing the test says so and is
// skipped.
#include <sched.h>

#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::partition_test {
namespace {

using namespace test;

constexpr const char* kSpaceVariable = "HOLDFAST_TEST_NAMESPACE";  // where the role lives
constexpr const char* kCutVariable = "HOLDFAST_TEST_CUT";  // what takes the network apart, without "down" or "up"

bool shell(const std::string& command) { return std::system((command + " 2>/dev/null").c_str()) == 0; }

// Before the process has threads.
void enter_namespace() {
  const std::string path = std::string("/run/netns/") + std::getenv(kSpaceVariable);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) throw std::runtime_error("cannot enter " + path);
  ::close(fd);
}
bool set_network(const std::string& state) { return shell(std::getenv(kCutVariable) + (" " + state)); }

int64_t plus_one(int64_t n) { return n + 1; }

// Rank 1. Calls until it is told that it is lost; 0 if that comes, or if everybody ends.
int far_side() {
  enter_namespace();
  Worker worker(Options::from_env());
  try {
    worker.shutdown(600s);
    return 0;
  } catch (const WorkerLost& error) {
    return error.worker() == worker.name() ? 10 : 11;
  }
}
const Role far_role("partition_far", far_side);

Options near_options(Duration lease) {
  enter_namespace();
  Options options = Options::from_env();
  options.host_coordinator = true;
  options.lease = lease;
  options.timeout = options.shutdown_timeout = options.join_timeout = kPatience;
  return options;
}

// Rank 0. The network is away for less than the lease: calls wait, and all run once.
int near_side_short() {
  Worker worker(near_options(600s));
  Peer peer = worker.peer(1);
  if (peer.call<plus_one>(1) != 2) return 1;
  if (!set_network("down")) return 2;
  std::vector<Future<int64_t>> calls;
  for (int64_t i = 0; i < 20; ++i) calls.push_back(peer.async<plus_one>(i));
  try {
    peer.with_timeout(200ms).call<plus_one>(1);
    return 3;
  } catch (const Timeout&) {
  }
  for (const auto& call : calls) {
    if (call.ready()) return 4;
  }
  if (!set_network("up")) return 5;
  for (int64_t i = 0; i < 20; ++i) {
    if (calls[static_cast<size_t>(i)].get() != i + 1) return 6;
  }
  worker.shutdown();
  return 0;
}
const Role near_short_role("partition_near_short", near_side_short);

// Rank 0. The network is away for longer: the other one is lost, and learns it when the network is back.
int near_side_long() {
  Worker worker(near_options(3s));
  Peer peer = worker.peer(1);
  if (peer.call<plus_one>(1) != 2) return 1;
  if (!set_network("down")) return 2;
  try {
    for (;;) peer.call<plus_one>(1);
  } catch (const WorkerLost& error) {
    if (error.worker() != "worker1") return 3;
  }
  if (!set_network("up")) return 4;
  worker.shutdown();
  return 0;
}
const Role near_long_role("partition_near_long", near_side_long);

class PartitionTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string base = "hf" + std::to_string(::getpid());
    near_space = base + "a";
    far_space = base + "b";
    made = shell("ip netns add " + near_space) && shell("ip netns add " + far_space) &&
           shell("ip -n " + near_space + " link add v0 type veth peer name v1 netns " + far_space) &&
           shell("ip -n " + near_space + " address add 10.77.0.1/24 dev v0") &&
           shell("ip -n " + far_space + " address add 10.77.0.2/24 dev v1") &&
           shell("ip -n " + near_space + " link set v0 up") && shell("ip -n " + far_space + " link set v1 up") &&
           shell("ip -n " + near_space + " link set lo up") && shell("ip -n " + far_space + " link set lo up");
    // Not everybody who runs the tests is root. As root it runs: ./test installs iproute2.
    if (!made) GTEST_SKIP() << "cannot make network namespaces here (needs root and iproute2): nothing was tested";
  }
  void TearDown() override {
    shell("ip netns delete " + near_space);
    shell("ip netns delete " + far_space);
  }
  // How the two ended.
  std::pair<int, int> run(const std::string& near_role) {
    Options options;
    options.world_size = 2;
    options.job = "test";
    options.coordinator = "10.77.0.1:29500";
    const auto variables = [&](const std::string& space) {
      return std::map<std::string, std::string>{{kSpaceVariable, space},
                                                {kCutVariable, "ip -n " + far_space + " link set v1"},
                                                {"HOLDFAST_SECURITY", "plain"}};
    };
    options.rank = 0;
    TestProcess near(near_role, options, variables(near_space));
    options.rank = 1;
    TestProcess far("partition_far", options, variables(far_space));
    const int first = near.wait();
    return {first, far.wait()};
  }

  std::string near_space, far_space;
  bool made = false;
};

TEST_F(PartitionTest, ForLessThanTheLeaseCallsWaitAndRunOnce) {
  EXPECT_EQ(run("partition_near_short"), std::pair(0, 0));
}

TEST_F(PartitionTest, ForLongerTheOtherSideIsLostAndLearnsIt) {
  EXPECT_EQ(run("partition_near_long"), std::pair(0, 10));
}

}  // namespace
}  // namespace holdfast::partition_test
