// Functions that were always quick run on the thread that reads the network. These are the days on which they are
// not quick: nothing else may stall.
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::quick_test {
namespace {

using namespace test;

Gate gate;
std::atomic<bool> blocks{false};

int64_t twice(int64_t x) { return 2 * x; }

// Quick as long as `blocks` is false. Then it waits for another call, on something the library knows nothing of.
int64_t maybe_wait(int64_t x) {
  if (blocks) gate.pass();
  return x + 1;
}
void open_gate() { gate.open(); }

// Quick as long as `blocks` is false. Then it waits in a call to whoever called it.
int64_t maybe_call(int64_t x) {
  if (blocks) return current_worker().peer(0).call<twice>(x);
  return 2 * x;
}
int64_t maybe_call_and_wait(int64_t x) {
  if (blocks) return current_worker().peer(0).call<maybe_wait>(x);
  return x + 1;
}

// Quick as long as `blocks` is false. Then it keeps its thread busy until another call has ended.
std::atomic<int> others_done{0};
int64_t maybe_spin(int64_t x) {
  if (blocks) {
    const Time until = after(steady_now(), kPatience);
    while (others_done == 0 && steady_now() < until) {
    }
  }
  return x + 1;
}
void note_other() { ++others_done; }

// A handler may hold a lock while it calls itself: what it calls must not run inside the call.
thread_local bool inside_call = false;
int64_t add_outside(int64_t x) { return inside_call ? -1 : x + 1; }
Future<int64_t> call_myself(int64_t x) {
  inside_call = true;
  Future<int64_t> result = current_worker().self().async<add_outside>(x);
  inside_call = false;
  return result;
}

class QuickTest : public testing::Test {
 protected:
  // Enough handler threads for those that block where the library cannot see it, should they not be quick enough to
  // be run by the thread in question.
  QuickTest() : job(2, [](Options& options) { options.handler_threads = 4; }), peer(job[0].peer(1)) {
    gate.reset();
    blocks = false;
    others_done = 0;
  }

  template <auto F>
  void learn() {
    for (int64_t i = 0; i < 100; ++i) peer.call<F>(i);
  }

  TestJob job;
  Peer peer;
};

TEST_F(QuickTest, ThenItWaitsForAnotherCallOverTheSameConnection) {
  learn<maybe_wait>();
  for (int i = 0; i < 10; ++i) peer.call<open_gate>();  // quick as well
  gate.reset();
  blocks = true;
  std::vector<Future<int64_t>> waiting;
  for (int64_t i = 0; i < 2; ++i) waiting.push_back(peer.async<maybe_wait>(i));
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  peer.call<open_gate>();
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(waiting[static_cast<size_t>(i)].get(), i + 1);
  job.shutdown();
}

TEST_F(QuickTest, ThenItMakesACallItself) {
  learn<maybe_call>();
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(peer.call<twice>(i), 2 * i);
  blocks = true;
  std::vector<Future<int64_t>> all;
  for (int64_t i = 0; i < 50; ++i) all.push_back(peer.async<maybe_call>(i));
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].get(), 2 * i);
  job.shutdown();
}

TEST_F(QuickTest, ThenItKeepsItsThreadBusy) {
  learn<maybe_spin>();
  for (int i = 0; i < 10; ++i) peer.call<note_other>();
  others_done = 0;
  blocks = true;
  Future<int64_t> busy = peer.async<maybe_spin>(1);
  peer.call<note_other>();
  EXPECT_EQ(busy.get(), 2);
  EXPECT_EQ(others_done, 1);
  job.shutdown();
}

// Replies that were made just before, on the same thread, are not kept back by the one that blocks.
TEST_F(QuickTest, RepliesBeforeItAreNotHeldBack) {
  learn<twice>();
  learn<maybe_wait>();
  blocks = true;
  for (int round = 0; round < 20; ++round) {
    gate.reset();
    std::vector<Future<int64_t>> before;
    for (int64_t i = 0; i < 5; ++i) before.push_back(peer.async<twice>(i));
    Future<int64_t> waiting = peer.async<maybe_wait>(1);
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(before[static_cast<size_t>(i)].get(), 2 * i);
    EXPECT_FALSE(waiting.ready());
    gate.open();
    EXPECT_EQ(waiting.get(), 2);
    blocks = false;
    learn<maybe_wait>();
    blocks = true;
  }
  job.shutdown();
}

