// Tensors on devices, between real workers of one process: where they arrive, that nobody overtakes a device's streams,
// and what is said of maps that cannot be. The device is a fake; see its header for why a missing wait shows.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rref/rref.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/devices.h>
#include <holdfast/tensor/fake_device_test_support.h>
#include <holdfast/tensor/make_tensor.h>

namespace holdfast {
namespace {

using test::expect_throw;
using test::TestJob;

std::string fake_name(int index) { return fake::device(index).str(); }

using Maps = std::map<std::string, std::map<std::string, std::string>>;

// Worker 0 has these maps, the others none.
TestJob job_with(Maps maps, int workers = 2) {
  return TestJob(workers, [&](Options& options) {
    if (options.rank == 0) options.device_maps = maps;
  });
}

void expect_all(const at::Tensor& tensor, uint8_t value) {
  const at::Tensor bytes = tensor.cpu();
  const auto* first = static_cast<const uint8_t*>(bytes.data_ptr());
  const auto count = static_cast<size_t>(bytes.numel());
  const std::vector<uint8_t> expected(count, value);
  EXPECT_EQ(std::memcmp(first, expected.data(), count), 0) << "the first byte is " << int{first[0]};
}

// No stream that anything was given to before.
c10::Stream another_stream(int index) { return fake::Machine::instance().next_pool_stream(fake::device(index)); }

// ---- what workers run

at::Tensor add_one(at::Tensor tensor) {
  fake::add(tensor, 1);
  return tensor;
}

at::Tensor add_one_there(at::Tensor tensor, int64_t index) {
  if (tensor.device() != fake::device(static_cast<int>(index))) throw std::runtime_error(tensor.device().str());
  return add_one(tensor);
}

// Lets go of its argument while the kernel that reads it has not run; then somebody else wants memory.
at::Tensor add_one_elsewhere(at::Tensor tensor) {
  const at::Tensor result = fake::make(1, tensor.numel());
  fake::Machine& machine = fake::Machine::instance();
  machine.give(fake::current_stream(1), [from = tensor.data_ptr(), to = result.data_ptr(), size = tensor.nbytes()] {
    std::memcpy(to, from, size);
  });
  fake::add(result, 1);
  tensor.reset();
  for (c10::StreamId id = 1; id <= fake::kPoolStreams; ++id) {
    machine.run_all(c10::Stream(c10::Stream::UNSAFE, fake::device(1), id));
  }
  return result;
}

std::string device_of(at::Tensor tensor) { return tensor.device().str(); }
at::Tensor return_it(at::Tensor tensor) { return tensor; }
at::Tensor make_on(int64_t index) { return fake::make(static_cast<int>(index), 8); }

bool write_through(at::Tensor whole, at::Tensor part) {
  fake::fill(part, 9);
  const at::Tensor bytes = whole.cpu();
  const auto* first = static_cast<const uint8_t*>(bytes.data_ptr());
  return first[0] == 7 && first[4] == 9 && part.device() == fake::device(1);
}

// ---- where they go, and when

// Large enough that memory which is given back too early is gone.
constexpr int64_t kDeviceBytes = 1 << 18;

TEST(Devices, ArriveByTheMapAndComeBackThoughNothingHasRunYet) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}, {fake_name(2), fake_name(0)}}}});
  const Peer peer = job[0].peer("worker1");
  for (const auto& [here, there] : {std::pair{0, 1}, std::pair{2, 0}}) {
    // Not the default stream: the current one counts.
    const c10::StreamGuard guard(another_stream(here));
    const at::Tensor sent = fake::make(here, kDeviceBytes);
    fake::fill(sent, 5);
    const at::Tensor back = peer.call<add_one_there>(sent, there);
    EXPECT_EQ(back.device(), fake::device(here));
    {
      const c10::StreamGuard other(another_stream(here));
      expect_all(back, 6);
    }
    expect_all(sent, 5);
  }
}

TEST(Devices, OrderStreamsByEventsInEveryDirection) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  const at::Tensor sent = fake::make(0, 16);
  const fake::Counts before = fake::Machine::instance().counts();
  const at::Tensor back = job[0].peer("worker1").call<return_it>(sent);
  const fake::Counts after = fake::Machine::instance().counts();
  // Call and reply, each leaves one device and comes to another.
  EXPECT_EQ(after.copies - before.copies, 4);
  EXPECT_GE(after.events - before.events, 4);
  EXPECT_GE(after.waits - before.waits, 4);
}

TEST(Devices, MemoryOfArgumentsStaysUntilTheHandlersStreamIsDoneWithIt) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  const at::Tensor sent = fake::make(0, kDeviceBytes);
  fake::fill(sent, 5);
  expect_all(job[0].peer("worker1").call<add_one_elsewhere>(sent), 6);
}

TEST(Devices, ManyCallsAtOnceKeepTheirBytes) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  const Peer peer = job[0].peer("worker1");
  std::vector<Future<at::Tensor>> futures;
  for (int i = 0; i < 50; ++i) {
    const at::Tensor sent = fake::make(0, kDeviceBytes / 16);
    fake::fill(sent, static_cast<uint8_t>(i));
    futures.push_back(peer.async<add_one>(sent));
  }
  for (size_t i = 0; i < futures.size(); ++i) expect_all(futures[i].get(), static_cast<uint8_t>(i + 1));
}

