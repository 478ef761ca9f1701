// Options::faults: its text form, the decisions for messages, and what callers see over real connections. The same in
// the simulator is in sim/faults_test.cc; references and fetches are in rref/faults_test.cc.
#include <filesystem>
#include <fstream>

#include <holdfast/rpc/message_faults.h>
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::faults_test {
namespace {

using namespace test;

// ---- the text

TEST(FaultOptions, TheTextSaysEverything) {
  const FaultOptions faults = FaultOptions::parse(R"(
    seed=7 workers=worker0,worker1   # two words and a comment: seed=8
    messages_to_fail=CALL,RREF_FETCH num_fail_sends=3
    messages_to_delay=REPLY:1.5s,CALL:200us
    drop=0.1 duplicate=0.2 reorder=0.3 delay=0.4 delay_max=2min cut=0.5 kill=1e-3
    peer=worker2 drop=0 messages_to_fail=
    peer=worker3 messages_to_delay=CANCEL:3ns
    peer=worker2 cut=1)");
  EXPECT_EQ(faults.seed, 7u);
  EXPECT_EQ(faults.workers, (std::vector<std::string>{"worker0", "worker1"}));
  EXPECT_EQ(faults.messages_to_fail, (std::vector<std::string>{"CALL", "RREF_FETCH"}));
  EXPECT_EQ(faults.num_fail_sends, 3u);
  EXPECT_EQ(faults.messages_to_delay, (std::map<std::string, Duration>{{"REPLY", 1500ms}, {"CALL", 200us}}));
  EXPECT_EQ(faults.drop, 0.1);
  EXPECT_EQ(faults.duplicate, 0.2);
  EXPECT_EQ(faults.reorder, 0.3);
  EXPECT_EQ(faults.delay, 0.4);
  EXPECT_EQ(faults.delay_max, 2min);
  EXPECT_EQ(faults.cut, 0.5);
  EXPECT_EQ(faults.kill, 1e-3);
  ASSERT_EQ(faults.peers.size(), 2u);
  // A copy of what stands before, changed.
  const PeerFaults& second = faults.towards("worker2");
  EXPECT_EQ(second.drop, 0);
  EXPECT_TRUE(second.messages_to_fail.empty());
  EXPECT_EQ(second.cut, 1);
  EXPECT_EQ(second.duplicate, 0.2);
  EXPECT_EQ(faults.towards("worker3").messages_to_delay, (std::map<std::string, Duration>{{"CANCEL", 3ns}}));
  EXPECT_EQ(faults.towards("worker3").cut, 0.5);
  EXPECT_EQ(faults.towards("worker9").drop, 0.1);
  EXPECT_TRUE(faults.made_by("worker1"));
  EXPECT_FALSE(faults.made_by("worker2"));
  EXPECT_TRUE(FaultOptions().made_by("worker2"));
  EXPECT_FALSE(FaultOptions::parse("\n # nothing\n").any_for_messages());
}

TEST(FaultOptions, MistakesAreNamedWithWhatThereIs) {
  KindNames names;
  names.add(kRpcKinds);
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"dorp=0.1", {"dorp", "drop", "messages_to_fail", "peer"}},
      {"drop", {"drop", "name=value"}},
      {"=3", {"\"\"", "drop"}},
      {"drop=often", {"drop=often", "from 0 to 1"}},
      {"drop=1.5", {"drop is 1.5", "from 0 to 1"}},
      {"kill=-0.1", {"kill is -0.1", "from 0 to 1"}},
      {"cut=nan", {"cut is nan", "from 0 to 1"}},
      {"peer=worker1 reorder=2", {"reorder is 2"}},
      {"seed=-1", {"seed=-1", "whole number"}},
      {"num_fail_sends=2.5", {"num_fail_sends=2.5", "whole number"}},
      {"num_fail_sends=-1", {"num_fail_sends=-1"}},
      {"messages_to_fail=CALL,CALLS", {"messages_to_fail", "\"CALLS\"", "CALL, REPLY, CANCEL"}},
      {"messages_to_fail=JOIN", {"\"JOIN\"", "CALL, REPLY, CANCEL"}},
      {"messages_to_delay=call:3ms", {"messages_to_delay", "\"call\"", "CALL, REPLY, CANCEL"}},
      {"peer=worker1 messages_to_fail=X", {"\"X\"", "CALL, REPLY, CANCEL"}},
      {"messages_to_delay=CALL", {"\"CALL\"", "KIND:TIME"}},
      {"messages_to_delay=CALL:3", {"=3", "ns, us, ms, s, min"}},
      {"messages_to_delay=CALL:soon", {"=soon", "ns, us, ms, s, min"}},
      {"messages_to_delay=CALL:3h", {"=3h", "ns, us, ms, s, min"}},
      {"messages_to_delay=CALL:inf", {"ns, us, ms, s, min"}},
      {"messages_to_delay=CALL:-5ms", {"negative", "CALL", "200ms"}},
      {"delay_max=-1ms", {"delay_max", "negative"}},
      {"peer=", {"peer=", "name"}},
      {"peer=worker1 seed=2", {"seed", "put it first"}},
      {"peer=worker1 workers=a", {"workers", "put it first"}},
  };
  for (const auto& [text, parts] : cases) {
    const std::string what = expect_throw<InvalidArgument>([text = text, &names] {
                               check(FaultOptions::parse(text), names).check();
                             }).what();
    for (const char* part : parts) EXPECT_CONTAINS(what, part) << text;
  }
}

