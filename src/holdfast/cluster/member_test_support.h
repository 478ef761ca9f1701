// MemberTest: a member in the hands of a test, which plays the coordinator, the layer above and the clock.
#pragma once

#include <gtest/gtest.h>

#include <holdfast/cluster/member.h>

namespace holdfast {

using namespace std::chrono_literals;

inline const Failure kBroken{.code = Code::unavailable, .message = "connection refused"};

class MemberTest : public testing::Test, public MemberEvents {
 protected:
  MemberTest() {
    options_.job = "job";
    options_.rank = 3;
    options_.world_size = 8;
    options_.coordinator = "boss:1";
    member_.emplace(options_, *this, ids_, Random(5));
  }
  Member& member() { return *member_; }

  // Runs an event and everything that follows from it outside the lock.
  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    for (const Step::Dial& dial : step.dials) connection_ = dial.connection;
    for (Closure& closure : step.closures) closure();
    return step;
  }
  // Moves the clock, stopping at each time the member asks for. All that it wanted closed, dialled and so on.
  Step wait(Duration duration) {
    Step all(now_);
    const Time until = now_ + duration;
    for (int turns = 0; turns < 10000; ++turns) {
      if (member().next_wakeup() > until) break;
      now_ = std::max(now_, member().next_wakeup());
      Step step = run([&](Step& step) { member().on_time(step); });
      all.dials.insert(all.dials.end(), step.dials.begin(), step.dials.end());
      all.closes.insert(all.closes.end(), step.closes.begin(), step.closes.end());
      EXPECT_GT(member().next_wakeup(), now_) << "a time in the past would be a busy loop";
      if (answering_) answer_heartbeats();
    }
    now_ = until;
    return all;
  }
  std::vector<Message> said() {
    std::vector<OutFrame> frames;
    member().collect(connection_, frames);
    std::vector<Message> out;
    for (const OutFrame& frame : frames) out.push_back(*frame.message);
    return out;
  }
  std::vector<Message> said(Kind kind) {
    std::vector<Message> out = said();
    std::erase_if(out, [&](const Message& message) { return message.kind != kind; });
    return out;
  }
  Step hear(const MessagePtr& message) {
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = message->kind}, .message = *message});
    return run([&](Step& step) { member().on_frames(step, frames); });
  }
  template <class T>
  Step hear(Kind kind, const T& value) {
    return hear(cluster_message(kind, value));
  }
  Step break_connection() {
    return run([&](Step& step) { member().on_closed(step, kBroken); });
  }
  void connect() {
    run([&](Step& step) { member().on_connected(step); });
  }
  static Accepted accepted(uint32_t incarnation = 7) {
    return {.self = {.name = "worker3", .rank = {3}, .incarnation = {incarnation}, .address = "me:1"},
            .world_size = 8,
            .lease_ms = 10000,
            .losses = 0};
  }
  void start_join(Time deadline = kNever) {
    run([&](Step& step) {
      member().join(step, "me:1", deadline, [this](Status status) { joined_.push_back(std::move(status)); });
    });
  }
  void join() {
    start_join();
    connect();
    hear(kAccepted, accepted());
    hear(cluster_message(kReady));
    ASSERT_EQ(joined_.size(), 1u);
    ASSERT_TRUE(joined_[0].ok());
    said();
  }
  void answer_heartbeats() {
    for (const Message& message : said(kHeartbeat)) {
      hear(kHeartbeatAck, Counter64{wire::decode_message<Heartbeat>(message).take().counter});
    }
  }
  // Breaks the connection and makes another.
  void reconnect() {
    break_connection();
    wait(1s);
    connect();
    hear(kAccepted, accepted());
  }
  void lookup(const std::string& name, Rank rank, Time deadline) {
    run([&](Step& step) {
      member().lookup(step, name, rank, deadline,
                      [this](Result<WorkerInfo> result) { found_.push_back(std::move(result)); });
    });
  }
  static WorkerInfo worker(uint32_t rank, uint32_t incarnation) {
    return {.name = "worker" + std::to_string(rank), .rank = {rank}, .incarnation = {incarnation}, .address = "x:1"};
  }
  void hear_lost(uint64_t number, uint32_t rank, uint32_t incarnation) {
    hear(kLost, Lost{.number = number, .worker = worker(rank, incarnation), .reason = "gone"});
  }
  void report_settled(uint64_t number) {
    run([&](Step& step) { member().report_settled(step, number); });
  }
  // The heartbeats since the last time.
  std::vector<Heartbeat> said_heartbeats() {
    std::vector<Heartbeat> out;
    for (const Message& message : said(kHeartbeat)) out.push_back(wire::decode_message<Heartbeat>(message).take());
    return out;
  }
  void leave_together(Time deadline) {
    run([&](Step& step) {
      member().leave_together(step, deadline, [this](Status status) { left_.push_back(std::move(status)); });
      member().report_quiet(step, 0, true, 4);
    });
  }

  void on_accepted(Step&, const WorkerInfo& self) override { selves_.push_back(self); }
  void on_worker_lost(Step& step, const WorkerInfo& worker, const std::string&, uint64_t number) override {
    lost_.push_back(worker.rank.value);
    loss_numbers_.push_back(number);
    if (settling_at_once_) member().report_settled(step, number);
  }
  void on_settled(Step&, uint64_t number) override { settled_.push_back(number); }
  void on_fenced(Step&, const std::string& reason) override { fenced_.push_back(reason); }
  void on_check(Step& step, uint64_t round) override { member().report_quiet(step, round, true, 4); }

  MemberOptions options_;
  ConnectionIds ids_;
  std::optional<Member> member_;
  Time now_ = Time{} + 1h;
  ConnectionId connection_;
  bool answering_ = false;
  std::vector<Status> joined_;
  std::vector<Status> left_;
  std::vector<Result<WorkerInfo>> found_;
  std::vector<WorkerInfo> selves_;
  std::vector<uint32_t> lost_;
  std::vector<uint64_t> loss_numbers_;
  bool settling_at_once_ = false;  // nothing waits to be confirmed when a loss is heard
  std::vector<uint64_t> settled_;
  std::vector<std::string> fenced_;
};

}  // namespace holdfast
