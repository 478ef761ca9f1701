// The coordinator, and clients that say what they like. Its world stays as small as it is, what it answers to those who
// have not joined fits into the frame that they may read, and its times are never in the past.
//
//   input   events: which (1 byte), what it needs
#include <map>

#include <holdfast/base/check.h>
#include <holdfast/cluster/coordinator.h>
#include <holdfast/transport/transport.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr uint32_t kWorldSize = 3;
constexpr size_t kOpenMax = 8;

class Clients {
 public:
  Clients() : coordinator_({.job = "job", .world_size = kWorldSize}) {}

  void event(Input& in) {
    switch (in.below(8)) {
      case 0: return accept();
      case 1:
      case 2:
      case 3:
      case 4: return frame(in);
      case 5: return close(pick(in));
      case 6: return wait(std::chrono::milliseconds(1) * (1 << in.below(16)));
      default: {
        const uint32_t rank = in.below(kWorldSize + 1);
        return run([&](Step& step) { coordinator_.declare_lost(step, {rank}, "its process ended", in.below(2) == 1); });
      }
    }
  }

  // Without connections and after every lease nobody is left.
  void end() {
    while (!open_.empty()) close(open_.begin()->first);
    for (int i = 0; i < 3; ++i) wait(std::chrono::hours(1));
    HOLDFAST_CHECK(coordinator_.member_count() == 0);
  }

 private:
  struct Open {
    bool accepted = false;  // was told ACCEPTED, and so trusts
  };

  ConnectionId pick(Input& in) {
    const size_t index = in.byte();
    if (open_.empty()) return {};
    return std::next(open_.begin(), static_cast<ptrdiff_t>(index % open_.size()))->first;
  }
  void accept() {
    if (open_.size() >= kOpenMax) return;
    const ConnectionId connection{last_connection_ += 2};
    open_[connection] = {};
    run([&](Step& step) { coordinator_.on_accepted(step, connection); });
  }
  void frame(Input& in) {
    const ConnectionId connection = pick(in);
    std::vector<InFrame> frames;
    frames.push_back({.header = {}, .message = in.message()});
    frames[0].header.kind = frames[0].message.kind;
    frames[0].message.attachments.clear();
    if (!open_.contains(connection)) return;
    run([&](Step& step) { coordinator_.on_frames(step, connection, frames); });
  }
  void close(ConnectionId connection) {
    if (open_.erase(connection) == 0) return;
    run([&](Step& step) { coordinator_.on_closed(step, connection); });
  }
  void wait(Duration time) {
    now_ += time;
    run([&](Step& step) { coordinator_.on_time(step); });
    HOLDFAST_CHECK(coordinator_.next_wakeup() > now_);
  }

  template <class F>
  void run(F&& event) {
    Step step(now_);
    event(step);
    HOLDFAST_CHECK(step.dials.empty());
    for (const ConnectionId connection : step.flushes) {
      std::vector<OutFrame> out;
      coordinator_.collect(connection, out);
      auto found = open_.find(connection);
      if (found == open_.end()) continue;
      for (const OutFrame& frame : out) {
        if (frame.header.kind == kAccepted) found->second.accepted = true;
        HOLDFAST_CHECK(found->second.accepted || frame.message->body.size() <= kUntrustedFrameBytesMax);
      }
    }
    for (const Step::Close& each : step.closes) close(each.connection);
    HOLDFAST_CHECK(coordinator_.member_count() <= kWorldSize);
  }

  Coordinator coordinator_;
  Time now_ = Time{} + std::chrono::hours(1);
  uint64_t last_connection_ = 1;
  std::map<ConnectionId, Open> open_;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Clients clients;
  while (!in.empty()) clients.event(in);
  clients.end();
  return 0;
}
