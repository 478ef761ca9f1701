// For the tests of this layer: a graph that does what the test says, and a whole worker that is driven by hand.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/backward/backwards.h>
#include <holdfast/cluster/messages.h>
#include <holdfast/link/messages.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::test {

using namespace std::chrono_literals;

inline WorkerPtr worker_info(uint32_t rank) {
  return std::make_shared<const WorkerInfo>(WorkerInfo{.name = "worker" + std::to_string(rank),
                                                       .rank = {rank},
                                                       .incarnation = {rank + 10},
                                                       .address = "address" + std::to_string(rank)});
}

// "MARK 3 4 of 1.11.1/1.11.1": the parts of a message that tests look at.
inline std::string text_of_message(const Message& message) {
  std::string text;
  for (const KindName& kind : kBackwardKinds) {
    if (kind.kind == message.kind) text = kind.name;
  }
  const auto add = [&](const std::string& more) { text += " " + more; };
  if (message.kind == kContextReached) {
    add(text_of(wire::decode_message<ContextReached>(message).take().context));
  } else if (message.kind == kCleanupContext) {
    const CleanupContext cleanup = wire::decode_message<CleanupContext>(message).take();
    add(text_of(cleanup.context) + " below " + std::to_string(cleanup.all_ended_below));
  } else if (message.kind == kMark) {
    for (const SendNumber send : wire::decode_message<Mark>(message).take().sends) add(std::to_string(send.value));
  } else if (message.kind == kReport) {
    const Report report = wire::decode_message<Report>(message).take();
    for (const SendNumber send : report.processed) add(std::to_string(send.value));
    add("->");
    for (const SpawnedSend& send : report.spawned) {
      add(std::to_string(send.rank.value) + ":" + std::to_string(send.send.value));
    }
    if (report.waiting > 0) add("waiting " + std::to_string(report.waiting) + " " + report.waiting_names);
    if (report.status != PartStatus::working) add(report.status == PartStatus::held ? "held" : "done");
  } else if (message.kind == kGradient) {
    const GradientBody body = wire::decode_message<GradientBody>(message).take();
    add(std::to_string(body.send.value) + " \"" + std::string(body.body.begin(), body.body.end()) + "\"");
    if (body.settled) add("settled");
    for (const Attachment& attachment : message.attachments) {
      add("+" + std::string(attachment.data, attachment.data + attachment.bytes));
    }
  } else if (message.kind == kPassError) {
    const PassError error = wire::decode_message<PassError>(message).take();
    add(std::string(name_of(static_cast<Code>(error.code))) + " " + error.worker + ": " + error.message);
  }
  return text;
}

inline Gradient gradient(const std::string& text) { return {.body = Bytes(text.begin(), text.end())}; }

// What the graphs of one context do: each call takes the next answer, and is noted.
struct Script {
  struct Answer {
    std::vector<RemoteSend> reached = {};
    std::vector<LeavingGradient> early = {};  // leave during the run
    RunResult result = {};
    std::string error = {};  // not empty: throws
  };
  std::deque<Answer> answers;
  std::vector<std::string> calls;
  int graphs = 0;  // alive
  std::function<void()> during;
  std::function<void()> after_early;

  Answer next(std::string call) {
    calls.push_back(std::move(call));
    if (during) during();
    Answer answer;
    if (!answers.empty()) {
      answer = std::move(answers.front());
      answers.pop_front();
    }
    if (!answer.error.empty()) throw std::runtime_error(answer.error);
    return answer;
  }
  std::vector<std::string> take_calls() { return std::exchange(calls, {}); }
};

