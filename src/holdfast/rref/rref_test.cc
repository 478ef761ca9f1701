// RRef<T> on real workers: what a user sees. The protocol's own promises are checked in the simulator.
#include <holdfast/rref/rref.h>

#include <map>
#include <optional>

#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast {
namespace {

using test::eventually;
using test::expect_throw;
using Job = test::TestJob;

// Counts its live objects: no object may be left.
struct Counter {
  explicit Counter(int64_t start) : n(start) { ++alive; }
  Counter(const Counter&) = delete;
  ~Counter() { --alive; }
  int64_t add(int64_t k) { return n += k; }
  int64_t get() const { return n; }
  int64_t n;
  static inline std::atomic<int> alive{0};
};

struct Named : Counter {
  Named(int64_t start, std::string name) : Counter(start), name(std::move(name)) {}
  std::string name;
  std::string greet(const std::string& other) const { return name + " greets " + other; }
};

int64_t add_twice(Counter& counter, int64_t k) { return counter.add(k), counter.add(k); }
std::string repeat(const std::string& text, int64_t times) {
  std::string result;
  for (int64_t i = 0; i < times; ++i) result += text;
  return result;
}
std::string unlucky(int64_t) { throw std::runtime_error("bad luck"); }
void nothing(int64_t n) {
  if (n < 0) throw std::invalid_argument("negative");
}

// References as arguments and results.
int64_t add_through(RRef<Counter> counter, int64_t k) { return counter.call<&Counter::add>(k); }
RRef<std::string> pass_back(RRef<std::string> text) { return text; }
RRef<Counter> own_counter(int64_t start) { return current_worker().self().make<Counter>(start); }

struct Pair {
  RRef<Counter> first;
  std::map<std::string, std::vector<RRef<Counter>>> rest;
  HOLDFAST_FIELDS(Pair, first, rest)
};
int64_t sum(const Pair& pair) {
  int64_t total = pair.first.call<&Counter::get>();
  for (const auto& [name, list] : pair.rest) {
    for (const auto& counter : list) total += counter.call<&Counter::get>();
  }
  return total;
}

std::string in_words(const Counter& counter) { return std::to_string(counter.n); }

// An object that holds references to others.
struct Shelf {
  std::vector<RRef<Counter>> counters;
  void put(RRef<Counter> counter) { counters.push_back(std::move(counter)); }
  RRef<Counter> at(uint64_t index) const { return counters.at(index); }
};

// Three handlers for one handler thread: the first ends what `result` waits for, the second cannot go on before its
// result has reached the caller.
std::optional<Promise<int64_t>> promised;
test::Gate first_gate, second_gate;
Task<int64_t> give_later() {
  promised.emplace();
  co_return co_await promised->future();
}
void give_now() {
  test::take_a_while();
  first_gate.pass();
  promised->set_value(7);
}
bool wait_for_the_result() {
  test::take_a_while();
  return second_gate.pass();
}

class RRefTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(eventually([] { return Counter::alive == 0; })) << Counter::alive << " left";
  }
  // All tables are empty.
  static bool empty(Worker& worker) {
    const DebugInfo info = worker.debug_info();
    return info.owned.empty() && info.used.empty() && info.forks == 0 && info.pending_children == 0 &&
           info.pending_users == 0;
  }
  static void expect_empty(Job& job) {
    for (int rank = 0; rank < job.size(); ++rank) {
      if (!job.has(rank)) continue;
      EXPECT_TRUE(eventually([&] { return empty(job[rank]); }))
          << job[rank].name() << ": " << job[rank].debug_info().text();
    }
  }
};

TEST_F(RRefTest, RemoteReturnsAReferenceToTheResult) {
  Job job(2);
  {
    RRef<std::string> text = job[0].peer(1).remote<repeat>("ab", 3);
    EXPECT_FALSE(text.is_owner());
    EXPECT_EQ(text.owner().name, "worker1");
    EXPECT_EQ(text.to_here(), "ababab");
    EXPECT_EQ(text.to_here(), "ababab");
    EXPECT_TRUE(eventually([&] { return text.confirmed_by_owner(); }));
  }
  expect_empty(job);
}