TEST(FaultOptions, TheTextMayStandInAFile) {
  const std::string path = testing::TempDir() + "holdfast_faults_" + std::to_string(::getpid());
  std::ofstream(path) << "seed=3\n# more\npeer=worker1\ncut=0.5\n";
  const FaultOptions faults = FaultOptions::load(path);
  EXPECT_EQ(faults.seed, 3u);
  EXPECT_EQ(faults.towards("worker1").cut, 0.5);
  std::filesystem::remove(path);
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { FaultOptions::load(path); }).what(), path);
  EXPECT_EQ(FaultOptions::load("seed=5").seed, 5u);
}

// ---- the decisions

WorkerPtr worker_of(uint32_t rank) {
  return std::make_shared<const WorkerInfo>(WorkerInfo{
      .name = "worker" + std::to_string(rank), .rank = {rank}, .incarnation = {rank + 10}, .address = "nowhere"});
}

class MessageFaultsTest : public testing::Test, public FaultsPost {
 protected:
  MessageFaults make(const std::string& text) {
    KindNames names;
    names.add(kRpcKinds);
    const FaultOptions options = FaultOptions::parse(text);
    check(options, names).check();
    return {options, names};
  }
  static MessagePtr message(Kind kind) {
    auto message = std::make_shared<Message>();
    message->kind = kind;
    wire::Writer writer(*message);
    write_call_header(writer, 1, 1);
    stamp_call(*message, {1}, 1s);
    return message;
  }
  bool fails(MessageFaults& faults, uint64_t content, const WorkerPtr& to, Kind kind = kCall) {
    const std::optional<Failure> failure = faults.fail_call(*self, *to, kind, "f", content);
    EXPECT_TRUE(!failure || failure->code == Code::fault_injected);
    return failure.has_value();
  }
  uint64_t hold(MessageFaults& faults, Kind kind, const WorkerPtr& to, bool windowed = false) {
    return faults.hold(now, *self, to, message(kind), windowed);
  }
  // What leaves when that time has come: "REPLY 1" for one to rank 1.
  std::vector<std::string> at(MessageFaults& faults, Duration later) {
    left.clear();
    Step step(now + later);
    faults.on_time(step, *this);
    return left;
  }
  void send_late(Step&, const WorkerPtr& to, MessagePtr message, bool) override {
    KindNames names;
    names.add(kRpcKinds);
    left.push_back(names.name(message->kind) + " " + std::to_string(to->rank.value));
    wire::Reader reader(*message);
    time_left_us = read_call_header(reader).timeout_us;
  }

  const Time now = Time{} + 1h;
  const WorkerPtr self = worker_of(0);
  const WorkerPtr one = worker_of(1);
  const WorkerPtr two = worker_of(2);
  std::vector<std::string> left;
  uint64_t time_left_us = 0;  // of the last one that left
};
using Left = std::vector<std::string>;

