// The whole protocol of one worker, driven by hand: what ends with its life, and what keeps a job from ending.
#include <holdfast/rpc/node.h>

#include <gtest/gtest.h>

#include <holdfast/rpc/peer.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;

constexpr Kind kFirst{100};
constexpr Kind kLast{101};

int64_t next(int64_t number) { return number + 1; }

class NodeTest : public testing::Test, public CallHost, public Protocol {
 protected:
  NodeTest() : node_(options(), *this) { node_.add_protocol(kFirst, kLast, *this); }
  static NodeOptions options() {
    NodeOptions options;
    options.member.rank = 0;
    options.member.coordinator = "boss";
    options.frame_bytes_max = 10000;
    return options;
  }

  Time now() override { return now_; }
  Executor* executor() override { return nullptr; }
  const WorkerPtr& self() const override { return node_.self(); }
  void* worker() override { return nullptr; }
  bool begin(ServedCall& call, Time) override {
    bool go = false;
    run([&](Step& step) { go = node_.begin(step, call); });
    return go;
  }
  void respond(ServedCall& call, std::shared_ptr<Message> reply) override {
    run([&](Step& step) { node_.respond(step, call, std::move(reply)); });
  }
  Status on_message(Step&, const WorkerPtr&, Message) override { return {}; }
  bool idle() const override { return true; }

  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    for (const Step::Dial& dial : step.dials) (dial.address == "boss" ? boss_ : dialled_) = dial.connection;
    for (Step::Completed& completed : step.completed) completed.completion(std::move(completed.result));
    step.completed.clear();
    for (Closure& closure : step.closures) closure();
    step.closures.clear();
    return step;
  }
  Step feed(ConnectionId connection, const MessagePtr& message, FrameHeader header = {}) {
    std::vector<InFrame> frames;
    header.kind = message->kind;
    frames.push_back({.header = header, .message = *message});
    return run([&](Step& step) { node_.on_frames(step, connection, frames); });
  }
  void join() {
    run([&](Step& step) { node_.member().join(step, "me", kNever, [](Status) {}); });
    run([&](Step& step) { node_.on_connected(step, boss_); });
    feed(boss_,
         cluster_message(kAccepted, Accepted{.self = {.name = "me", .rank = {0}, .incarnation = {1}, .address = "me"},
                                             .world_size = 2,
                                             .lease_ms = 10000}));
    feed(boss_, cluster_message(kReady));
    said(boss_);
  }
  std::vector<Message> said(ConnectionId connection) {
    std::vector<OutFrame> frames;
    node_.collect(connection, 1 << 20, frames);
    std::vector<Message> out;
    for (const OutFrame& frame : frames) out.push_back(*frame.message);
    return out;
  }
  // The last QUIET that was said.
  std::optional<Quiet> quiet() {
    std::optional<Quiet> last;
    for (const Message& message : said(boss_)) {
      if (message.kind == kQuiet) last = wire::decode_message<Quiet>(message).take();
    }
    return last;
  }
  std::optional<Quiet> answer_to_check(uint64_t round) {
    feed(boss_, cluster_message(kCheck, Counter64{round}));
    return quiet();
  }
  static WorkerPtr peer() {
    return std::make_shared<const WorkerInfo>(
        WorkerInfo{.name = "peer", .rank = {1}, .incarnation = {2}, .address = "peer"});
  }
  CallId call(const WorkerPtr& to, Time deadline = kNever, size_t padding = 0) {
    auto message = std::make_shared<Message>();
    message->kind = kCall;
    wire::Writer writer(*message);
    write_call_header(writer, Registered<next>::entry.id, Registered<next>::entry.signature_id);
    wire::encode(writer, int64_t{1});
    for (size_t i = 0; i < padding; ++i) writer.nil();
    CallId id;
    last_ = run([&](Step& step) {
      id = node_.start_call(step, to, Registered<next>::entry, message, {step.now, deadline},
                            [this](Result<Message> result) { results_.push_back(std::move(result)); });
    });
    return id;
  }
  // A connection from the peer that is up.
  ConnectionId peer_connects() {
    run([&](Step& step) { node_.on_accepted(step, ConnectionId{3}); });
    feed({3}, cluster_message(kHello, Hello{.from = *peer(), .to_rank = {0}, .to_incarnation = {1}, .epoch = 1}));
    said({3});
    return {3};
  }

  Node node_;
  Time now_ = Time{} + 1h;
  ConnectionId boss_;
  ConnectionId dialled_;
  Step last_{now_};
  std::vector<Result<Message>> results_;
};

TEST_F(NodeTest, ACallThatMayNotStartFailsAtOnce) {
  join();
  call(peer(), now_);
  EXPECT_EQ(results_.at(0).failure().code, Code::timeout);
  call(peer(), kNever, 20000);
  EXPECT_EQ(results_.at(1).failure().code, Code::invalid_argument);
  EXPECT_TRUE(node_.calls().idle());
  EXPECT_EQ(node_.links().link_count(), 0u);
}