// Otherwise no worker of a pipeline gets anything before the one in front of it is done with all it has.
TEST_F(RRefTest, AResultThatIsWaitedForLeavesBeforeOtherCallsBegin) {
  Job job(2, [](Options& options) { options.handler_threads = 1; });
  first_gate.reset();
  second_gate.reset();
  const Peer there = job[0].peer(1);
  RRef<int64_t> result = there.remote<give_later>();
  const Future<int64_t> fetched = result.fetch();
  ASSERT_TRUE(eventually([&] {
    const DebugInfo info = job[1].debug_info();
    return info.owned.size() == 1 && info.owned[0].calls_waiting == 1;
  }));
  const Future<void> first = there.async<give_now>();
  const Future<bool> second = there.async<wait_for_the_result>();
  ASSERT_TRUE(first_gate.wait_for_arrivals(1));
  ASSERT_TRUE(eventually([&] { return job[1].stats().calls_served == 4; }));  // the fetch and the remote call, too
  first_gate.open();
  EXPECT_TRUE(fetched.wait_for(test::kPatience / 2)) << "it waits for the second call, and that for it";
  second_gate.open();
  EXPECT_EQ(fetched.get(), 7);
  EXPECT_TRUE(second.get());
  first.get();
  result = {};
  expect_empty(job);
}

// An object that holds another one is destroyed on a handler thread: shutdown waits for that, and tells of nothing
// left.
struct SlowHolder {
  explicit SlowHolder(int64_t start) : held(current_worker().own(std::make_shared<int64_t>(start))) {}
  SlowHolder(const SlowHolder&) = delete;
  ~SlowHolder() { first_gate.pass(); }
  RRef<std::shared_ptr<int64_t>> held;
};

