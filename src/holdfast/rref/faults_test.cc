// Options::faults and references, over real connections: a failed `remote` shows at first use, a failed fetch can be
// tried again, control messages pass in the end. docs/faults.md.
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rref/rref.h>

namespace holdfast::rref_faults_test {
namespace {

using namespace test;

struct Tracked {
  explicit Tracked(int64_t start) : n(start) { ++alive; }
  Tracked(const Tracked&) = delete;
  ~Tracked() { --alive; }
  int64_t add(int64_t k) { return n += k; }
  int64_t n;
  static inline std::atomic<int> alive{0};
};

std::atomic<int> doubled{0};
int64_t twice(int64_t n) {
  ++doubled;
  return 2 * n;
}
int64_t add_remotely(RRef<Tracked> tracked, int64_t k) { return tracked.call<&Tracked::add>(k); }

std::function<void(Options&)> rref_faults(const std::string& text) {
  return [text](Options& options) { options.faults = FaultOptions::parse(text); };
}

bool nothing_held(Worker& worker) {
  const DebugInfo info = worker.debug_info();
  return info.owned.empty() && info.used.empty() && info.forks == 0 && info.pending_children == 0 &&
         info.pending_users == 0;
}

TEST(RRefFaults, AFailedRemoteShowsAtFirstUse) {
  TestJob job(2, rref_faults("workers=worker0 messages_to_fail=REMOTE_CALL"));
  Peer peer = job[0].peer(1);
  doubled = 0;
  RRef<int64_t> failed = peer.remote<twice>(21);  // does not throw
  for (int use = 0; use < 2; ++use) {
    const FaultInjected error = expect_throw<FaultInjected>([&] { failed.to_here(); });
    EXPECT_CONTAINS(error.what(), "REMOTE_CALL to worker1");
  }
  EXPECT_EQ(doubled, 0);
  EXPECT_EQ(peer.remote<twice>(21).to_here(), 42);
  RRef<Tracked> none = peer.make<Tracked>(1);
  EXPECT_THROW(none.call<&Tracked::add>(1), FaultInjected);
  EXPECT_EQ(Tracked::alive, 0);
  RRef<Tracked> some = peer.make<Tracked>(1);
  EXPECT_EQ(some.call<&Tracked::add>(1), 2);
  some = none = {};
  failed = {};
  EXPECT_TRUE(eventually([&] { return nothing_held(job[0]) && nothing_held(job[1]); }));
  job.shutdown();
}

TEST(RRefFaults, AFailedFetchCanBeTriedAgain) {
  TestJob job(2, rref_faults("workers=worker0 messages_to_fail=RREF_FETCH num_fail_sends=2"));
  RRef<int64_t> a = job[0].peer(1).remote<twice>(1);
  RRef<int64_t> b = job[0].peer(1).remote<twice>(2);
  // Each object's fetch has a count of its own.
  for (int i = 0; i < 2; ++i) {
    EXPECT_CONTAINS(expect_throw<FaultInjected>([&] { a.to_here(); }).what(), "RREF_FETCH to worker1");
    EXPECT_THROW(b.to_here(), FaultInjected);
  }
  EXPECT_EQ(a.to_here(), 2);
  EXPECT_EQ(b.to_here(), 4);
  EXPECT_THROW(a.to_here(), FaultInjected);  // it counts anew
  a = b = {};
  EXPECT_TRUE(eventually([&] { return nothing_held(job[1]); }));
  job.shutdown();
}

// worker0 makes an object on worker1 and shares it with worker2, which uses it; then all is dropped. Every control
// message fails several times; in the end every table is empty.
TEST(RRefFaults, ControlMessagesAreSentAgainUntilTheyPass) {
  for (const char* kind : {"RREF_FORK_REQUEST", "RREF_ACCEPT", "RREF_CHILD_ACCEPT", "RREF_USER_DELETE",
                           "RREF_FORK_REQUEST,RREF_ACCEPT,RREF_CHILD_ACCEPT,RREF_USER_DELETE"}) {
    TestJob job(3, rref_faults(std::string("num_fail_sends=3 messages_to_fail=") + kind));
    {
      RRef<Tracked> tracked = job[0].peer(1).make<Tracked>(40);
      EXPECT_EQ(job[0].peer(2).call<add_remotely>(tracked, 2), 42) << kind;
      EXPECT_EQ(tracked.call<&Tracked::add>(1), 43) << kind;
      EXPECT_TRUE(eventually([&] { return tracked.confirmed_by_owner(); })) << kind;
    }
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(eventually([&] { return nothing_held(job[rank]); })) << kind << ": " << job[rank].debug_info().text();
    }
    EXPECT_TRUE(eventually([] { return Tracked::alive == 0; })) << kind;
    uint64_t faults = 0;
    for (int rank = 0; rank < 3; ++rank) faults += job[rank].stats().faults;
    EXPECT_GE(faults, 3u) << kind;
    EXPECT_EQ(faults % 3, 0u) << kind;  // each failed three times
    job.shutdown();
  }
}

TEST(RRefFaults, DelayedControlMessagesLoseNothing) {
  TestJob job(3, rref_faults("messages_to_delay=RREF_FORK_REQUEST:80ms,RREF_CHILD_ACCEPT:40ms,REMOTE_CALL:30ms "
                             "peer=worker1 messages_to_delay=RREF_FORK_REQUEST:150ms"));
  {
    RRef<Tracked> tracked = job[0].peer(1).make<Tracked>(1);
    EXPECT_EQ(job[0].peer(2).call<add_remotely>(tracked, 2), 3);
  }
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(eventually([&] { return nothing_held(job[rank]); }));
  EXPECT_TRUE(eventually([] { return Tracked::alive == 0; }));
  EXPECT_GT(job[2].stats().faults, 0u);
  job.shutdown();
}

TEST(RRefFaults, UnknownKindsAreNamedWithThoseOfReferences) {
  Options options;
  options.faults.messages_to_fail = {"RREF_FETSCH"};
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { Worker worker(options); }).what(),
                  "CALL, REPLY, CANCEL, REMOTE_CALL, RREF_FORK_REQUEST, RREF_ACCEPT, RREF_CHILD_ACCEPT, "
                  "RREF_USER_DELETE, RREF_FETCH");
}

}  // namespace
}  // namespace holdfast::rref_faults_test
