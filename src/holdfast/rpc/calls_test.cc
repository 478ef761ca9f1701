// The tables of calls made and served, driven by messages and times, with a post office that only writes down.
#include <holdfast/rpc/calls.h>

#include <deque>

#include <gtest/gtest.h>

#include <holdfast/base/random.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rpc/signature.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

int64_t twice(int64_t number) { return number * 2; }
int64_t unlucky(int64_t) { throw std::runtime_error("bad luck"); }
const Function& twice_entry() { return Registered<twice>::entry; }
const Function& unlucky_entry() { return Registered<unlucky>::entry; }

class CallsTest : public testing::Test, public Post, public CallHost {
 protected:
  struct Sent {
    WorkerPtr to;
    MessagePtr message;
    bool windowed;
  };

  // Post
  uint64_t send(Step&, const WorkerPtr& to, std::shared_ptr<Message> message, bool windowed) override {
    if (dead_) return 0;
    sent_.push_back({to, std::move(message), windowed});
    return ++last_number_;
  }
  bool maybe_sent(const WorkerId&, uint64_t number) const override { return number <= written_; }
  void grant_credit(Step&, const WorkerId&, uint64_t bytes) override { credit_ += bytes; }
  // CallHost
  Time now() override { return now_; }
  Executor* executor() override { return nullptr; }
  const WorkerPtr& self() const override { return self_; }
  void* worker() override { return nullptr; }
  bool begin(ServedCall& call, Time) override {
    bool go = false;
    run([&](Step& step) { go = calls_.begin(step, call); });
    return go;
  }
  void respond(ServedCall& call, std::shared_ptr<Message> reply) override {
    run([&](Step& step) { calls_.respond(step, call, std::move(reply)); });
  }

  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    for (Step::Completed& completed : step.completed) completed.completion(std::move(completed.result));
    for (Closure& closure : step.closures) closure();
    return step;
  }
  static WorkerPtr peer(uint32_t rank = 1) {
    return std::make_shared<const WorkerInfo>(
        WorkerInfo{.name = "worker" + std::to_string(rank), .rank = {rank}, .incarnation = {3}, .address = "x:1"});
  }
  static std::shared_ptr<Message> call_message(const Function& function, int64_t argument) {
    auto message = std::make_shared<Message>();
    message->kind = kCall;
    wire::Writer writer(*message);
    write_call_header(writer, function.id, function.signature_id);
    wire::encode(writer, argument);
    return message;
  }
  CallId start(Time deadline = kNever, const WorkerPtr& to = peer(), const Function& function = twice_entry()) {
    CallId call;
    run([&](Step& step) {
      call = calls_.start(step, to, function, call_message(function, 21), {step.now, deadline},
                          [this](Result<Message> result) { results_.push_back(std::move(result)); });
    });
    return call;
  }
  Status reply(CallId call, const WorkerPtr& from = peer(), const std::optional<Failure>& failure = {}) {
    Message message{.kind = kReply, .body = {}, .attachments = {}};
    if (failure) {
      message = *failed_reply(call, *failure);
    } else {
      wire::Writer writer(message);
      write_reply_header(writer, call);
      wire::encode(writer, int64_t{42});
    }
    Status status;
    run([&](Step& step) { status = calls_.on_reply(step, *from, std::move(message)); });
    return status;
  }
  // A call that arrives; its handler, if there is one to run.
  std::shared_ptr<Work> arrive(const Function& function, CallId id = {77}, Duration left = Duration::max(),
                               const WorkerPtr& from = peer()) {
    std::shared_ptr<Message> message = call_message(function, 21);
    stamp_call(*message, id, left);
    Step step = run([&](Step& step) { last_status_ = calls_.on_call(step, from, Message(*message)); });
    return step.work.empty() ? nullptr : step.work.at(0);
  }
  ReplyHeader last_reply() {
    EXPECT_EQ(sent_.back().message->kind, kReply);
    wire::Reader reader(*sent_.back().message);
    return read_reply_header(reader);
  }
  void cancel_arrives(CallId id, const WorkerPtr& from = peer()) {
    run([&](Step& step) { ASSERT_TRUE(calls_.on_cancel(step, *from, *cancel_message(id)).ok()); });
  }
  void lose(const WorkerPtr& worker) {
    run([&](Step& step) { calls_.on_worker_lost(step, *worker, "it died"); });
  }

  const WorkerPtr self_ = peer(0);
  Calls calls_{*this, *this};
  Time now_ = Time{} + 1h;
  std::deque<Sent> sent_;
  std::vector<Result<Message>> results_;
  Status last_status_;
  uint64_t last_number_ = 0;
  uint64_t written_ = UINT64_MAX;
  uint64_t credit_ = 0;
  bool dead_ = false;
};

