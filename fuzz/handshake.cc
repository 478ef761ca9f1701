// Connections that nobody has vouched for: frames of strangers, and of whoever has said HELLO, to the links of one
// worker. Whatever they say, connections end when they are closed, and nothing is left at the end.
//
//   input   flags (1 byte), then events: which (1), what it needs
#include <map>

#include <holdfast/base/check.h>
#include <holdfast/link/links.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr size_t kStrangersMax = 4;
constexpr size_t kOpenMax = 12;

class Strangers final : private LinkReceiver {
 public:
  explicit Strangers(uint8_t flags) : links_(options(flags), *this, ids_, Random(1)) {
    if ((flags & 2) == 0) links_.set_self({.name = "self", .rank = {0}, .incarnation = {1}, .address = "self:1"});
  }

  void event(Input& in) {
    const uint32_t which = in.below(10);
    switch (which) {
      case 0: return accept();
      case 1:
      case 2:
      case 3: return frames(in, which == 3 ? 2 : 1);
      case 4: return close(pick(in));
      case 5: return wait(std::chrono::milliseconds(1) * (1 << in.below(14)));
      case 6: return send(in);
      case 7: return connected(pick(in));
      case 8:
        return run(
            [&](Step& step) { links_.lose(step, peer(in)->id(), {.code = Code::worker_lost, .message = "lost"}); });
      default: return run([&](Step& step) { links_.grant_credit(step, peer(in)->id(), in.byte()); });
    }
  }

  void end() {
    run([&](Step& step) { links_.close_all(step, {.code = Code::shutdown, .message = "over"}); });
    HOLDFAST_CHECK(links_.link_count() == 0 && links_.connection_count() == 0);
    HOLDFAST_CHECK(links_.next_wakeup() == kNever);
    HOLDFAST_CHECK(open_.empty());
  }

 private:
  struct Open {
    bool dialled = false;
    bool connected = false;
    bool trusted = false;
  };

  static LinkOptions options(uint8_t flags) {
    return {.inflight_bytes_max = 4096, .strangers_max = kStrangersMax, .reliable = (flags & 1) == 0};
  }
  static WorkerPtr peer(Input& in) {
    const uint32_t rank = 1 + in.below(3);
    return std::make_shared<const WorkerInfo>(WorkerInfo{.name = "worker" + std::to_string(rank),
                                                         .rank = {rank},
                                                         .incarnation = {rank + 4},
                                                         .address = "peer:" + std::to_string(rank)});
  }
  ConnectionId pick(Input& in) {
    const size_t index = in.byte();
    if (open_.empty()) return {};
    return std::next(open_.begin(), static_cast<ptrdiff_t>(index % open_.size()))->first;
  }

  void accept() {
    if (open_.size() >= kOpenMax) return;
    const ConnectionId connection{last_accepted_ += 2};
    open_[connection] = {.connected = true};
    run([&](Step& step) { links_.on_accepted(step, connection); });
  }
  void frames(Input& in, size_t count) {
    const ConnectionId connection = pick(in);
    std::vector<InFrame> list;
    for (size_t i = 0; i < count; ++i) {
      InFrame frame;
      frame.header.sequence = in.byte();
      frame.header.acknowledged = in.byte();
      frame.header.credit_bytes = in.two_bytes();
      frame.message = in.message();
      frame.header.kind = frame.message.kind;
      list.push_back(std::move(frame));
    }
    auto found = open_.find(connection);
    if (found == open_.end() || !found->second.connected) return;
    // The transport lets nobody send attachments before trust, and then gives frames one at a time.
    if (!found->second.trusted) {
      list.resize(1);
      list[0].message.attachments.clear();
    }
    run([&](Step& step) { links_.on_frames(step, connection, list); });
  }
  void connected(ConnectionId connection) {
    auto found = open_.find(connection);
    if (found == open_.end() || found->second.connected) return;
    found->second.connected = true;
    run([&](Step& step) { links_.on_connected(step, connection); });
  }
  void close(ConnectionId connection) {
    if (open_.erase(connection) == 0) return;
    run([&](Step& step) { links_.on_closed(step, connection, {.code = Code::unavailable, .message = "closed"}); });
    HOLDFAST_CHECK(!links_.owns(connection));
  }
  void wait(Duration time) {
    now_ += time;
    run([&](Step& step) { links_.on_time(step); });
    HOLDFAST_CHECK(links_.next_wakeup() > now_);
  }
  void send(Input& in) {
    const WorkerPtr to = peer(in);
    const bool windowed = in.below(2) == 1;
    auto message = std::make_shared<const Message>(Message{.kind = {96}, .body = Bytes(in.byte(), 0)});
    run([&](Step& step) { links_.send(step, to, std::move(message), windowed); });
  }

  template <class F>
  void run(F&& event) {
    Step step(now_);
    event(step);
    for (const Step::Dial& dial : step.dials) {
      HOLDFAST_CHECK(dial.connection.value > last_dialled_);
      last_dialled_ = dial.connection.value;
      open_[dial.connection] = {.dialled = true};
    }
    for (const ConnectionId connection : step.trusts) {
      if (auto found = open_.find(connection); found != open_.end()) found->second.trusted = true;
    }
    for (const ConnectionId connection : step.flushes) {
      std::vector<OutFrame> out;
      links_.collect(connection, 1 << 16, out);
      if (auto found = open_.find(connection); found == open_.end() || !found->second.connected) {
        HOLDFAST_CHECK(out.empty());
      }
    }
    for (const Step::Close& each : step.closes) close(each.connection);
    HOLDFAST_CHECK(links_.connection_count() <= open_.size());
  }

  Status on_message(Step&, const WorkerPtr&, Message message) override {
    if (message.kind.value % 8 == 7) return Failure{.code = Code::corrupt, .message = "does not decode"};
    return {};
  }
  void on_fenced(Step&, const std::string&) override {}

  ConnectionIds ids_;
  Links links_;
  Time now_ = Time{} + std::chrono::hours(1);
  uint64_t last_accepted_ = 1;
  uint64_t last_dialled_ = 0;
  std::map<ConnectionId, Open> open_;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Strangers strangers(in.byte());
  while (!in.empty()) strangers.event(in);
  strangers.end();
  return 0;
}
