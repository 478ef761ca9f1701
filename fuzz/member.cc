// A member of a job, and a coordinator that says what it likes. Losses are heard in order, each once; whoever waits for
// an answer gets one, exactly one; and the member's times are never in the past.
//
//   input   events: which (1 byte), what it needs
#include <holdfast/base/check.h>
#include <holdfast/cluster/member.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr size_t kLookupsMax = 64;

class HostileCoordinator final : private MemberEvents {
 public:
  HostileCoordinator()
      : member_({.job = "job", .rank = 3, .world_size = 8, .coordinator = "boss:1"}, *this, ids_, Random(5)) {
    run([&](Step& step) { member_.join(step, "me:1", now_ + std::chrono::minutes(5), [this](Status) { ++joined_; }); });
  }

  void event(Input& in) {
    switch (in.below(11)) {
      case 0:
      case 1:
      case 2:
      case 3: return hear(in);
      case 4: return connect();
      case 5: return close();
      case 6: return wait_until(now_ + std::chrono::milliseconds(1) * (1 << in.below(14)));
      case 7: return lookup(in);
      case 8: return leave_together(in);
      case 9: return settle(in);
      default: return answer_heartbeats();
    }
  }

  void end() {
    run([&](Step& step) { member_.leave(step, "over"); });
    // Every wait has a deadline, and nobody need be answered before it: all of them are over then.
    wait_until(now_ + std::chrono::minutes(10));
    HOLDFAST_CHECK(joined_ == 1);
    HOLDFAST_CHECK(found_ == lookups_);
    HOLDFAST_CHECK(left_ == (leaving_ ? 1 : 0));
  }

 private:
  void hear(Input& in) {
    std::vector<InFrame> frames;
    frames.push_back({.header = {}, .message = in.message()});
    frames[0].header.kind = frames[0].message.kind;
    if (!connected_) return;
    run([&](Step& step) { member_.on_frames(step, frames); });
  }
  void connect() {
    if (connection_.value == 0 || connected_) return;
    connected_ = true;
    run([&](Step& step) { member_.on_connected(step); });
  }
  void close() {
    if (!member_.owns(connection_)) return;
    connection_ = {};
    connected_ = false;
    run([&](Step& step) { member_.on_closed(step, {.code = Code::unavailable, .message = "broken"}); });
  }
  void wait_until(Time until) {
    for (int turns = 0; turns < 100 && member_.next_wakeup() <= until; ++turns) {
      now_ = std::max(now_, member_.next_wakeup());
      run([&](Step& step) { member_.on_time(step); });
      HOLDFAST_CHECK(member_.next_wakeup() > now_);
    }
    now_ = std::max(now_, until);
    run([&](Step& step) { member_.on_time(step); });
  }
  void lookup(Input& in) {
    const uint32_t rank = in.below(10);
    const std::string name = in.below(2) == 1 ? "worker" + std::to_string(rank) : "";
    const Time deadline = now_ + std::chrono::milliseconds(1) * (1 << in.below(14));
    if (lookups_ >= kLookupsMax) return;
    ++lookups_;
    run([&](Step& step) { member_.lookup(step, name, {rank}, deadline, [this](Result<WorkerInfo>) { ++found_; }); });
  }
  void leave_together(Input& in) {
    const uint32_t round = in.below(4);
    if (!leaving_) {
      leaving_ = true;
      run([&](Step& step) {
        member_.leave_together(step, now_ + std::chrono::minutes(1), [this](Status) { ++left_; });
      });
    }
    run([&](Step& step) { member_.report_quiet(step, round, in.below(2) == 1, in.byte()); });
  }
  void settle(Input& in) {
    const uint64_t number = in.byte();
    run([&](Step& step) { member_.report_settled(step, std::min(number, losses_)); });
  }
  // So that the lease does not end every long input.
  void answer_heartbeats() {
    std::vector<OutFrame> said;
    member_.collect(connection_, said);
    for (const OutFrame& frame : said) {
      if (frame.header.kind != kHeartbeat || !connected_) continue;
      const Heartbeat heartbeat = wire::decode_message<Heartbeat>(*frame.message).take();
      const MessagePtr answer = cluster_message(kHeartbeatAck, Counter64{heartbeat.counter});
      std::vector<InFrame> frames;
      frames.push_back({.header = {.kind = kHeartbeatAck}, .message = *answer});
      run([&](Step& step) { member_.on_frames(step, frames); });
    }
  }

  template <class F>
  void run(F&& event) {
    Step step(now_);
    event(step);
    for (const Step::Dial& dial : step.dials) {
      connection_ = dial.connection;
      connected_ = false;
    }
    for (Closure& closure : step.closures) closure();
    for (const Step::Close& each : step.closes) {
      if (each.connection == connection_) close();
    }
  }

  void on_accepted(Step&, const WorkerInfo&) override {}
  void on_worker_lost(Step&, const WorkerInfo&, const std::string&, uint64_t number) override {
    HOLDFAST_CHECK(losses_ == 0 || number == losses_ + 1);  // the first follows what ACCEPTED said
    losses_ = number;
  }
  void on_settled(Step&, uint64_t number) override {
    HOLDFAST_CHECK(number > settled_);
    settled_ = number;
  }
  void on_fenced(Step&, const std::string&) override { HOLDFAST_CHECK(++fenced_ == 1); }
  void on_check(Step& step, uint64_t round) override { member_.report_quiet(step, round, true, 4); }

  ConnectionIds ids_;
  Member member_;
  Time now_ = Time{} + std::chrono::hours(1);
  ConnectionId connection_;
  bool connected_ = false;
  bool leaving_ = false;
  int joined_ = 0;
  int left_ = 0;
  int fenced_ = 0;
  size_t lookups_ = 0;
  size_t found_ = 0;
  uint64_t losses_ = 0;
  uint64_t settled_ = 0;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::HostileCoordinator coordinator;
  while (!in.empty()) coordinator.event(in);
  coordinator.end();
  return 0;
}