TEST_F(RRefTest, ShutdownWaitsForObjectsThatAreBeingDestroyed) {
  std::atomic<int> reports{0};
  Job job(2, [&](Options& options) { options.on_held_at_shutdown = [&](const std::string&) { ++reports; }; });
  first_gate.reset();
  RRef<SlowHolder> holder = job[0].peer(1).make<SlowHolder>(1);
  EXPECT_TRUE(eventually([&] { return holder.confirmed_by_owner(); }));
  holder = {};
  ASSERT_TRUE(first_gate.wait_for_arrivals(1));
  std::atomic<int> left{0};
  std::vector<std::thread> leaving;
  for (int rank : {0, 1}) {
    leaving.emplace_back([&, rank] {
      job[rank].shutdown(test::kPatience);
      ++left;
    });
  }
  // Both have said that they leave, and wait for the one that is not quiet.
  EXPECT_TRUE(eventually([&] { return job[1].debug_info().owned.size() == 1; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(left, 0);
  first_gate.open();
  for (std::thread& thread : leaving) thread.join();
  EXPECT_EQ(reports, 0);
}

TEST_F(RRefTest, AnyClassCanLiveRemotely) {
  Job job(2);
  {
    RRef<Counter> counter = job[0].peer(1).make<Counter>(40);
    EXPECT_EQ(counter.call<&Counter::add>(2), 42);
    EXPECT_EQ(counter.async<&Counter::add>(1).get(), 43);
    EXPECT_EQ(counter.call<add_twice>(5), 53);
    EXPECT_EQ(counter.fetch_with<in_words>().get(), "53") << "what has no codec, made into something that has";
    RRef<int64_t> result = counter.remote<&Counter::add>(7);
    EXPECT_EQ(result.to_here(), 60);
    EXPECT_EQ(Counter::alive, 1);
  }
  expect_empty(job);
}

TEST_F(RRefTest, FunctionsOfABaseClassRunOnIt) {
  Job job(2);
  RRef<Named> named = job[0].peer(1).make<Named>(1, "ann");
  EXPECT_EQ(named.call<&Named::greet>("bob"), "ann greets bob");
  EXPECT_EQ(named.call<&Counter::add>(2), 3);
  EXPECT_EQ(named.call<add_twice>(2), 7);
}

TEST_F(RRefTest, WhatOneOwnsCanBeShared) {
  Job job(2);
  {
    RRef<std::string> text = job[0].own(std::string("mine"));
    EXPECT_TRUE(text.is_owner());
    EXPECT_TRUE(text.confirmed_by_owner());
    EXPECT_EQ(text.local_value(), "mine");
    EXPECT_EQ(text.to_here(), "mine");
    EXPECT_EQ(job[0].peer(1).call<pass_back>(text), text);
  }
  expect_empty(job);
}

TEST_F(RRefTest, AUserSharesWithAThirdWorkerAtOnce) {
  Job job(3);
  {
    RRef<Counter> counter = job[0].peer(1).make<Counter>(1);
    EXPECT_EQ(job[0].peer(2).call<add_through>(counter, 2), 3);
    std::vector<Future<int64_t>> calls;
    for (int i = 0; i < 100; ++i)
      calls.push_back(job[0].peer(2).async<add_through>(job[0].peer(1).make<Counter>(i), 1));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(calls[i].get(), i + 1);
  }
  expect_empty(job);
}

TEST_F(RRefTest, InsideStructsAndContainers) {
  Job job(3);
  {
    Pair pair;
    pair.first = job[0].peer(1).make<Counter>(1);
    pair.rest["a"] = {job[0].peer(2).make<Counter>(2), job[0].self().make<Counter>(3)};
    pair.rest["b"] = {pair.first};
    EXPECT_EQ(job[0].peer(2).call<sum>(pair), 7);
    EXPECT_EQ(job[0].self().call<sum>(pair), 7);
  }
  expect_empty(job);
}

TEST_F(RRefTest, InsideObjectsThatAreThemselvesRemote) {
  Job job(3);
  {
    RRef<Shelf> shelf = job[0].peer(1).make<Shelf>();
    shelf.call<&Shelf::put>(job[0].peer(2).make<Counter>(5));
    shelf.call<&Shelf::put>(job[0].peer(1).make<Counter>(6));
    shelf.call<&Shelf::put>(job[0].self().make<Counter>(7));
    EXPECT_EQ(shelf.call<&Shelf::at>(0).call<&Counter::add>(1), 6);
    EXPECT_EQ(shelf.call<&Shelf::at>(1).call<&Counter::add>(1), 7);
    RRef<Counter> mine = shelf.call<&Shelf::at>(2);
    EXPECT_TRUE(mine.is_owner());
    EXPECT_EQ(mine.local_value().n, 7);
    EXPECT_EQ(Counter::alive, 3);
  }
  expect_empty(job);
}

TEST_F(RRefTest, AResultMayReferToAnObjectOfTheCallee) {
  Job job(2);
  {
    RRef<Counter> counter = job[0].peer(1).call<own_counter>(8);
    EXPECT_EQ(counter.owner().name, "worker1");
    EXPECT_EQ(counter.call<&Counter::add>(1), 9);
    // A reference to a reference.
    RRef<RRef<Counter>> nested = job[0].peer(1).remote<own_counter>(3);
    EXPECT_EQ(nested.to_here().call<&Counter::add>(1), 4);
  }
  expect_empty(job);
}

TEST_F(RRefTest, AFailedCreationIsAnErrorAtEveryUse) {
  Job job(3);
  {
    RRef<std::string> text = job[0].peer(1).remote<unlucky>(1);
    for (int i = 0; i < 2; ++i) {
      const auto error = expect_throw<RemoteError>([&] { text.to_here(); });
      EXPECT_CONTAINS(error.what(), "unlucky threw std::runtime_error: bad luck");
      EXPECT_EQ(error.worker(), "worker1");
    }
    const auto error = expect_throw<RemoteError>([&] { job[0].peer(2).call<pass_back>(text).to_here(); });
    EXPECT_CONTAINS(error.what(), "unlucky threw std::runtime_error: bad luck");
  }
  expect_empty(job);
}

TEST_F(RRefTest, AFunctionThatReturnsNothing) {
  Job job(2);
  job[0].peer(1).remote<nothing>(1).to_here();
  EXPECT_CONTAINS(expect_throw<RemoteError>([&] { job[0].peer(1).remote<nothing>(-1).to_here(); }).what(), "negative");
  expect_empty(job);
}

test::Gate gate;
std::string slow(int64_t) {
  gate.pass();
  return "slow";
}

TEST_F(RRefTest, CallsOnAnObjectWaitUntilItIsThere) {
  gate.reset();
  Job job(3);
  {
    RRef<std::string> text = job[0].peer(1).remote<slow>(1);
    Future<std::string> here = text.fetch();
    Future<RRef<std::string>> shared = job[0].peer(2).async<pass_back>(text);
    shared.wait();  // a share does not wait for the object
    EXPECT_FALSE(here.ready());
    gate.open();
    EXPECT_EQ(here.get(), "slow");
    EXPECT_EQ(shared.get().to_here(), "slow");
  }
  expect_empty(job);
}

TEST_F(RRefTest, ACreationThatTakesTooLongFails) {
  gate.reset();
  Job job(2);
  {
    RRef<std::string> text = job[0].peer(1).with_timeout(20ms).remote<slow>(1);
    EXPECT_CONTAINS(expect_throw<Timeout>([&] { text.with_timeout(kForever).to_here(); }).what(), "slow");
    gate.open();
    EXPECT_CONTAINS(expect_throw<Timeout>([&] { text.with_timeout(kForever).to_here(); }).what(), "slow");
  }
  expect_empty(job);
}

TEST_F(RRefTest, LocalValueElsewhereIsAnError) {
  Job job(2);
  RRef<Counter> counter = job[0].peer(1).make<Counter>(1);
  const auto error = expect_throw<InvalidArgument>([&] { counter.local_value(); });
  EXPECT_CONTAINS(error.what(), "worker0");
  EXPECT_CONTAINS(error.what(), "worker1");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { RRef<Counter>().owner(); }).what(), "nothing");
}

TEST_F(RRefTest, ALostOwnerIsAnErrorAtFirstUse) {
  Job job(3);
  RRef<std::string> text = job[0].peer(1).remote<repeat>("x", 2);
  EXPECT_EQ(text.to_here(), "xx");
  job.destroy(1);
  EXPECT_TRUE(eventually([&] {
    const DebugInfo info = job[0].debug_info();
    return info.used.size() == 1 && info.used[0].dead;
  }));
  EXPECT_CONTAINS(expect_throw<WorkerLost>([&] { text.to_here(); }).what(), "worker1");
  // Shared all the same, it fails there too.
  EXPECT_CONTAINS(expect_throw<Error>([&] { job[0].peer(2).call<pass_back>(text).to_here(); }).what(), "worker1");
  text = {};
  expect_empty(job);
}

TEST_F(RRefTest, ALostUsersReferencesAreReclaimed) {
  Job job(3);
  RRef<Counter> counter = job[1].peer(0).make<Counter>(3);
  EXPECT_EQ(counter.call<&Counter::get>(), 3);
  EXPECT_EQ(Counter::alive, 1);
  job.destroy(1);
  counter = {};
  EXPECT_TRUE(eventually([&] { return Counter::alive == 0; }));
  expect_empty(job);
}

TEST_F(RRefTest, ShutdownSaysWhatIsStillHeld) {
  std::mutex mutex;
  std::string text;
  RRef<Counter> counter;
  RRef<std::string> mine;
  {
    Job job(3, [&](Options& options) {
      options.on_held_at_shutdown = [&](const std::string& more) {
        std::lock_guard lock(mutex);
        text += more;
      };
    });
    counter = job[0].peer(1).make<Counter>(int64_t{1});
    mine = job[2].own(std::string("mine"));
    RRef<Counter> dropped = job[0].peer(1).make<Counter>(2);
    EXPECT_EQ(dropped.call<&Counter::get>(), 2);
    dropped = {};
    job.shutdown();
    EXPECT_EQ(Counter::alive, 0) << "every value is destroyed";
  }
  EXPECT_CONTAINS(text, "worker1 shuts down while");
  EXPECT_CONTAINS(text, text_of(counter.id()));
  EXPECT_CONTAINS(text, "Counter, ready, made by make<");
  EXPECT_CONTAINS(text, "called by worker0, held by worker0\n");
  EXPECT_CONTAINS(text, "worker2 shuts down while");
  EXPECT_CONTAINS(text, "rref_test.cc:");
  EXPECT_FALSE(test::contains(text, "worker0 shuts down"));
  // The handles that are left are empty shells.
  EXPECT_CONTAINS(expect_throw<Shutdown>([&] { counter.call<&Counter::get>(); }).what(), "shut down");
  EXPECT_CONTAINS(expect_throw<Shutdown>([&] { mine.local_value(); }).what(), "shut down");
}

TEST_F(RRefTest, DebugInfoCountsEverything) {
  gate.reset();
  Job job(2);
  RRef<std::string> text = job[0].peer(1).remote<slow>(1);
  RRef<std::string> copy = text;
  Future<std::string> here = text.fetch();
  EXPECT_TRUE(eventually([&] {
    const DebugInfo owner = job[1].debug_info();
    return owner.owned.size() == 1 && owner.owned[0].calls_waiting == 1;
  }));
  const DebugInfo owner = job[1].debug_info();
  EXPECT_EQ(owner.owned[0].state, "pending");
  EXPECT_EQ(owner.owned[0].holders, std::vector<std::string>{"worker0"});
  EXPECT_EQ(owner.forks, 1u);
  EXPECT_EQ(owner.calls_served, 2u);
  EXPECT_CONTAINS(owner.text(), "slow, called by worker0");
  const DebugInfo user = job[0].debug_info();
  ASSERT_EQ(user.used.size(), 1u);
  EXPECT_EQ(user.used[0].owner, "worker1");
  EXPECT_EQ(user.used[0].handles, 1u) << "copies share one";
  EXPECT_EQ(user.calls_made, 1u);
  gate.open();
  EXPECT_EQ(here.get(), "slow");
}

}  // namespace
}  // namespace holdfast
