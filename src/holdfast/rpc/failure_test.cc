// Bad input and bad days inside one process: what goes wrong, and what the errors say.
#include <holdfast/rpc/proxy_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>

#include <holdfast/base/random.h>
#include <holdfast/link/messages.h>

namespace holdfast::failure_test {
namespace {

using namespace test;

double scale(double x, double k) { return x * k; }
HOLDFAST_EXPORT_AS(scale, "scale");

struct NotAnException {
  int number = 0;
};
void throw_runtime_error() { throw std::runtime_error("the disk is full"); }
int throw_out_of_range() { return std::vector<int>().at(3); }
void throw_int() { throw 5; }
void throw_struct() { throw NotAnException{1}; }
void throw_our_own() { throw_failure({.code = Code::overloaded, .message = "too much for me"}); }
Future<int> throw_before_the_future() { throw std::runtime_error("no future"); }
void fail_further_on() { current_worker().peer(0).call<throw_runtime_error>(); }

Gate gate;
int pass_gate(int value) { return gate.pass() ? value : -1; }
int wait_for_cancellation() {
  gate.pass();
  return eventually([] { return cancelled(); }) ? 1 : -1;
}

Bytes make_bytes(uint64_t count) { return Bytes(count, 1); }
uint64_t count_bytes(const Bytes& bytes) { return bytes.size(); }

std::string shutdown_inside() {
  try {
    current_worker().shutdown();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "it did not throw";
}

std::string lookup_inside(const std::string& name) {
  Worker& worker = current_worker();
  return worker.peer(name).name() + " " + worker.peer(0).name() + " " + worker.self().name();
}

enum class Callee { self, other };

class FailureTest : public testing::TestWithParam<Callee> {
 protected:
  FailureTest() { gate.reset(); }
  Peer callee(TestJob& job) { return GetParam() == Callee::self ? job[0].self() : job[0].peer(1); }
};

TEST_P(FailureTest, WhatAHandlerThrowsArrivesWithTypeTextAndWorker) {
  TestJob job(2);
  Peer peer = callee(job);
  const RemoteError disk = expect_throw<RemoteError>([&] { peer.call<throw_runtime_error>(); });
  EXPECT_EQ(disk.type(), "std::runtime_error");
  EXPECT_EQ(disk.worker(), peer.name());
  EXPECT_CONTAINS(disk.what(), "the disk is full");
  EXPECT_CONTAINS(disk.what(), "throw_runtime_error");
  EXPECT_CONTAINS(disk.what(), peer.name());

  EXPECT_EQ(expect_throw<RemoteError>([&] { peer.call<throw_out_of_range>(); }).type(), "std::out_of_range");
  EXPECT_EQ(expect_throw<RemoteError>([&] { peer.call<throw_int>(); }).type(), "int");
  EXPECT_CONTAINS(expect_throw<RemoteError>([&] { peer.call<throw_struct>(); }).type(), "NotAnException");
  EXPECT_CONTAINS(expect_throw<RemoteError>([&] { peer.call<throw_before_the_future>(); }).what(), "no future");

  const RemoteError ours = expect_throw<RemoteError>([&] { peer.call<throw_our_own>(); });
  EXPECT_EQ(ours.type(), "holdfast::Overloaded");
  EXPECT_CONTAINS(ours.what(), "too much for me");
  job.shutdown();
}

TEST_P(FailureTest, AnErrorFromFurtherOnKeepsItsOrigin) {
  TestJob job(2);
  const RemoteError error = expect_throw<RemoteError>([&] { callee(job).call<fail_further_on>(); });
  EXPECT_EQ(error.worker(), callee(job).name());
  EXPECT_CONTAINS(error.what(), "the disk is full");
  EXPECT_CONTAINS(error.what(), "std::runtime_error");
  EXPECT_CONTAINS(error.what(), "throw_runtime_error");
  EXPECT_CONTAINS(error.what(), "fail_further_on");
  job.shutdown();
}

TEST_P(FailureTest, AFunctionThatIsNotThere) {
  TestJob job(2);
  const NoSuchFunction error =
      expect_throw<NoSuchFunction>([&] { callee(job).call_named<int>("no::such_thing", 1, "two"); });
  EXPECT_CONTAINS(error.what(), "no::such_thing(i32, str) -> i32");
  EXPECT_CONTAINS(error.what(), callee(job).name());
  EXPECT_CONTAINS(error.what(), "HOLDFAST_EXPORT");
  EXPECT_EQ(callee(job).call<scale>(1, 2), 2.0);
  job.shutdown();
}

TEST_P(FailureTest, ASignatureThatDiffersIsShownTwice) {
  TestJob job(2);
  Peer peer = callee(job);
  EXPECT_EQ(peer.call_named<double>("scale", 2.0, 3.0), 6.0);
  for (const InvalidArgument& error :
       {expect_throw<InvalidArgument>([&] { peer.call_named<double>("scale", 2, 3.0); }),
        expect_throw<InvalidArgument>([&] { peer.call_named<double>("scale", 2.0); }),
        expect_throw<InvalidArgument>([&] { peer.call_named<float>("scale", 2.0, 3.0); })}) {
    EXPECT_CONTAINS(error.what(), "scale(f64, f64) -> f64");
    EXPECT_CONTAINS(error.what(), "called as scale(");
    EXPECT_CONTAINS(error.what(), peer.name());
  }
  job.shutdown();
}

TEST(UnknownWorker, TheErrorListsWhoIsThere) {
  TestJob job(3);
  const InvalidArgument by_name = expect_throw<InvalidArgument>([&] { job[0].peer("nobody"); });
  EXPECT_CONTAINS(by_name.what(), "\"nobody\"");
  EXPECT_CONTAINS(by_name.what(), "worker0, worker1, worker2");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { job[0].peer(3); }).what(), "no rank 3");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { job[0].peer(-1); }).what(), "no rank -1");
  job.shutdown();
}