TEST_F(MessageFaultsTest, EachCallFailsSoOftenThenPassesThenCountsAnew) {
  MessageFaults faults = make("messages_to_fail=CALL num_fail_sends=2");
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(fails(faults, 100, one));
    EXPECT_TRUE(fails(faults, 200, one));  // another call
    EXPECT_TRUE(fails(faults, 100, two));  // to another worker
    EXPECT_TRUE(fails(faults, 100, one));
    EXPECT_TRUE(fails(faults, 200, one));
    EXPECT_TRUE(fails(faults, 100, two));
    EXPECT_FALSE(fails(faults, 100, one));
    EXPECT_FALSE(fails(faults, 100, two));
    EXPECT_FALSE(fails(faults, 200, one));
  }
  EXPECT_EQ(faults.count(), 18u);
  EXPECT_FALSE(fails(faults, 100, one, kReply));
  MessageFaults none = make("messages_to_fail=CALL num_fail_sends=0");
  EXPECT_FALSE(fails(none, 100, one));
}

TEST_F(MessageFaultsTest, OthersAreSentAgainUntilTheyPassAndNothingOvertakesThem) {
  MessageFaults faults = make("messages_to_fail=CANCEL num_fail_sends=3");
  EXPECT_EQ(hold(faults, kReply, one), 0u);  // goes at once
  EXPECT_EQ(hold(faults, kCancel, one), 1u);
  EXPECT_EQ(hold(faults, kReply, one), 2u);  // waits behind it
  EXPECT_EQ(hold(faults, kReply, two), 0u);  // to somebody else
  EXPECT_FALSE(faults.idle());
  EXPECT_EQ(faults.count(), 1u);
  EXPECT_EQ(faults.next_wakeup(), now + 10ms);
  EXPECT_EQ(at(faults, 9ms), Left{});
  EXPECT_EQ(faults.count(), 1u);
  EXPECT_EQ(at(faults, 10ms), Left{});
  EXPECT_EQ(faults.count(), 2u);
  EXPECT_EQ(faults.next_wakeup(), now + 30ms);
  EXPECT_EQ(at(faults, 30ms), Left{});
  EXPECT_EQ(faults.count(), 3u);
  EXPECT_FALSE(faults.has_left(one->id(), 1));
  EXPECT_EQ(at(faults, 70ms), (Left{"CANCEL 1", "REPLY 1"}));
  EXPECT_TRUE(faults.has_left(one->id(), 2));
  EXPECT_EQ(faults.count(), 3u);
  EXPECT_TRUE(faults.idle());
  EXPECT_EQ(faults.next_wakeup(), kNever);
}

TEST_F(MessageFaultsTest, DelaysDoNotAddUp) {
  MessageFaults faults = make("messages_to_delay=CALL:100ms peer=worker2 messages_to_delay=REPLY:30ms");
  EXPECT_EQ(hold(faults, kCall, one, true), 1u);
  EXPECT_EQ(hold(faults, kCall, one, true), 2u);
  EXPECT_EQ(hold(faults, kCancel, one), 3u);
  EXPECT_EQ(hold(faults, kCall, two, true), 0u);
  EXPECT_EQ(hold(faults, kReply, two), 1u);
  const uint64_t waiting = 2 * message(kCall)->total_bytes();
  EXPECT_TRUE(faults.has_room(one->id(), 20, waiting + 20));
  EXPECT_FALSE(faults.has_room(one->id(), 21, waiting + 20));
  EXPECT_EQ(at(faults, 30ms), Left{"REPLY 2"});
  EXPECT_EQ(at(faults, 99ms), Left{});
  EXPECT_EQ(at(faults, 100ms), (Left{"CALL 1", "CALL 1", "CANCEL 1"}));
  EXPECT_TRUE(faults.has_room(one->id(), 100, 40));  // one may always wait
}

