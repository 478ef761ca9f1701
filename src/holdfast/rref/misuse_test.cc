// References used in ways that are unusual or wrong: on real workers. Each must be right or a clear error, and end.
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rref/rref.h>

namespace holdfast {
namespace {

using test::eventually;
using test::expect_throw;
using Job = test::TestJob;
using namespace std::chrono_literals;

std::string times(const std::string& text, int64_t count) {
  std::string result;
  for (int64_t i = 0; i < count; ++i) result += text;
  return result;
}
std::string own_value(RRef<std::string> text) { return text.local_value(); }

struct Tool {
  int64_t value() const { return 1; }
  int64_t value(int64_t plus) { return 1 + plus; }
  int64_t steady() const noexcept { return 2; }
  int64_t on_lvalue() & { return 3; }
  int64_t on_const_lvalue() const& { return 4; }
};

bool empty(Worker& worker) {
  const DebugInfo info = worker.debug_info();
  return info.owned.empty() && info.used.empty() && info.forks == 0 && info.pending_children == 0 &&
         info.pending_users == 0;
}

// ---- the end while something waits

std::vector<Promise<std::string>> never;
std::mutex never_mutex;
Future<std::string> never_there(int64_t) {
  std::lock_guard lock(never_mutex);
  never.emplace_back();
  return never.back().future();
}

TEST(RRefMisuse, AWorkerEndsWhileAHandlerWaitsForAnObject) {
  {
    Job job(2);
    RRef<std::string> text = job[0].peer(1).with_timeout(kForever).remote<never_there>(1);
    Future<std::string> value = job[0].peer(1).async<own_value>(text);
    Future<std::string> here = text.fetch();
    EXPECT_TRUE(eventually([&] {
      const DebugInfo info = job[1].debug_info();
      return info.owned.size() == 1 && info.owned[0].calls_waiting == 2;
    }));
    job.destroy(1);
    EXPECT_THROW(value.get(), Error);
    EXPECT_THROW(here.get(), Error);
  }
  never.clear();
}

TEST(RRefMisuse, AThreadThatWaitsForAnObjectHearsOfTheEnd) {
  Job job(1);
  RRef<std::string> text = job[0].self().with_timeout(kForever).remote<never_there>(1);
  std::string what;
  std::thread waiter([&] { what = expect_throw<Shutdown>([&] { text.local_value(); }).what(); });
  EXPECT_TRUE(eventually([&] {
    const DebugInfo info = job[0].debug_info();
    return info.owned.size() == 1 && info.owned[0].calls_waiting == 1;
  }));
  job.destroy(0);
  waiter.join();
  EXPECT_CONTAINS(what, "shut down");
  never.clear();
}

// An object that holds references to everywhere, when everything ends.
struct Rack {
  std::vector<RRef<std::string>> list;
  void put(RRef<std::string> text) { list.push_back(std::move(text)); }
};

TEST(RRefMisuse, ReferencesInsideValuesThatDieWithTheirWorker) {
  for (const bool gracefully : {true, false}) {
    RRef<Rack> outlives;
    Job job(3, [](Options& options) { options.on_held_at_shutdown = [](const std::string&) {}; });
    outlives = job[0].peer(1).make<Rack>();
    for (int rank = 0; rank < 3; ++rank) {
      outlives.call<&Rack::put>(job[0].peer(rank).remote<times>("x", 1));
    }
    if (gracefully) job.shutdown();
  }
}

// ---- one handler thread

std::string through_self(RRef<std::string> text) { return text.to_here(); }
std::string made_here(const std::string& text) {
  Peer self = current_worker().self();
  return self.remote<times>(text, 2).local_value() + self.remote<times>(text, 3).to_here();
}

TEST(RRefMisuse, AHandlerThatWaitsForItsOwnWorkerNeedsNoSecondThread) {
  Job job(2, [](Options& options) { options.handler_threads = 1; });
  RRef<std::string> text = job[0].peer(1).remote<times>("a", 2);
  // Often enough that the functions count as quick and run on the network's thread.
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(job[0].peer(1).call<through_self>(text), "aa");
    EXPECT_EQ(job[0].peer(1).call<own_value>(text), "aa");
    EXPECT_EQ(job[0].peer(1).call<made_here>("b"), "bbbbb");
    EXPECT_EQ(job[0].self().call<made_here>("b"), "bbbbb");
  }
}

// ---- functions of all shapes

TEST(RRefMisuse, MemberFunctionsOfAllKinds) {
  Job job(2);
  RRef<Tool> tool = job[0].peer(1).make<Tool>();
  EXPECT_EQ((tool.call<static_cast<int64_t (Tool::*)() const>(&Tool::value)>()), 1);
  EXPECT_EQ((tool.call<static_cast<int64_t (Tool::*)(int64_t)>(&Tool::value)>(5)), 6);
  EXPECT_EQ(tool.call<&Tool::steady>(), 2);
  EXPECT_EQ(tool.call<&Tool::on_lvalue>(), 3);
  EXPECT_EQ(tool.call<&Tool::on_const_lvalue>(), 4);
  constexpr auto lambda = [](const Tool& object, int64_t plus) { return object.value() + plus; };
  EXPECT_EQ(tool.call<lambda>(2), 3);
  EXPECT_EQ(tool.remote<lambda>(3).to_here(), 4);
}

TEST(RRefMisuse, AskingByNameForAReferenceIsAnError) {
  Job job(2);
  (void)job[0].peer(1).remote<times>("a", 1).to_here();
  const std::string name = RegisteredKept<times>::entry.name;
  const auto error =
      expect_throw<InvalidArgument>([&] { job[0].peer(1).call_named<RRef<std::string>>(name, "a", int64_t{3}); });
  EXPECT_CONTAINS(error.what(), "remote");
  EXPECT_EQ(job[0].peer(1).call<times>("a", 2), "aa") << "the other worker lives";
}

// ---- workers that are not the right ones

TEST(RRefMisuse, RemoteToALostWorkerIsAnErrorAtUse) {
  Job job(3);
  Peer peer = job[0].peer(1);
  RRef<Tool> before = peer.make<Tool>();
  EXPECT_EQ(before.call<&Tool::steady>(), 2);
  job.destroy(1);
  EXPECT_TRUE(eventually([&] { return job[0].debug_info().used.at(0).dead; }));
  RRef<Tool> after = peer.make<Tool>();
  EXPECT_FALSE(after.confirmed_by_owner());
  expect_throw<WorkerLost>([&] { after.call<&Tool::steady>(); });
  for (RRef<Tool>* tool : {&before, &after}) {
    RRef<int64_t> result = tool->remote<&Tool::steady>();  // remote() never throws
    EXPECT_CONTAINS(expect_throw<WorkerLost>([&] { result.to_here(); }).what(), "worker1");
  }
  before = {};
  after = {};
  EXPECT_TRUE(eventually([&] { return empty(job[0]); })) << job[0].debug_info().text();
}

RRef<std::string> of_another;
std::string use_of_another() { return of_another.to_here(); }
RRef<std::string> return_of_another() { return of_another; }

TEST(RRefMisuse, AReferenceOfAnotherWorkerInThisProcess) {
  Job job(2);
  of_another = job[0].own(std::string("mine"));
  EXPECT_EQ(job[0].peer(1).call<use_of_another>(), "mine") << "it works through its own worker";
  EXPECT_CONTAINS(expect_throw<RemoteError>([&] { job[0].peer(1).call<return_of_another>(); }).what(), "worker0");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { job[1].peer(0).call<own_value>(of_another); }).what(), "worker0");
  of_another = {};
  EXPECT_TRUE(eventually([&] { return empty(job[0]) && empty(job[1]); }));
}