// Frames over the limit: an error that says so, on either side, and the link works on.
TEST_P(FailureTest, MessagesOverTheLimit) {
  constexpr uint64_t kLimit = 20'000;
  TestJob job(2, [](Options& options) { options.frame_bytes_max = kLimit; });
  Peer peer = callee(job);
  const InvalidArgument arguments = expect_throw<InvalidArgument>([&] { peer.call<count_bytes>(Bytes(30'000, 1)); });
  EXPECT_CONTAINS(arguments.what(), "frame_bytes_max");
  EXPECT_CONTAINS(arguments.what(), "count_bytes");
  const Overloaded result = expect_throw<Overloaded>([&] { peer.call<make_bytes>(30'000); });
  EXPECT_CONTAINS(result.what(), "frame_bytes_max");
  EXPECT_CONTAINS(result.what(), "make_bytes");

  // Up to the very edge a call either arrives or says why not.
  int arrived = 0;
  int refused = 0;
  for (uint64_t bytes = kLimit - 80; bytes <= kLimit; ++bytes) {
    try {
      EXPECT_EQ(peer.call<count_bytes>(Bytes(bytes, 1)), bytes);
      ++arrived;
    } catch (const InvalidArgument&) {
      ++refused;
    }
    try {
      EXPECT_EQ(peer.call<make_bytes>(bytes).size(), bytes);
    } catch (const Overloaded&) {
      ++refused;
    }
  }
  EXPECT_GT(arrived, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(peer.call<count_bytes>(Bytes(5, 1)), 5u);
  job.shutdown();
}

// A very long error text is an answer too.
std::string long_text() { throw std::runtime_error(std::string(100'000, 'x')); }
TEST_P(FailureTest, AnErrorTextOverTheLimit) {
  TestJob job(2, [](Options& options) { options.frame_bytes_max = 20'000; });
  EXPECT_THROW(callee(job).call<long_text>(), Error);
  EXPECT_EQ(callee(job).call<scale>(1, 2), 2.0);
  job.shutdown();
}

TEST_P(FailureTest, ShutdownInsideAHandler) {
  TestJob job(2);
  EXPECT_CONTAINS(callee(job).call<shutdown_inside>(), "inside a handler");
  EXPECT_EQ(callee(job).call<scale>(1, 2), 2.0);  // nothing happened
  job.shutdown();
}

TEST_P(FailureTest, LookingPeersUpInsideAHandler) {
  TestJob job(2, [](Options& options) { options.handler_threads = 1; });
  EXPECT_EQ(callee(job).call<lookup_inside>("worker1"), "worker1 worker0 " + callee(job).name());
  EXPECT_CONTAINS(expect_throw<RemoteError>([&] { callee(job).call<lookup_inside>("nobody"); }).what(),
                  "worker0, worker1");
  job.shutdown();
}

TEST(CurrentWorker, IsAnErrorOutsideHandlers) {
  expect_throw<InvalidArgument>([] { current_worker(); });
  EXPECT_FALSE(cancelled());
  EXPECT_EQ(current_deadline(), kNever);
}

// ---- the end of a worker

TEST(EndOfAWorker, DestroyedWithoutShutdownOthersLearnAtOnce) {
  gate.reset();
  TestJob job(2, {}, 600s);  // far longer than the test: not the lease tells them
  Future<int> served = job[0].peer(1).async<wait_for_cancellation>();
  Future<int> own = job[1].peer(0).async<pass_gate>(1);
  ASSERT_TRUE(gate.wait_for_arrivals(2));
  // The gate opens only after that worker has begun to end: its handler must see that nobody waits.
  std::thread opener([&] {
    own.wait();
    gate.open();
  });
  Peer peer = job[0].peer(1);
  job.destroy(1);
  opener.join();
  const WorkerLost lost = expect_throw<WorkerLost>([&] { served.get(); });
  EXPECT_EQ(lost.worker(), "worker1");
  EXPECT_TRUE(lost.maybe_executed());
  EXPECT_CONTAINS(lost.what(), "destroyed without shutdown()");
  expect_throw<Shutdown>([&] { own.get(); });
  // From now on it is certain that nothing runs there.
  EXPECT_FALSE(expect_throw<WorkerLost>([&] { peer.call<scale>(1, 2); }).maybe_executed());
  expect_throw<InvalidArgument>([&] { job[0].peer("worker1"); });
  job.shutdown();
}

TEST(EndOfAWorker, ItsPeersAndFuturesMayOutliveIt) {
  gate.reset();
  TestJob job(2);
  std::optional<Peer> peer = job[0].peer(1);
  Peer self = job[0].self();
  Future<int> future = peer->async<pass_gate>(1);
  Future<int> derived = future.then([](Future<int> done) { return done.failed() ? 1 : 0; });
  gate.open();
  future.wait();
  job.destroy(0);
  expect_throw<Shutdown>([&] { peer->call<scale>(1, 2); });
  expect_throw<Shutdown>([&] { self.call<scale>(1, 2); });
  derived.wait();
  peer.reset();
  job.shutdown();
}

// ---- strangers

Bytes with_preface(const Bytes& rest) {
  std::vector<uint8_t> bytes(kPreface.begin(), kPreface.end());
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return Bytes(bytes.begin(), bytes.end());
}

std::vector<Bytes> things_strangers_say() {
  std::vector<Bytes> all;
  const std::string http = "GET / HTTP/1.1\r\nHost: worker\r\n\r\n";
  all.emplace_back(http.begin(), http.end());
  Random random(1);
  for (size_t size : {8u, 64u, 100'000u}) {
    Bytes noise(size);
    for (size_t i = 0; i < size; ++i) noise[i] = static_cast<uint8_t>(random.next());
    noise[0] = 'X';
    all.push_back(noise);
    if (size > kFrameHeaderBytes) all.push_back(with_preface(noise));
  }
  // A frame that claims to be huge; a call without a handshake; a handshake that does not decode.
  Bytes huge(32, 0xff);
  all.push_back(with_preface(huge));
  for (const Kind kind : {kCall, kReply, kHello, kWelcome, kAck, kPing, Kind{16}, Kind{25}, Kind{40}, Kind{999}}) {
    const OutFrame frame{
        .header = {.kind = kind, .sequence = 1},
        .message = std::make_shared<const Message>(Message{.kind = kind, .body = Bytes(20, 0xc1), .attachments = {}})};
    all.push_back(with_preface(encode_frame(frame)));
  }
  return all;
}

TEST(Strangers, GarbageIsClosedAndCallsGoOn) {
  TestJob job(2);
  Peer peer = job[0].peer(1);
  EXPECT_EQ(peer.call<scale>(1, 2), 2.0);
  for (const std::string& address : {job[1].info().address, job.coordinator_address()}) {
    int number = 0;
    for (const Bytes& said : things_strangers_say()) {
      Socket stranger = Socket::connect(address);
      ASSERT_GE(stranger.fd(), 0);
      stranger.send(said);
      EXPECT_TRUE(stranger.wait_for_close()) << address << " thing " << number;
      EXPECT_EQ(peer.call<scale>(number, 2), number * 2.0);
      ++number;
    }
  }
  EXPECT_TRUE(eventually([&] { return job[1].stats().connections == 1; }));
  job.shutdown();
}

// Those who say nothing, or not enough, are shown the door after the time for a handshake.
TEST(Strangers, SilentOnesAreClosed) {
  TestJob job(2);
  std::vector<Socket> silent;
  for (const std::string& address : {job[1].info().address, job.coordinator_address()}) {
    silent.push_back(Socket::connect(address));
    silent.push_back(Socket::connect(address));
    silent.back().send(with_preface(Bytes(5, 0)));
  }
  for (const Socket& one : silent) EXPECT_TRUE(one.wait_for_close());
  EXPECT_EQ(job[0].peer(1).call<scale>(1, 2), 2.0);
  EXPECT_TRUE(eventually([&] { return job[1].stats().connections == 1; }));
  job.shutdown();
}

const auto kName = [](const auto& info) { return info.param == Callee::self ? "Self" : "Other"; };
INSTANTIATE_TEST_SUITE_P(To, FailureTest, testing::Values(Callee::self, Callee::other), kName);

}  // namespace
}  // namespace holdfast::failure_test