TEST(Devices, ResultsThatStayThereComeBackWhenFetched) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  const at::Tensor sent = fake::make(0, kDeviceBytes);
  fake::fill(sent, 5);
  const RRef<at::Tensor> kept = job[0].peer("worker1").remote<add_one>(sent);
  const at::Tensor back = kept.to_here();
  EXPECT_EQ(back.device(), fake::device(0));
  expect_all(back, 6);
}

TEST(Devices, ViewsShareOnTheDeviceToo) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  const at::Tensor whole = fake::make(0, 8);
  fake::fill(whole, 7);
  EXPECT_TRUE(job[0].peer("worker1").call<write_through>(whole, tensor_of_bytes(whole.storage(), 4, 4)));
}

TEST(Devices, TheCpuNeedsNoEntryButMayHaveOne) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}, {"worker2", {{"cpu", fake_name(2)}}}}, 3);
  const at::Tensor sent = at::empty({4}, at::kByte);
  EXPECT_EQ(job[0].peer("worker1").call<device_of>(sent), "cpu");
  EXPECT_EQ(job[0].peer("worker2").call<device_of>(sent), fake_name(2));
  EXPECT_EQ(job[0].peer("worker2").call<return_it>(sent).device().str(), "cpu");
  EXPECT_EQ(job[1].peer("worker2").call<device_of>(sent), "cpu");
}

TEST(Devices, ToOneselfTheyStayOnTheirDevice) {
  TestJob job(1);
  const at::Tensor sent = fake::make(2, kDeviceBytes);
  fake::fill(sent, 5);
  const at::Tensor back = job[0].self().call<add_one_there>(sent, 2);
  expect_all(back, 6);
  expect_all(sent, 5);
}

TEST(Devices, TheMapOfAReplacementCounts) {
  test::TestCoordinator coordinator(2);
  std::vector<std::unique_ptr<Worker>> workers = test::join({coordinator.options(0), coordinator.options(1)});
  workers[0].reset();
  Options again = coordinator.options(0);
  again.device_maps = {{"worker1", {{fake_name(0), fake_name(1)}}}};
  ASSERT_TRUE(test::eventually([&] { return coordinator.server().member_count() == 1; }));
  workers[0] = std::make_unique<Worker>(again);
  const at::Tensor sent = fake::make(0, 16);
  fake::fill(sent, 5);
  // It hears of the map from the coordinator, and of the call from the replacement: in either order.
  ASSERT_TRUE(test::eventually([&] {
    try {
      expect_all(workers[0]->peer("worker1").call<add_one>(sent), 6);
      return true;
    } catch (const Error&) {
      return false;
    }
  }));
}

// ---- what is refused

TEST(Devices, WithoutAnEntryTheErrorSaysWhatToSet) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}}, 3);
  const at::Tensor sent = fake::make(2, 8);
  for (const char* peer : {"worker1", "worker2"}) {
    const auto error = expect_throw<InvalidArgument>([&] { job[0].peer(peer).call<return_it>(sent); });
    EXPECT_CONTAINS(error.what(), "on " + fake_name(2) + " of worker0");
    EXPECT_CONTAINS(error.what(),
                    "set Options::device_maps[\"" + std::string(peer) + "\"][\"" + fake_name(2) + "\"] of worker0");
  }
  const auto error = expect_throw<RemoteError>([&] { job[0].peer("worker1").call<make_on>(2); });
  EXPECT_CONTAINS(error.what(), "it is on " + fake_name(2) + " of worker1");
  EXPECT_CONTAINS(error.what(), "set Options::device_maps[\"worker1\"] of worker0");
}

TEST(Devices, NobodyCanPutTensorsOnDevicesThatNoMapNames) {
  TestJob job = job_with({{"worker1", {{fake_name(0), fake_name(1)}}}});
  Devices& devices = Devices::of(job[1].host());
  const WorkerInfo& from = job[0].info();
  EXPECT_TRUE(devices.may_receive(fake::device(1), from).ok());
  EXPECT_EQ(devices.may_receive(fake::device(0), from).failure().code, Code::corrupt);
  EXPECT_EQ(devices.may_receive(fake::device(fake::kDevices), from).failure().code, Code::corrupt);
  EXPECT_EQ(devices.may_receive({c10::DeviceType::CUDA, 0}, from).failure().code, Code::corrupt);
  EXPECT_TRUE(devices.may_receive(fake::device(0), job[1].info()).ok());
}

struct WrongMap {
  const char* name;
  Maps maps;                         // of worker 0
  std::vector<std::string> devices;  // of the worker that the test is about
  std::vector<std::string> says;
};