TEST_F(NodeTest, ACallToOneselfTakesNoLink) {
  join();
  call(node_.self());
  ASSERT_EQ(last_.work.size(), 1u);
  last_.work[0]->run();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_TRUE(results_[0].ok());
  EXPECT_EQ(node_.links().link_count(), 0u);
  EXPECT_TRUE(node_.has_room(node_.self()->id(), UINT64_MAX)) << "its window was given back";
}

TEST_F(NodeTest, AResultThatIsTooLargeBecomesAnError) {
  join();
  call(node_.self());
  auto& served = static_cast<ServedCall&>(*last_.work.at(0));
  auto huge = std::make_shared<Message>();
  huge->kind = kReply;
  huge->body = Bytes(20000, 0);
  served.respond(huge);
  EXPECT_EQ(results_.at(0).failure().code, Code::overloaded);
}

TEST_F(NodeTest, BeingFencedFailsCallsAndEndsEveryLink) {
  join();
  const ConnectionId up = peer_connects();
  call(peer());
  call(
      std::make_shared<const WorkerInfo>(WorkerInfo{.name = "other", .rank = {5}, .incarnation = {9}, .address = "o"}));
  const Step step = feed(boss_, cluster_message(kFenced, Text{"you were silent"}));
  ASSERT_EQ(results_.size(), 2u);
  for (const Result<Message>& result : results_) EXPECT_EQ(result.failure().code, Code::worker_lost);
  std::vector<ConnectionId> closed;
  for (const Step::Close& close : step.closes) closed.push_back(close.connection);
  EXPECT_NE(std::find(closed.begin(), closed.end(), up), closed.end());
  EXPECT_NE(std::find(closed.begin(), closed.end(), dialled_), closed.end());
  EXPECT_TRUE(step.room_opened);
  EXPECT_EQ(node_.links().link_count(), 0u) << "else it would dial for ever";
  run([&](Step& step) { node_.on_closed(step, boss_, {}); });
  EXPECT_EQ(node_.next_wakeup(), kNever);
  call(peer());
  EXPECT_EQ(results_.at(2).failure().code, Code::worker_lost);
  run([&](Step& step) { node_.on_accepted(step, ConnectionId{9}); });
  EXPECT_EQ(node_.links().connection_count(), 0u) << "nor does it serve";
}

TEST_F(NodeTest, MessagesOfOtherProtocolsAreActivity) {
  join();
  const ConnectionId connection = peer_connects();
  run([&](Step& step) { node_.shutdown(step, kNever, [](Status) {}); });
  const std::optional<Quiet> before = quiet();
  ASSERT_TRUE(before && before->quiet);
  auto message = std::make_shared<Message>();
  message->kind = kFirst;
  feed(connection, message, {.sequence = 1});
  const std::optional<Quiet> received = answer_to_check(1);
  ASSERT_TRUE(received);
  EXPECT_GT(received->activity, before->activity) << "a round that saw the worker quiet before this message is void";
  run([&](Step& step) { node_.send(step, peer(), message, false); });
  const std::optional<Quiet> sent = answer_to_check(2);
  ASSERT_TRUE(sent);
  EXPECT_FALSE(sent->quiet) << "until it is acknowledged";
  EXPECT_GT(sent->activity, received->activity);
}

// A server spends its life in shutdown: its calls must not cost the coordinator anything.
TEST_F(NodeTest, QuietIsSaidOnceUntilTheCoordinatorAsks) {
  join();
  const ConnectionId connection = peer_connects();
  auto message = std::make_shared<Message>();
  message->kind = kFirst;
  run([&](Step& step) { node_.shutdown(step, kNever, [](Status) {}); });
  ASSERT_TRUE(quiet());
  run([&](Step& step) { node_.send(step, peer(), message, false); });
  ASSERT_EQ(said(connection).size(), 1u);
  feed(connection, message, {.sequence = 1, .acknowledged = 1});
  EXPECT_FALSE(quiet()) << "busy, and quiet again";

  run([&](Step& step) { node_.send(step, peer(), message, false); });
  ASSERT_EQ(said(connection).size(), 1u);
  ASSERT_FALSE(answer_to_check(1)->quiet);
  feed(connection, message, {.sequence = 2, .acknowledged = 2});
  const std::optional<Quiet> again = quiet();
  ASSERT_TRUE(again) << "the coordinator waits for it";
  EXPECT_TRUE(again->quiet);
}

TEST_F(NodeTest, AnUnknownKindEndsTheConnection) {
  join();
  const ConnectionId connection = peer_connects();
  auto message = std::make_shared<Message>();
  message->kind = Kind{4711};
  const Step step = feed(connection, message, {.sequence = 1});
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
}

TEST_F(NodeTest, StoppingIsTheEnd) {
  join();
  peer_connects();
  call(peer());
  run([&](Step& step) { node_.stop(step, "destroyed"); });
  EXPECT_EQ(results_.at(0).failure().code, Code::shutdown);
  bool said_leave = false;
  for (const Message& message : said(boss_)) said_leave = said_leave || message.kind == kLeave;
  EXPECT_TRUE(said_leave);
  EXPECT_EQ(node_.next_wakeup(), kNever);
  call(peer());
  EXPECT_EQ(results_.at(1).failure().code, Code::shutdown);
}

}  // namespace
}  // namespace holdfast