class ScriptGraph final : public PassGraph {
 public:
  explicit ScriptGraph(Script& script) : script_(script) { ++script_.graphs; }
  ~ScriptGraph() override { --script_.graphs; }
  std::vector<RemoteSend> walk(const WalkFrom& from) override {
    std::string call = "walk";
    if (from.roots) call += " roots";
    if (from.all_sends) call += " all";
    for (const SendNumber send : from.sends) call += " " + std::to_string(send.value);
    return script_.next(call).reached;
  }
  RunResult run(bool roots, std::vector<ArrivedGradient> arrived, bool settled, const Leave& leave) override {
    std::string call = settled ? "run" : "run early";
    if (roots) call += " roots";
    for (const ArrivedGradient& one : arrived) {
      call +=
          " " + std::to_string(one.send.value) + "=" + std::string(one.gradient.body.begin(), one.gradient.body.end());
    }
    Script::Answer answer = script_.next(call);
    for (LeavingGradient& leaving : answer.early) leave(std::move(leaving));
    if (script_.after_early) script_.after_early();
    return std::move(answer.result);
  }

 private:
  Script& script_;
};

// Whether it runs under the driver's lock is known to the HandWorker.
class ScriptContext final : public ContextData {
 public:
  ScriptContext(ContextId id, Script& script, std::deque<Closure>& posted) : id(id), script_(script), posted_(posted) {}
  std::shared_ptr<PassGraph> begin_pass(const PassInfo&) override { return std::make_shared<ScriptGraph>(script_); }
  void post(Closure run) override { posted_.push_back(std::move(run)); }

  const ContextId id;

 private:
  Script& script_;
  std::deque<Closure>& posted_;
};

// A worker of rank 0 without threads and network: the test is the clock, the runner, the coordinator, and every other
// worker. The driver's lock is a flag: taking it twice is a failure.
class HandWorker final : public Host {
 public:
  HandWorker() : node_(options(), *this), backwards_(Backwards::make(node_, *this)) {
    locked([&](Step& step) { node_.member().join(step, "address0", kNever, [](Status) {}); });
    locked([&](Step& step) { node_.on_connected(step, boss_); });
    from_boss(cluster_message(kAccepted, Accepted{.self = *worker_info(0), .world_size = 4, .lease_ms = 10000}));
    from_boss(cluster_message(kReady));
    for (uint32_t rank : {1, 2, 3}) connect(rank, others_[rank]);  // before this worker dials by itself
  }
  ~HandWorker() override { stop(); }

  Backwards& backwards() { return static_cast<Backwards&>(*backwards_); }
  Node& node() { return node_; }
  const WorkerPtr& self() const override { return node_.self(); }

  // A context that this worker creates, or one of that rank with that number, carried by a message from `from`.
  ContextId create() { return static_cast<ScriptContext&>(*backwards().create_context(maker())).id; }
  std::shared_ptr<ContextData> enter(uint32_t creator, uint64_t counter, uint32_t from) {
    return backwards().enter_context({worker_info(creator)->id(), counter}, worker_info(creator),
                                     worker_info(from)->id(), maker());
  }
  MakeContext maker() {
    return [this](const ContextId& id) { return std::make_shared<ScriptContext>(id, script, posted); };
  }
  PassId start(const ContextId& context, PassMode mode, Duration timeout = Duration::max()) {
    return backwards().start_pass(
        context, {.mode = mode, .timeout = timeout},
        [this](const PassInfo&) { return std::make_shared<ScriptGraph>(script); },
        [this](Status status) {
          done.push_back(status.ok() ? "ok"
                                     : std::string(name_of(status.failure().code)) + " " + status.failure().worker +
                                           ": " + status.failure().message);
        });
  }
  // Runs what is posted, and what follows from it.
  void run() {
    while (!posted.empty()) {
      Closure closure = std::move(posted.front());
      posted.pop_front();
      closure();
    }
  }

