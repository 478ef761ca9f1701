// For the tests of this layer that need no network: what Controls says, and a whole worker that is driven by hand.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/rref/rref.h>

namespace holdfast::test {

using namespace std::chrono_literals;

inline WorkerPtr worker_info(uint32_t rank, uint32_t incarnation = 0) {
  if (incarnation == 0) incarnation = rank + 10;
  return std::make_shared<const WorkerInfo>(WorkerInfo{.name = "worker" + std::to_string(rank),
                                                       .rank = {rank},
                                                       .incarnation = {incarnation},
                                                       .address = "address" + std::to_string(rank)});
}

// What was said to whom, a text for each message: "ACCEPT 1 to worker1: 0.10.5 0.10.6", the number first.
class RecordedPost final : public ControlPost {
 public:
  void send_control(Step&, const WorkerPtr& to, std::shared_ptr<Message> message) override {
    std::string text;
    for (const KindName& kind : kRRefKinds) {
      if (kind.kind == message->kind) text = std::string(kind.name).substr(5);
    }
    if (message->kind == kRRefForkRequest) {
      const ForkRequests requests = wire::decode_message<ForkRequests>(*message).take();
      text += " " + std::to_string(requests.number) + " to " + to->name + ":";
      for (const ForkRequest& request : requests.requests) {
        text += " " + text_of(request.rref) + "/" + text_of(request.fork);
      }
    } else {
      const Forks forks = wire::decode_message<Forks>(*message).take();
      text += " " + std::to_string(forks.number) + " to " + to->name + ":";
      for (const ForkId& fork : forks.forks) text += " " + text_of(fork);
    }
    said.push_back(text);
  }
  std::vector<std::string> take() { return std::exchange(said, {}); }

  std::vector<std::string> said;
};

// A worker of rank 0 without threads and network: the test is the clock, the executor, the coordinator, and every
// other worker, which says what it likes. The driver's lock is a flag: taking it twice is a failure.
class HandWorker final : public Host {
 public:
  // Another worker, as it speaks to this one.
  struct Other {
    WorkerPtr info;
    ConnectionId connection;  // 0: none
    uint64_t epoch = 0;
    uint64_t sequence = 0;
  };

  HandWorker() : node_(options(), *this), references_(References::make(node_, *this)) {
    locked([&](Step& step) { node_.member().join(step, "address0", kNever, [](Status) {}); });
    locked([&](Step& step) { node_.on_connected(step, boss_); });
    from_boss(cluster_message(kAccepted, Accepted{.self = *worker_info(0), .world_size = 4, .lease_ms = 10000}));
    from_boss(cluster_message(kReady));
    for (uint32_t rank : {1, 2, 3}) others_[rank].info = worker_info(rank);
  }
  ~HandWorker() override {
    stop();
    drop_work();
  }

  References& references() { return static_cast<References&>(*references_); }
  Node& node() { return node_; }
  const WorkerPtr& self() const override { return node_.self(); }
  const WorkerPtr& other(uint32_t rank) { return others_.at(rank).info; }
  std::shared_ptr<const rpc_detail::PeerState> peer(const WorkerPtr& worker) {
    auto state = std::make_shared<rpc_detail::PeerState>();
    state->host = share();
    state->worker = worker;
    return state;
  }

  // A message from that worker, next on its link. Returns why the connection was closed, if it was.
  std::optional<Failure> from(uint32_t rank, Message message) {
    Other& other = others_.at(rank);
    if (other.connection.value == 0) connect(other);
    std::vector<InFrame> frames;
    const Kind kind = message.kind;
    frames.push_back({.header = {.kind = kind, .sequence = ++other.sequence}, .message = std::move(message)});
    closed_.clear();
    locked([&](Step& step) { node_.on_frames(step, other.connection, frames); });
    auto closed = closed_.find(other.connection);
    if (closed == closed_.end()) return std::nullopt;
    other.connection = {};
    return closed->second;
  }
  // What was said to that worker since the last time, without what the link itself says.
  std::vector<Message> said_to(uint32_t rank) {
    Other& other = others_.at(rank);
    if (other.connection.value == 0) connect(other);
    advance(1ms);
    std::vector<OutFrame> frames;
    node_.collect(other.connection, 1 << 30, frames);
    std::vector<Message> said;
    for (const OutFrame& frame : frames) {
      if (frame.message->kind >= kCall) said.push_back(*frame.message);
    }
    return said;
  }
  void lose(const WorkerInfo& worker) {
    from_boss(cluster_message(kLost, Lost{.number = ++losses_, .worker = worker, .reason = "gone"}));
  }
  // Everybody who is named in the tables, or ever spoke, is lost and settled: what is left then is left for ever.
  void lose_everybody() {
    for (int round = 0; round < 3; ++round) {
      run_work();
      std::vector<WorkerInfo> named;
      const auto name = [&](const WorkerId& id) {
        if (id != self()->id()) named.push_back(*worker_info(id.rank.value, id.incarnation.value));
      };
      for (const auto& [id, owned] : references().owned().objects()) name(id.creator);
      for (const auto& [id, used] : references().used().references()) name(used.owner->id());
      for (const auto& [rank, other] : others_) name(other.info->id());
      for (const WorkerInfo& worker : named) lose(worker);
      settle();
    }
    run_work();
  }
  void settle() { from_boss(cluster_message(kSettled, Counter64{losses_})); }
  void stop() {
    locked([&](Step& step) { node_.stop(step, "it is over"); });
  }