// ---- calls made

TEST_F(CallsTest, ACallCompletesWithItsReply) {
  const CallId call = start();
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(sent_[0].windowed);
  wire::Reader reader(*sent_[0].message);
  const CallHeader header = read_call_header(reader);
  EXPECT_EQ(header.call, call);
  EXPECT_EQ(header.timeout_us, 0u);
  EXPECT_EQ(header.function, twice_entry().id);
  ASSERT_TRUE(reply(call).ok());
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(results_[0].ok());
  EXPECT_TRUE(calls_.idle());
  ASSERT_TRUE(reply(call).ok());
  EXPECT_EQ(results_.size(), 1u) << "a second reply is dropped";
}

TEST_F(CallsTest, ASlotIsUsedAgainUnderAnotherId) {
  const CallId first = start();
  ASSERT_TRUE(reply(first).ok());
  const CallId second = start();
  EXPECT_NE(first, second);
  ASSERT_TRUE(reply(first).ok());
  EXPECT_EQ(results_.size(), 1u) << "a late reply does not complete the next call";
  ASSERT_TRUE(reply(second).ok());
  EXPECT_EQ(results_.size(), 2u);
}

TEST_F(CallsTest, OnlyTheCalleeMayReply) {
  const CallId call = start();
  ASSERT_TRUE(reply(call, peer(2)).ok());
  EXPECT_TRUE(results_.empty());
  EXPECT_EQ(calls_.made_count(), 1u);
}

// The caller gave it two seconds, of which it waited half a one for its turn.
TEST_F(CallsTest, ATimeoutNamesTheTimeThatTheCallerGave) {
  const Time begun = now_;
  now_ += 500ms;
  run([&](Step& step) {
    calls_.start(step, peer(), twice_entry(), call_message(twice_entry(), 21), {begun, begun + 2s},
                 [this](Result<Message> result) { results_.push_back(std::move(result)); });
  });
  now_ += 1500ms;
  run([&](Step& step) { calls_.on_time(step); });
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_CONTAINS(results_[0].failure().message, "did not answer within 2 s");
}

TEST_F(CallsTest, ATimeoutFailsTheCallAndTellsTheCallee) {
  const CallId call = start(now_ + 2s);
  EXPECT_EQ(calls_.next_wakeup(), now_ + 2s);
  now_ += 2s;
  run([&](Step& step) { calls_.on_time(step); });
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].failure().code, Code::timeout);
  EXPECT_CONTAINS(results_[0].failure().message, "on worker1 did not answer within 2 s");
  EXPECT_EQ(sent_.back().message->kind, kCancel);
  EXPECT_FALSE(sent_.back().windowed);
  EXPECT_EQ(calls_.next_wakeup(), kNever);
  ASSERT_TRUE(reply(call).ok());
  EXPECT_EQ(results_.size(), 1u);
}

TEST_F(CallsTest, AReplyTakesTheTimerAway) {
  const CallId call = start(now_ + 2s);
  ASSERT_TRUE(reply(call).ok());
  EXPECT_EQ(calls_.next_wakeup(), kNever);
}