TEST_F(MessageFaultsTest, ACallThatLeavesLateHasLessTimeLeft) {
  MessageFaults faults = make("messages_to_delay=CALL:300ms peer=worker2 messages_to_delay=CALL:2s");
  hold(faults, kCall, one, true);
  at(faults, 300ms);
  EXPECT_EQ(time_left_us, 700'000u);
  hold(faults, kCall, two, true);
  at(faults, 2s);
  EXPECT_EQ(time_left_us, 1u);  // 0 would be no limit
}

TEST_F(MessageFaultsTest, WhatIsForTheLostIsForgotten) {
  MessageFaults faults = make("messages_to_delay=CALL:100ms");
  hold(faults, kCall, one, true);
  hold(faults, kCall, two, true);
  Step step(now);
  faults.forget(step, one->id());
  EXPECT_EQ(step.garbage.size(), 1u);
  EXPECT_EQ(at(faults, 100ms), Left{"CALL 2"});
  hold(faults, kCall, two, true);
  faults.forget_all(step);
  EXPECT_TRUE(faults.idle());
  EXPECT_EQ(at(faults, 1s), Left{});
}

TEST_F(MessageFaultsTest, OnlyTheNamedWorkersMakeThem) {
  MessageFaults faults = make("workers=worker5 messages_to_fail=CALL messages_to_delay=REPLY:1s kill=1");
  EXPECT_FALSE(fails(faults, 1, one));
  EXPECT_FALSE(faults.kills(*self, *one));
  EXPECT_EQ(hold(faults, kReply, one), 0u);
  EXPECT_TRUE(faults.kills(*worker_of(5), *one));
}

TEST_F(MessageFaultsTest, TheSameSeedDecidesTheSame) {
  const auto history = [&](const std::string& text) {
    MessageFaults faults = make(text);
    std::string result;
    for (int i = 0; i < 200; ++i) result += faults.kills(*self, i % 2 == 0 ? *one : *two) ? 'x' : '.';
    return result;
  };
  const std::string first = history("seed=1 kill=0.3");
  EXPECT_EQ(history("seed=1 kill=0.3"), first);
  EXPECT_NE(history("seed=2 kill=0.3"), first);
  const auto kills = std::count(first.begin(), first.end(), 'x');
  EXPECT_GT(kills, 20);
  EXPECT_LT(kills, 120);
}

// ---- real workers

std::atomic<int> runs{0};
int64_t count_up(int64_t by) {
  runs += 1;
  return by + 1;
}
int64_t pass_on(int64_t by) { return current_worker().peer(2).call<count_up>(by); }

std::function<void(Options&)> with_faults(const std::string& text) {
  return [text](Options& options) { options.faults = FaultOptions::parse(text); };
}

TEST(Faults, AFailedCallIsAnErrorOfItsOwnAndDidNotRun) {
  TestJob job(3, with_faults("workers=worker0 messages_to_fail=CALL num_fail_sends=2 peer=worker2 messages_to_fail="));
  Peer peer = job[0].peer(1);
  runs = 0;
  const FaultInjected error = expect_throw<FaultInjected>([&] { peer.call<count_up>(1); });
  EXPECT_EQ(error.code(), Code::fault_injected);
  for (const char* part :
       {"CALL to worker1", "fault injection", "messages_to_fail", "count_up", "not sent", "1 of 2"}) {
    EXPECT_CONTAINS(error.what(), part);
  }
  EXPECT_THROW(peer.call<count_up>(2), FaultInjected);  // another call
  EXPECT_THROW(peer.async<count_up>(1).get(), FaultInjected);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(peer.call<count_up>(1), 2);
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(job[0].peer(2).call<count_up>(1), 2);  // that peer is spared
  EXPECT_EQ(job[0].self().call<count_up>(1), 2);   // and so is oneself
  EXPECT_EQ(job[1].peer(0).call<count_up>(1), 2);  // which is not among `workers`
  EXPECT_EQ(job[0].stats().faults, 3u);
  EXPECT_EQ(job[1].stats().faults, 0u);
  job.shutdown();
}

// The callee's own call fails: to the caller that is what the function threw.
TEST(Faults, AFailureInsideAHandlerReachesTheCaller) {
  TestJob job(3, with_faults("workers=worker1 messages_to_fail=CALL"));
  const RemoteError error = expect_throw<RemoteError>([&] { job[0].peer(1).call<pass_on>(1); });
  EXPECT_EQ(error.type(), "holdfast::FaultInjected");
  EXPECT_CONTAINS(error.what(), "CALL to worker2");
  EXPECT_EQ(job[0].peer(1).call<pass_on>(1), 2);
  job.shutdown();
}

TEST(Faults, DelayedMessagesArriveLateAndInOrder) {
  TestJob job(2, with_faults("messages_to_delay=CALL:60ms,REPLY:40ms"));
  const Time before = steady_now();
  std::vector<Future<int64_t>> calls;
  for (int64_t i = 0; i < 20; ++i) calls.push_back(job[0].peer(1).async<count_up>(i));
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)].get(), i + 1);
  EXPECT_GE(steady_now() - before, 100ms);
  EXPECT_EQ(job[0].stats().faults, 20u);
  EXPECT_EQ(job[1].stats().faults, 20u);
  job.shutdown();
}