int64_t count_of(const std::vector<RRef<std::string>>& list) { return static_cast<int64_t>(list.size()); }
std::vector<RRef<std::string>> many(int64_t length) {
  RRef<std::string> one = current_worker().own(std::string("x"));
  return std::vector<RRef<std::string>>(static_cast<size_t>(length), one);
}

TEST(RRefMisuse, ArgumentsOfWhichOneCannotBeSent) {
  Job job(2);
  {
    std::vector<RRef<std::string>> list = {job[0].own(std::string("a")), job[0].peer(1).remote<times>("b", 1),
                                           job[1].own(std::string("not ours"))};
    expect_throw<InvalidArgument>([&] { job[0].peer(1).call<count_of>(list); });
    expect_throw<InvalidArgument>([&] { (void)job[0].peer(1).remote<count_of>(list); });
    list.pop_back();
    EXPECT_EQ(job[0].peer(1).call<count_of>(list), 2);
  }
  EXPECT_TRUE(eventually([&] { return empty(job[0]) && empty(job[1]); })) << job[0].debug_info().text();
}

// What goes beside the values counts too: else the other side refuses the message, again and again.
TEST(RRefMisuse, MoreReferencesThanFitIntoAMessage) {
  Job job(2, [](Options& options) { options.frame_bytes_max = 100000; });
  {
    const std::vector<RRef<std::string>> list(10000, job[0].own(std::string("x")));
    expect_throw<InvalidArgument>([&] { job[0].peer(1).call<count_of>(list); });
    expect_throw<InvalidArgument>([&] { job[0].peer(1).remote<count_of>(list).to_here(); });
    expect_throw<Overloaded>([&] { job[0].peer(1).call<many>(10000); });
    EXPECT_EQ(job[0].peer(1).call<count_of>(std::vector<RRef<std::string>>(100, list[0])), 100);
    EXPECT_EQ(job[0].peer(1).call<many>(100).size(), 100u);
  }
  EXPECT_TRUE(eventually([&] { return empty(job[0]) && empty(job[1]); })) << job[0].debug_info().text();
}

// The worker goes while a handler still uses an object: the object stays until the handler has ended.
struct Watched {
  Watched() = default;
  Watched(const Watched&) = delete;
  ~Watched() { destroyed = true; }
  bool alive() const { return !destroyed; }
  static inline std::atomic<bool> destroyed{false};
};
test::Gate in_use;
std::atomic<bool> was_alive{false};
void use_for_long(RRef<Watched> object) {
  Watched& watched = object.local_value();
  in_use.pass();
  was_alive = watched.alive();
}

TEST(RRefMisuse, AnObjectStaysUntilTheHandlersOfADestroyedWorkerHaveEnded) {
  in_use.reset();
  Watched::destroyed = false;
  Job job(2);
  RRef<Watched> object = job[0].peer(1).make<Watched>();
  Future<void> call = job[0].peer(1).async<use_for_long>(object);
  ASSERT_TRUE(in_use.wait_for_arrivals(1));
  std::thread destroyer([&] { job.destroy(1); });
  call.wait();  // fails: the worker is leaving
  in_use.open();
  destroyer.join();
  EXPECT_TRUE(was_alive);
  EXPECT_TRUE(Watched::destroyed);
}

}  // namespace
}  // namespace holdfast