TEST_F(CallsTest, ACancelledCallIsForgottenAndTheCalleeTold) {
  const CallId call = start(now_ + 2s);
  run([&](Step& step) { calls_.cancel(step, call); });
  EXPECT_TRUE(results_.empty()) << "whoever cancels has completed it";
  EXPECT_EQ(sent_.back().message->kind, kCancel);
  EXPECT_TRUE(calls_.idle());
  const size_t count = sent_.size();
  run([&](Step& step) { calls_.cancel(step, call); });
  EXPECT_EQ(sent_.size(), count);
}

TEST_F(CallsTest, CallsToALostWorkerSayWhetherTheyMayHaveRun) {
  written_ = 1;
  start();
  start();
  start(kNever, peer(2));
  lose(peer());
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_EQ(results_[0].failure().code, Code::worker_lost);
  EXPECT_TRUE(results_[0].failure().maybe_executed);
  EXPECT_FALSE(results_[1].failure().maybe_executed);
  EXPECT_EQ(results_[0].failure().worker, "worker1");
  EXPECT_EQ(calls_.made_count(), 1u);
}

TEST_F(CallsTest, ACallToOneWhoIsKnownToBeLostFailsAtOnceAndDidNotRun) {
  dead_ = true;
  EXPECT_EQ(start().value, 0u);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].failure().code, Code::worker_lost);
  EXPECT_FALSE(results_[0].failure().maybe_executed);
}

TEST_F(CallsTest, AReplyThatDoesNotDecodeFailsItsCall) {
  const CallId call = start();
  Message message{.kind = kReply, .body = {}, .attachments = {}};
  wire::Writer writer(message);
  writer.unsigned_integer(0);
  writer.unsigned_integer(call.value);
  writer.unsigned_integer(200);  // no such error code
  Status status;
  run([&](Step& step) { status = calls_.on_reply(step, *peer(), Message(message)); });
  EXPECT_FALSE(status.ok()) << "the connection ends";
  ASSERT_EQ(results_.size(), 1u) << "and the call does not wait for ever";
  EXPECT_EQ(results_[0].failure().code, Code::corrupt);
}

TEST_F(CallsTest, HostileBodiesAreCorruptAndNothingElse) {
  Random random(2);
  for (int i = 0; i < 3000; ++i) {
    Message message{.kind = kReply, .body = Bytes(random.below(40), 0), .attachments = {}};
    for (uint8_t& byte : message.body) byte = static_cast<uint8_t>(random.next());
    run([&](Step& step) {
      (void)calls_.on_reply(step, *peer(), Message(message));
      (void)calls_.on_call(step, peer(), Message(message));
      (void)calls_.on_cancel(step, *peer(), message);
    });
  }
  EXPECT_EQ(calls_.made_count(), 0u);
}

// ---- calls served

TEST_F(CallsTest, AServedCallGivesCreditWhenItStartsAndRepliesOnce) {
  std::shared_ptr<Work> work = arrive(twice_entry());
  ASSERT_TRUE(work);
  EXPECT_EQ(calls_.served_count(), 1u);
  EXPECT_EQ(credit_, 0u);
  work->run();
  EXPECT_EQ(credit_, call_message(twice_entry(), 21)->total_bytes());
  EXPECT_EQ(last_reply().call, CallId{77});
  EXPECT_FALSE(last_reply().failure);
  EXPECT_FALSE(sent_.back().windowed);
  work.reset();
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(calls_.idle());
}

TEST_F(CallsTest, WhatAFunctionThrowsIsItsReply) {
  arrive(unlucky_entry())->run();
  EXPECT_EQ(last_reply().failure->code, Code::remote_error);
  EXPECT_EQ(last_reply().failure->message, "bad luck");
}

TEST_F(CallsTest, AnUnknownFunctionIsRefusedAndCredited) {
  Function unknown{.name = "nobody", .signature = "() -> nil", .id = 1, .signature_id = 2};
  EXPECT_FALSE(arrive(unknown));
  EXPECT_EQ(last_reply().failure->code, Code::no_such_function);
  EXPECT_GT(credit_, 0u);
  Function other{.name = twice_entry().name, .signature = "", .id = twice_entry().id, .signature_id = 2};
  EXPECT_FALSE(arrive(other));
  EXPECT_EQ(last_reply().failure->code, Code::invalid_argument);
  EXPECT_TRUE(calls_.idle());
}