// The call waits longer than it may: it times out and is not run, and the end waits for what still waits.
TEST(Faults, ACallThatIsHeldLongerThanItsTimeTimesOut) {
  TestJob job(2, with_faults("workers=worker0 messages_to_delay=CALL:200ms"));
  runs = 0;
  EXPECT_THROW(job[0].peer(1).with_timeout(1ms).call<count_up>(1), Timeout);
  job.shutdown();
  EXPECT_EQ(runs, 0);
}

TEST(Faults, ACallThatWaitsForALostWorkerDidNotRun) {
  TestJob job(2, with_faults("workers=worker0 messages_to_delay=CALL:10min"));
  Future<int64_t> call = job[0].peer(1).async<count_up>(1);
  job.coordinator().declare_lost(Rank{1}, "for the test");
  const WorkerLost lost = expect_throw<WorkerLost>([&] { call.get(); });
  EXPECT_FALSE(lost.maybe_executed());
  job.destroy(1);
  job.shutdown();
}

TEST(Faults, RepliesThatFailAreSentAgain) {
  TestJob job(2, with_faults("workers=worker1 messages_to_fail=REPLY num_fail_sends=4"));
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(job[0].peer(1).call<count_up>(i), i + 1);
  EXPECT_EQ(job[1].stats().faults, 12u);
  job.shutdown();
}

// Frames are lost, doubled, late and out of order, and connections break: calls run once all the same.
TEST(Faults, LinksRepairWhatHappensToFrames) {
  for (const char* text : {"drop=0.02 duplicate=0.1 reorder=0.1 delay=0.1 delay_max=3ms", "cut=0.03",
                           "workers=worker0 drop=0.02 duplicate=0.1 delay=0.1 cut=0.02"}) {
    TestJob job(3, with_faults(text));
    runs = 0;
    std::vector<Future<int64_t>> calls;
    for (int64_t i = 0; i < 150; ++i) {
      calls.push_back(job[static_cast<int>(i % 3)].peer(static_cast<int>((i + 1) % 3)).async<count_up>(i));
      if (i % 10 == 9) calls.back().wait();
    }
    for (int64_t i = 0; i < 150; ++i) EXPECT_EQ(calls[static_cast<size_t>(i)].get(), i + 1) << text;
    EXPECT_EQ(runs, 150) << text;
    EXPECT_GT(job[0].stats().faults, 0u) << text;
    job.shutdown();
  }
}

TEST(Faults, FramesToOnePeerOnly) {
  TestJob job(3, with_faults("workers=worker0 peer=worker2 duplicate=0.3 reorder=0.3"));
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(job[0].peer(1).call<count_up>(i), i + 1);
  EXPECT_EQ(job[0].stats().faults, 0u);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(job[0].peer(2).call<count_up>(i), i + 1);
  EXPECT_GT(job[0].stats().faults, 0u);
  EXPECT_EQ(job[1].stats().faults, 0u);
  job.shutdown();
}

TEST(Faults, UnknownKindsAreNamedWithThoseThatThereAre) {
  Options options;
  options.faults.messages_to_fail = {"RREF_FETSCH"};
  const std::string what = expect_throw<InvalidArgument>([&] { Worker worker(options); }).what();
  EXPECT_CONTAINS(what, "RREF_FETSCH");
  EXPECT_CONTAINS(what, "CALL, REPLY, CANCEL");
  Options late;
  late.faults.messages_to_delay["CALL"] = -1ms;
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { Worker worker(late); }).what(), "negative");
}

// HOLDFAST_FAULTS reaches a worker; with kill=1 it dies of its first message.
int call_and_die() {
  Worker worker(Options::from_env());
  worker.peer(0).call<count_up>(1);
  return 0;
}
const Role call_and_die_role("call_and_die", call_and_die);

TEST(Faults, KillEndsTheProcess) {
  TestCoordinator coordinator(2);
  TestProcess process("call_and_die", coordinator.options(1), {{"HOLDFAST_FAULTS", "kill=1"}});
  Worker worker(coordinator.options(0));
  EXPECT_EQ(process.wait(), -SIGKILL);
  coordinator.server().declare_lost(Rank{1}, "killed");
  worker.shutdown();
}

}  // namespace
}  // namespace holdfast::faults_test
