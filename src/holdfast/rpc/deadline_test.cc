// Time limits, cancellation, push-back and nesting: what a call waits for, and what ends it.
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::deadline_test {
namespace {

using namespace test;

Gate gate;
int pass_gate(int value) {
  take_a_while();
  return gate.pass() ? value : -1;
}

std::atomic<int> runs{0};
int count_run(int value) {
  take_a_while();
  ++runs;
  return value;
}

// How long its caller still waits; -1: for ever.
int64_t time_left_us() {
  const Time deadline = current_deadline();
  return deadline == kNever ? -1
                            : std::chrono::duration_cast<std::chrono::microseconds>(deadline - steady_now()).count();
}

// Asks rank 0 what is left there, in a call without a limit of its own.
int64_t nested_time_left_us() { return current_worker().peer(0).with_timeout(kForever).call<time_left_us>(); }

// The same in a coroutine, after it was suspended.
Task<int64_t> time_left_in_coroutine_us() {
  co_await current_worker().self().async<count_run>(0);
  co_return time_left_us();
}

// What a handler saw that nobody waits for any more.
std::atomic<bool> saw_cancelled{false};
int wait_for_cancellation() {
  gate.pass();  // it runs now
  saw_cancelled = eventually([] { return cancelled(); });
  return 1;
}

std::atomic<int> nested_code{0};
int nested_wait() {
  try {
    return current_worker().peer(0).with_timeout(kForever).call<pass_gate>(1);
  } catch (const Error& error) {
    nested_code = static_cast<int>(error.code());
    throw;
  }
}

int bounce(int depth) {
  if (depth == 0) return 0;
  Worker& worker = current_worker();
  return worker.peer((worker.rank() + 1) % worker.world_size()).call<bounce>(depth - 1) + 1;
}

int call_myself(int depth) { return depth == 0 ? 0 : current_worker().self().call<call_myself>(depth - 1) + 1; }

Task<int> bounce_in_coroutines(int depth) {
  if (depth == 0) co_return 0;
  Worker& worker = current_worker();
  co_return co_await worker.peer((worker.rank() + 1) % worker.world_size()).async<bounce_in_coroutines>(depth - 1) + 1;
}

int64_t take_bytes(const Bytes& bytes) {
  take_a_while();
  return gate.pass() ? static_cast<int64_t>(bytes.size()) : -1;
}

enum class Callee { self, other };

class DeadlineTest : public testing::TestWithParam<Callee> {
 protected:
  DeadlineTest() {
    gate.reset();
    runs = 0;
    saw_cancelled = false;
    nested_code = 0;
  }
  Peer callee(TestJob& job) { return GetParam() == Callee::self ? job[0].self() : job[0].peer(1); }
};

constexpr int64_t us(Duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

TEST_P(DeadlineTest, TheDeadlineTravels) {
  TestJob job(2, [](Options& options) { options.timeout = 1000s; });
  Peer peer = callee(job);
  EXPECT_EQ(peer.with_timeout(kForever).call<time_left_us>(), -1);
  for (const auto left : {peer.call<time_left_us>(), peer.call<nested_time_left_us>()}) {
    EXPECT_GT(left, us(500s));
    EXPECT_LE(left, us(1000s));
  }
  for (const auto left :
       {peer.with_timeout(500s).call<time_left_us>(), peer.with_timeout(500s).call<nested_time_left_us>(),
        peer.with_timeout(500s).call<time_left_in_coroutine_us>()}) {
    EXPECT_GT(left, us(100s));
    EXPECT_LE(left, us(500s));
  }
  job.shutdown();
}

TEST(DefaultTimeout, IsAMinute) { EXPECT_EQ(Options().timeout, Duration(60s)); }

TEST_P(DeadlineTest, ATimeoutSaysWhatDidNotAnswer) {
  TestJob job(2);
  Peer peer = callee(job);
  const Timeout error = expect_throw<Timeout>([&] { peer.with_timeout(30ms).call<pass_gate>(1); });
  EXPECT_CONTAINS(error.what(), "pass_gate");
  EXPECT_CONTAINS(error.what(), peer.name());
  EXPECT_CONTAINS(error.what(), "0.03 s");
  gate.open();
  job.shutdown();
}

TEST_P(DeadlineTest, TheWorkersOwnTimeoutHoldsForAllCalls) {
  TestJob job(2, [](Options& options) { options.timeout = 400ms; });
  Peer peer = callee(job);
  expect_throw<Timeout>([&] { peer.call<pass_gate>(1); });
  gate.open();
  EXPECT_EQ(peer.with_timeout(kPatience).call<pass_gate>(2), 2);
  job.shutdown();
}

TEST_P(DeadlineTest, ATimeThatIsUpBeforeTheCall) {
  TestJob job(2);
  expect_throw<Timeout>([&] { callee(job).with_timeout(0ns).call<count_run>(1); });
  expect_throw<Timeout>([&] { callee(job).with_timeout(-1s).call<count_run>(1); });
  EXPECT_EQ(runs, 0);
  job.shutdown();
}

TEST_P(DeadlineTest, NestedCallsEndWithTheOuterOne) {
  TestJob job(2);
  // Both end at the same moment: either our own time is up first, or we hear that the nested call's was.
  const Future<int> outer = callee(job).with_timeout(100ms).async<nested_wait>();
  outer.wait();
  EXPECT_TRUE(outer.failure().code == Code::timeout || outer.failure().type == "holdfast::Timeout");
  EXPECT_TRUE(eventually([] { return nested_code != 0; }));
  EXPECT_EQ(nested_code, static_cast<int>(Code::timeout));
  gate.open();
  job.shutdown();
}

// The only handler thread is busy; a call waits behind it until its time is up. It must not run then.
TEST_P(DeadlineTest, ExpiredWorkIsNotStarted) {
  TestJob job(2, [](Options& options) { options.handler_threads = 1; });
  Peer peer = callee(job);
  Future<int> busy = peer.async<pass_gate>(1);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  Future<int> late = peer.with_timeout(50ms).async<count_run>(2);
  expect_throw<Timeout>([&] { late.get(); });
  gate.open();
  EXPECT_EQ(busy.get(), 1);
  EXPECT_EQ(peer.call<count_run>(3), 3);  // runs after whatever was queued
  EXPECT_EQ(runs, 1);
  job.shutdown();
}

TEST_P(DeadlineTest, CancelledWorkIsNotStarted) {
  TestJob job(2, [](Options& options) { options.handler_threads = 1; });
  Peer peer = callee(job);
  Future<int> busy = peer.async<pass_gate>(1);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  Future<int> unwanted = peer.async<count_run>(2);
  EXPECT_TRUE(unwanted.cancel());
  expect_throw<Cancelled>([&] { unwanted.get(); });
  // Three at a time are there only when one has come that was sent after the cancellation.
  Future<int> wanted = peer.async<count_run>(3), wanted_too = peer.async<count_run>(4);
  ASSERT_TRUE(eventually([&] { return job[peer.rank()].stats().calls_served >= 3; }));
  gate.open();
  EXPECT_EQ(busy.get(), 1);
  EXPECT_EQ(wanted.get(), 3);
  EXPECT_EQ(wanted_too.get(), 4);
  EXPECT_EQ(runs, 2);
  job.shutdown();
}

TEST_P(DeadlineTest, ATimeoutTellsTheCallee) {
  TestJob job(2);
  gate.open();
  // On a busy machine the time may be up before the handler has begun; that is another story.
  while (gate.arrived() == 0) {
    expect_throw<Timeout>([&] { callee(job).with_timeout(100ms).call<wait_for_cancellation>(); });
  }
  EXPECT_TRUE(job.quiet());
  EXPECT_TRUE(saw_cancelled);
  job.shutdown();
}

TEST_P(DeadlineTest, CancellingTellsTheCallee) {
  TestJob job(2);
  Future<int> call = callee(job).async<wait_for_cancellation>();
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  gate.open();
  EXPECT_TRUE(call.cancel());
  EXPECT_FALSE(call.cancel());
  expect_throw<Cancelled>([&] { call.get(); });
  EXPECT_TRUE(job.quiet());
  EXPECT_TRUE(saw_cancelled);
  job.shutdown();
}

// To cancel what then() and when_all() made cancels the calls.
TEST_P(DeadlineTest, CancellingADerivedFutureTellsTheCallee) {
  TestJob job(2);
  Peer peer = callee(job);
  std::vector<Future<int>> both{peer.async<wait_for_cancellation>().then([](int value) { return value; }),
                                peer.async<count_run>(1)};
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  gate.open();
  when_all(both).cancel();
  EXPECT_TRUE(job.quiet());
  EXPECT_TRUE(saw_cancelled);
  job.shutdown();
}

// A -> B -> A -> ... with one handler thread on each side.
TEST(NestedCalls, AHundredDeepWithOneHandlerThread) {
  TestJob job(2, [](Options& options) { options.handler_threads = 1; });
  EXPECT_EQ(job[0].peer(1).call<bounce>(100), 100);
  EXPECT_EQ(job[0].self().call<call_myself>(100), 100);
  EXPECT_EQ(job[0].peer(1).call<bounce_in_coroutines>(100), 100);
  job.shutdown();
}

TEST(NestedCalls, ManyAtOnceWithOneHandlerThread) {
  TestJob job(3, [](Options& options) { options.handler_threads = 1; });
  std::vector<Future<int>> all;
  for (int i = 0; i < 30; ++i) {
    for (int rank = 0; rank < 3; ++rank) all.push_back(job[rank].peer((rank + 1) % 3).async<bounce>(6));
  }
  for (Future<int>& one : all) EXPECT_EQ(one.get(), 6);
  for (int rank = 0; rank < 3; ++rank) EXPECT_LT(job[rank].stats().threads, 400u);
  job.shutdown();
}

class PushBackTest : public DeadlineTest {};

constexpr size_t kCallBytes = 3000;
constexpr size_t kWindowBytes = 10'000;  // three such calls
void small_window(Options& options) {
  options.handler_threads = 1;
  options.inflight_bytes_max = kWindowBytes;
}

// A callee that does not keep up: the caller's thread waits instead of filling memory, and goes on later.
TEST_P(PushBackTest, ACallerWaitsForRoom) {
  TestJob job(2, small_window);
  Peer peer = callee(job);
  const Bytes bytes(kCallBytes, 7);
  std::atomic<int> issued{0};
  std::vector<Future<int64_t>> results;
  std::thread caller([&] {
    for (int i = 0; i < 12; ++i) {
      results.push_back(peer.async<take_bytes>(bytes));
      ++issued;
    }
  });
  // One has started, three fill the window; the fifth waits.
  EXPECT_TRUE(eventually([&] { return issued >= 4; }));
  EXPECT_TRUE(gate.wait_for_arrivals(1));
  EXPECT_TRUE(eventually([&] { return job[peer.rank()].stats().calls_served == 4; }));
  std::this_thread::sleep_for(20ms);  // only gives a mistake time to show
  EXPECT_EQ(issued, 4);
  EXPECT_EQ(job[0].stats().calls_made, 4u);
  gate.open();
  caller.join();
  for (Future<int64_t>& result : results) EXPECT_EQ(result.get(), static_cast<int64_t>(kCallBytes));
  job.shutdown();
}

TEST_P(PushBackTest, WaitingForRoomEndsWithTheTimeout) {
  TestJob job(2, small_window);
  Peer peer = callee(job);
  const Bytes bytes(kCallBytes, 7);
  std::vector<Future<int64_t>> sent;
  sent.push_back(peer.async<take_bytes>(bytes));
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  for (int i = 0; i < 3; ++i) sent.push_back(peer.async<take_bytes>(bytes));
  Future<int64_t> refused = peer.with_timeout(50ms).async<take_bytes>(bytes);
  const Timeout error = expect_throw<Timeout>([&] { refused.get(); });
  EXPECT_CONTAINS(error.what(), "was not sent");
  EXPECT_CONTAINS(error.what(), std::to_string(kWindowBytes));
  gate.open();
  for (Future<int64_t>& one : sent) EXPECT_EQ(one.get(), static_cast<int64_t>(kCallBytes));
  EXPECT_EQ(peer.call<take_bytes>(bytes), static_cast<int64_t>(kCallBytes));
  job.shutdown();
}

// However small the window, one call may always go.
TEST_P(PushBackTest, ACallLargerThanTheWindow) {
  TestJob job(2, small_window);
  gate.open();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(callee(job).call<take_bytes>(Bytes(50'000, 7)), 50'000);
  job.shutdown();
}

// Cancelled and expired calls give their room back.
TEST_P(PushBackTest, CallsThatNeverStartGiveTheirRoomBack) {
  TestJob job(2, small_window);
  Peer peer = callee(job);
  const Bytes bytes(kCallBytes, 7);
  Future<int64_t> busy = peer.async<take_bytes>(bytes);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  for (int i = 0; i < 3; ++i) peer.async<take_bytes>(bytes).cancel();
  gate.open();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(peer.call<take_bytes>(bytes), static_cast<int64_t>(kCallBytes));
  EXPECT_EQ(busy.get(), static_cast<int64_t>(kCallBytes));
  job.shutdown();
}

const auto kName = [](const auto& info) { return info.param == Callee::self ? "Self" : "Other"; };
INSTANTIATE_TEST_SUITE_P(To, DeadlineTest, testing::Values(Callee::self, Callee::other), kName);
INSTANTIATE_TEST_SUITE_P(To, PushBackTest, testing::Values(Callee::self, Callee::other), kName);

}  // namespace
}  // namespace holdfast::deadline_test