  void advance(Duration time) {
    now_ = after(now_, time);
    locked([&](Step& step) { node_.on_time(step); });
  }
  // Runs handlers, and what follows from them, until there are none.
  void run_work() {
    while (!work_.empty()) {
      std::shared_ptr<Work> work = std::move(work_.front());
      work_.pop_front();
      work->run();
    }
  }
  // The executor has no thread for them.
  void drop_work() {
    while (!work_.empty()) work_.pop_front();
  }
  size_t work_count() const { return work_.size(); }

  // "" or what the tables hold.
  std::string held() { return empty() ? "" : references().debug_info().text(); }
  bool empty() {
    const OwnerTable& owned = references().owned();
    const UserTable& used = references().used();
    return owned.objects().empty() && owned.forks().empty() && used.references().empty() && used.idle();
  }

  template <class F>
  void locked(F&& with_node) {
    Step step(now_);
    EXPECT_FALSE(std::exchange(locked_, true)) << "the driver's lock was taken twice";
    with_node(step);
    locked_ = false;
    perform(step);
  }

  // Host
  std::shared_ptr<Host> share() override { return {std::shared_ptr<Host>(), this}; }
  const std::string& name() const override { return self()->name; }
  Duration call_timeout() const override { return 60s; }
  std::shared_ptr<const rpc_detail::PeerState> peer_state(WorkerPtr worker) override { return peer(worker); }
  Protocol& protocol(size_t) override { return *references_; }
  void start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message, Duration timeout,
                  Completion completion, FutureStateBase&) override {
    locked([&](Step& step) {
      node_.start_call(step, to, function, std::move(message), {now_, after(now_, timeout)}, std::move(completion));
    });
  }
  void start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                       Duration timeout, Refused refused) override {
    std::optional<Failure> failure;
    locked([&](Step& step) {
      failure = node_.start_kept_call(step, to, function, std::move(message), after(now_, timeout));
    });
    if (failure) refused(std::move(*failure));
  }
  void run_step(void (*run)(void*, Step&), void* argument) override {
    locked([&](Step& step) { run(argument, step); });
  }
  Time now() override { return now_; }
  Executor* executor() override { return nullptr; }
  void* worker() override { return nullptr; }
  bool begin(ServedCall& call, Time) override {
    bool go = false;
    locked([&](Step& step) { go = node_.begin(step, call); });
    return go;
  }
  void respond(ServedCall& call, std::shared_ptr<Message> reply) override {
    locked([&](Step& step) { node_.respond(step, call, std::move(reply)); });
  }

 private:
  static NodeOptions options() {
    NodeOptions options;
    options.member.rank = 0;
    options.member.coordinator = "boss";
    return options;
  }
  void perform(Step& step) {
    for (const Step::Dial& dial : step.dials) {
      if (dial.address == "boss") boss_ = dial.connection;
    }
    for (const Step::Close& close : step.closes) closed_.emplace(close.connection, close.why);
    for (Step::Completed& completed : step.completed) completed.completion(std::move(completed.result));
    for (Closure& closure : step.closures) closure();
    step.garbage.clear();
    for (std::shared_ptr<Work>& work : step.work) work_.push_back(std::move(work));
    step.work.clear();
  }
  void from_boss(const MessagePtr& message) {
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = message->kind}, .message = *message});
    locked([&](Step& step) { node_.on_frames(step, boss_, frames); });
  }
  void connect(Other& other) {
    other.connection = {last_connection_ += 2};
    other.epoch += 100;  // ahead of what the link itself has tried
    locked([&](Step& step) { node_.on_accepted(step, other.connection); });
    const MessagePtr hello = cluster_message(
        kHello, Hello{.from = *other.info, .to_rank = {0}, .to_incarnation = {10}, .epoch = other.epoch});
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = kHello}, .message = *hello});
    locked([&](Step& step) { node_.on_frames(step, other.connection, frames); });
  }

  bool locked_ = false;
  Time now_ = Time{} + 1h;
  Node node_;
  std::unique_ptr<Protocol> references_;
  ConnectionId boss_;
  uint64_t last_connection_ = 1;
  uint64_t losses_ = 0;
  std::map<uint32_t, Other> others_;
  std::map<ConnectionId, Failure> closed_;
  std::deque<std::shared_ptr<Work>> work_;
};

}  // namespace holdfast::test