// Calls that came in the same read are not stuck behind the one that blocks, though it waits for them.
TEST_F(QuickTest, WhatCameTogetherWithItIsNotStuck) {
  for (int round = 0; round < 20; ++round) {
    blocks = false;
    learn<maybe_wait>();
    for (int i = 0; i < 10; ++i) peer.call<open_gate>();
    gate.reset();
    blocks = true;
    std::vector<Future<int64_t>> all;
    for (int64_t i = 0; i < 3; ++i) all.push_back(peer.async<maybe_wait>(i));
    Future<void> opened = peer.async<open_gate>();
    opened.get();
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].get(), i + 1);
  }
  job.shutdown();
}

// Its bytes are not in flight any more when it has begun: there is room for the call that it waits for.
int64_t maybe_wait_with_bytes(const Bytes& bytes) {
  if (blocks) gate.pass();
  return static_cast<int64_t>(bytes.size());
}
void open_gate_with_bytes(const Bytes&) { gate.open(); }
TEST(QuickWindow, AHandlerThatBlocksHoldsNoRoom) {
  gate.reset();
  blocks = false;
  TestJob job(2, [](Options& options) {
    options.handler_threads = 4;
    options.inflight_bytes_max = 10'000;
  });
  Peer peer = job[0].peer(1);
  const Bytes bytes(8'000, 1);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(peer.call<maybe_wait_with_bytes>(bytes), 8'000);
  blocks = true;
  Future<int64_t> waiting = peer.async<maybe_wait_with_bytes>(bytes);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  peer.call<open_gate_with_bytes>(bytes);
  EXPECT_EQ(waiting.get(), 8'000);
  job.shutdown();
}

// One quick function waits in a call of its own; meanwhile another one, also formerly quick, blocks for good.
TEST_F(QuickTest, TwoOfThemBlockAtOnce) {
  learn<maybe_call_and_wait>();
  learn<maybe_wait>();
  for (int i = 0; i < 10; ++i) peer.call<open_gate>();
  gate.reset();
  blocks = true;
  Future<int64_t> calling = peer.async<maybe_call_and_wait>(1);  // waits at the gate of rank 0
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  const Time until = after(steady_now(), 20ms);  // long enough for the one who watches over them to look
  while (steady_now() < until) EXPECT_EQ(peer.call<twice>(2), 4);
  Future<int64_t> waiting = peer.async<maybe_wait>(2);  // waits at the gate of rank 1
  ASSERT_TRUE(gate.wait_for_arrivals(2));
  EXPECT_EQ(peer.call<twice>(4), 8);
  peer.call<open_gate>();
  EXPECT_EQ(calling.get(), 2);
  EXPECT_EQ(waiting.get(), 3);
  job.shutdown();
}

TEST_F(QuickTest, ACallToOneselfDoesNotRunInsideTheCall) {
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(peer.call<add_outside>(i), i + 1);
    EXPECT_EQ(peer.call<call_myself>(i), i + 1);
  }
  job.shutdown();
}

// Again and again quick, then not: threads are used again, and nothing is left.
TEST_F(QuickTest, ThreadsAreUsedAgain) {
  for (int round = 0; round < 30; ++round) {
    blocks = false;
    for (int64_t i = 0; i < 20; ++i) peer.call<maybe_call>(i);
    blocks = true;
    std::vector<Future<int64_t>> all;
    for (int64_t i = 0; i < 5; ++i) all.push_back(peer.async<maybe_call>(i));
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(all[static_cast<size_t>(i)].get(), 2 * i);
  }
  EXPECT_TRUE(job.quiet());
  EXPECT_LT(job[1].stats().threads, 20u);
  job.shutdown();
}

}  // namespace
}  // namespace holdfast::quick_test