TEST_F(CallsTest, ACallThatIsDroppedUnrunStillReplies) {
  arrive(twice_entry()).reset();
  EXPECT_EQ(last_reply().failure->code, Code::cancelled);
  EXPECT_GT(credit_, 0u);
  EXPECT_TRUE(calls_.idle());
}

TEST_F(CallsTest, ACancelledCallDoesNotStartAndDoesNotReply) {
  std::shared_ptr<Work> work = arrive(twice_entry());
  cancel_arrives({77}, peer(2));  // not its caller
  cancel_arrives({78});
  cancel_arrives({77});
  work->run();
  work.reset();
  EXPECT_TRUE(sent_.empty());
  EXPECT_GT(credit_, 0u) << "its caller may send more";
  EXPECT_TRUE(calls_.idle());
}

TEST_F(CallsTest, ACallWhoseTimeIsUpDoesNotStart) {
  std::shared_ptr<Work> work = arrive(twice_entry(), {77}, 5ms);
  now_ += 5ms;
  work->run();
  work.reset();
  EXPECT_TRUE(sent_.empty());
  EXPECT_TRUE(calls_.idle());
}

TEST_F(CallsTest, TheCallsOfALostCallerAreCancelledAndNotAnswered) {
  std::shared_ptr<Work> lost = arrive(twice_entry(), {1});
  std::shared_ptr<Work> other = arrive(twice_entry(), {1}, Duration::max(), peer(2));
  lose(peer());
  EXPECT_EQ(calls_.served_count(), 1u);
  lost->run();
  EXPECT_TRUE(sent_.empty());
  other->run();
  EXPECT_EQ(sent_.size(), 1u);
}

TEST_F(CallsTest, TheSameCallTwiceIsCorrupt) {
  std::shared_ptr<Work> work = arrive(twice_entry(), {5});
  EXPECT_FALSE(arrive(twice_entry(), {5}));
  EXPECT_EQ(last_status_.failure().code, Code::corrupt);
  EXPECT_EQ(calls_.served_count(), 1u);
  work->run();
  EXPECT_EQ(sent_.size(), 1u);
  EXPECT_TRUE(calls_.idle());
}

// ---- the end

TEST_F(CallsTest, FailingAllLeavesNothing) {
  written_ = 1;
  start();
  start();
  std::shared_ptr<Work> work = arrive(twice_entry());
  run([&](Step& step) { calls_.fail_all(step, {.code = Code::worker_lost, .message = "we are lost"}); });
  ASSERT_EQ(results_.size(), 2u);
  EXPECT_TRUE(results_[0].failure().maybe_executed);
  EXPECT_FALSE(results_[1].failure().maybe_executed);
  EXPECT_TRUE(calls_.idle());
  const size_t count = sent_.size();
  work->run();
  work.reset();
  EXPECT_EQ(sent_.size(), count);
}

TEST_F(CallsTest, EverythingThatHappensIsActivity) {
  uint64_t before = calls_.activity();
  const auto moved = [&] { return std::exchange(before, calls_.activity()) != before; };
  start();
  EXPECT_TRUE(moved());
  std::shared_ptr<Work> work = arrive(twice_entry());
  EXPECT_TRUE(moved());
  work->run();
  EXPECT_TRUE(moved());
  EXPECT_FALSE(moved());
}

TEST_F(CallsTest, DescriptionsAreBounded) {
  for (int i = 0; i < 1000; ++i) start();
  EXPECT_LT(calls_.describe_made().size(), 1000u);
  EXPECT_NE(calls_.describe_made().find("and 992 more"), std::string::npos);
}

}  // namespace
}  // namespace holdfast