  // A message from that worker. Returns why the connection was closed, if it was.
  template <class T>
  std::string from(uint32_t rank, Kind kind, const T& body) {
    return from(rank, wire::encode_message(kind, body));
  }
  std::string from(uint32_t rank, Message message) {
    Other& other = others_[rank];
    if (other.connection.value == 0) connect(rank, other);
    std::vector<InFrame> frames;
    const Kind kind = message.kind;
    frames.push_back({.header = {.kind = kind, .sequence = ++other.sequence}, .message = std::move(message)});
    closed_.clear();
    locked([&](Step& step) { node_.on_frames(step, other.connection, frames); });
    auto closed = closed_.find(other.connection);
    if (closed == closed_.end()) return "";
    other.connection = {};
    return std::string(name_of(closed->second.code));
  }
  // What was said to that worker since the last time.
  std::vector<std::string> said_to(uint32_t rank) {
    Other& other = others_[rank];
    if (other.connection.value == 0) connect(rank, other);
    std::vector<OutFrame> frames;
    node_.collect(other.connection, 1 << 30, frames);
    std::vector<std::string> said;
    for (const OutFrame& frame : frames) {
      if (frame.message->kind >= kContextReached) said.push_back(text_of_message(*frame.message));
    }
    return said;
  }
  void lose(uint32_t rank) {
    from_boss(cluster_message(kLost, Lost{.number = ++losses_, .worker = *worker_info(rank), .reason = "gone"}));
  }
  void stop() {
    locked([&](Step& step) { node_.stop(step, "it is over"); });
  }
  void advance(Duration time) {
    now_ = after(now_, time);
    locked([&](Step& step) { node_.on_time(step); });
  }

  // Host
  std::shared_ptr<Host> share() override { return {std::shared_ptr<Host>(), this}; }
  const std::string& name() const override { return self()->name; }
  Duration call_timeout() const override { return 60s; }
  std::shared_ptr<const rpc_detail::PeerState> peer_state(WorkerPtr) override { return nullptr; }
  Protocol& protocol(size_t) override { return *backwards_; }
  void start_call(const WorkerPtr&, const Function&, std::shared_ptr<Message>, Duration, Completion,
                  FutureStateBase&) override {}
  void start_kept_call(const WorkerPtr&, const Function&, std::shared_ptr<Message>, Duration, Refused) override {}
  void run_step(void (*run)(void*, Step&), void* argument) override {
    locked([&](Step& step) { run(argument, step); });
  }
  Time now() override { return now_; }
  Executor* executor() override { return nullptr; }
  void* worker() override { return nullptr; }
  bool begin(ServedCall&, Time) override { return false; }
  void respond(ServedCall&, std::shared_ptr<Message>) override {}

  Script script;
  std::deque<Closure> posted;
  std::vector<std::string> done;  // how passes ended

 private:
  struct Other {
    ConnectionId connection;  // 0: none
    uint64_t epoch = 0;
    uint64_t sequence = 0;
  };

  static NodeOptions options() {
    NodeOptions options;
    options.member.rank = 0;
    options.member.coordinator = "boss";
    return options;
  }
  template <class F>
  void locked(F&& with_node) {
    Step step(now_);
    EXPECT_FALSE(std::exchange(locked_, true)) << "the driver's lock was taken twice";
    const int graphs = script.graphs;
    with_node(step);
    EXPECT_EQ(script.graphs, graphs) << "a graph was made or destroyed under the lock";
    locked_ = false;
    for (const Step::Dial& dial : step.dials) {
      if (dial.address == "boss") boss_ = dial.connection;
    }
    for (const Step::Close& close : step.closes) closed_.emplace(close.connection, close.why);
    for (Closure& closure : step.closures) closure();
  }
  void from_boss(const MessagePtr& message) {
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = message->kind}, .message = *message});
    locked([&](Step& step) { node_.on_frames(step, boss_, frames); });
  }
  void connect(uint32_t rank, Other& other) {
    other.connection = {last_connection_ += 2};
    other.epoch += 100;  // ahead of what the link itself has tried
    locked([&](Step& step) { node_.on_accepted(step, other.connection); });
    const MessagePtr hello = cluster_message(
        kHello, Hello{.from = *worker_info(rank), .to_rank = {0}, .to_incarnation = {10}, .epoch = other.epoch});
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = kHello}, .message = *hello});
    locked([&](Step& step) { node_.on_frames(step, other.connection, frames); });
  }

  bool locked_ = false;
  Time now_ = Time{} + 1h;
  Node node_;
  std::unique_ptr<Protocol> backwards_;
  std::map<uint32_t, Other> others_;
  std::map<ConnectionId, Failure> closed_;
  ConnectionId boss_;
  uint64_t last_connection_ = 1;
  uint64_t losses_ = 0;
};

using Texts = std::vector<std::string>;

}  // namespace holdfast::test