TEST(Devices, OptionsThatCannotBeAreRefusedBeforeJoining) {
  const std::vector<WrongMap> cases = {
      {"not one to one",
       {{"worker1", {{fake_name(0), fake_name(1)}, {fake_name(2), fake_name(1)}}}},
       {},
       {"device_maps[\"worker1\"] maps both " + fake_name(0) + " and " + fake_name(2) + " to " + fake_name(1)}},
      {"no device", {{"worker1", {{"gpu 0", fake_name(1)}}}}, {}, {"\"gpu 0\", which is no device", "\"cuda:0\""}},
      {"no index", {{"worker1", {{"cuda", "cuda:0"}}}}, {}, {"\"cuda\" without an index", "\"cuda:0\""}},
      {"meta", {{"worker1", {{"meta", "cpu"}}}}, {}, {"\"meta\", whose tensors cannot be sent"}},
      {"not here",
       {{"worker1", {{fake_name(7), fake_name(1)}}}},
       {},
       {"maps " + fake_name(7) + ", but this worker has 3 of that type"}},
      {"no such type", {{"worker1", {{"cuda:0", fake_name(1)}}}}, {}, {"maps cuda:0, but this worker has no devices"}},
      {"not in devices",
       {{"worker1", {{fake_name(0), fake_name(1)}}}},
       {fake_name(1), fake_name(2)},
       {"maps " + fake_name(0) + ", but Options::devices has only " + fake_name(1) + ", " + fake_name(2) + ": add it"}},
      {"devices not here", {}, {fake_name(3)}, {"Options::devices has " + fake_name(3) + ", but this worker has 3"}},
      {"devices no device", {}, {"tpu"}, {"Options::devices has \"tpu\", which is no device"}},
  };
  for (const WrongMap& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    Options options;
    options.device_maps = wrong.maps;
    options.devices = wrong.devices;
    const auto error = expect_throw<InvalidArgument>([&] { Worker worker(options); });
    for (const std::string& part : wrong.says) EXPECT_CONTAINS(error.what(), part);
  }
}

TEST(Devices, MapsThatDoNotFitTheOthersEndTheJoinOfAll) {
  const std::vector<WrongMap> cases = {
      {"unknown worker",
       {{"trainer", {{fake_name(0), fake_name(1)}}}},
       {},
       {"device_maps of worker0 names \"trainer\"", "there are worker0, worker1"}},
      {"index not there",
       {{"worker1", {{fake_name(0), fake_name(4)}}}},
       {},
       {"of worker0 maps " + fake_name(0) + " to " + fake_name(4), "worker1 has 3 of that type",
        "map it to a device that is"}},
      {"type not there",
       {{"worker1", {{fake_name(0), "cuda:0"}}}},
       {},
       {"of worker0 maps " + fake_name(0) + " to cuda:0", "worker1 has no devices of that type"}},
      {"not in its devices",
       {{"worker1", {{fake_name(0), fake_name(1)}}}},
       {fake_name(0), fake_name(2)},
       {"maps " + fake_name(0) + " to " + fake_name(1),
        "devices of worker1 has only " + fake_name(0) + ", " + fake_name(2), "add it there"}},
  };
  for (const WrongMap& wrong : cases) {
    SCOPED_TRACE(wrong.name);
    test::TestCoordinator coordinator(2);
    std::vector<Options> options = {coordinator.options(0), coordinator.options(1)};
    options[0].device_maps = wrong.maps;
    options[1].devices = wrong.devices;
    std::vector<std::function<void()>> joins;
    for (const Options& each : options) {
      joins.emplace_back([&, each] {
        const auto error = expect_throw<InvalidArgument>([&] { Worker worker(each); });
        for (const std::string& part : wrong.says) EXPECT_CONTAINS(error.what(), part);
      });
    }
    test::run_together(joins);
  }
}

// ---- 64 bits

int64_t weighted_sum(at::Tensor tensor) {
  const auto* at = static_cast<const uint64_t*>(tensor.data_ptr());
  uint64_t sum = 0;
  for (int64_t i = 0; i < tensor.numel() / 8; ++i) sum += at[i] * static_cast<uint64_t>(i + 1);
  return static_cast<int64_t>(sum);
}

TEST(Devices, ATensorOfFiveGibibytesTravels) {
  // More memory than many machines have, and minutes of copying: on demand only.
  if (std::getenv("HOLDFAST_LARGE_TESTS") == nullptr) {
    GTEST_SKIP() << "it takes 10 GiB of memory; set HOLDFAST_LARGE_TESTS=1 to run it";
  }
  constexpr int64_t kLarge = int64_t{5} << 30;
  TestJob job(2, [](Options& options) {
    options.frame_bytes_max = uint64_t{6} << 30;
    options.timeout = std::chrono::minutes(10);
  });
  const at::Tensor sent = at::empty({kLarge}, at::kChar);
  auto* at = static_cast<uint64_t*>(sent.data_ptr());
  for (int64_t i = 0; i < kLarge / 8; ++i) at[i] = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15;
  const int64_t expected = weighted_sum(sent);
  EXPECT_EQ(job[0].peer("worker1").call<weighted_sum>(sent), expected);
}

}  // namespace
}  // namespace holdfast
