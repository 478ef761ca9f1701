// Two workers' links against each other. The input is a schedule: who sends, which frame arrives, which is lost,
// doubled or overtaken, which connection breaks, and on whose side first, how time goes. All the time, each message
// must arrive once and in order; and when the network heals, all of them must, and nothing may be left waiting.
//
//   input   flags (1 byte): reliable or not; then events: which (1), what it needs
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>

#include <holdfast/base/check.h>
#include <holdfast/link/links.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr Kind kNumbered{96};
constexpr size_t kBodyBytesMin = 9;  // the number of the message, then 1 if it counts against the window
constexpr uint64_t kWindowBytes = 2048;
constexpr size_t kMessagesMax = 300;  // each way
constexpr int kHealingStepsMax = 20000;

struct Side {
  ConnectionId id;  // 0: the dial has not arrived yet
  bool connected = false;
  bool closed = false;           // on_closed has come
  bool blocked = false;          // the socket takes nothing
  std::deque<InFrame> incoming;  // on their way to this side
};

struct Wire {
  std::array<Side, 2> sides;
  size_t dialler = 0;
};

class Worker final : private LinkReceiver {
 public:
  Worker(size_t number, bool reliable)
      : links(LinkOptions{.inflight_bytes_max = kWindowBytes, .strangers_max = 16, .reliable = reliable}, *this, ids_,
              Random(number + 1)),
        number_(number) {
    links.set_self(*info(number));
  }
  static WorkerPtr info(size_t number) {
    static const std::array<WorkerPtr, 2> infos = {make_info(0), make_info(1)};
    return infos[number];
  }

  void send(Step& step, size_t size, bool windowed) {
    if (sent >= kMessagesMax || (windowed && !links.has_room(peer()->id(), size + kBodyBytesMin))) return;
    Bytes body(size + kBodyBytesMin, windowed ? 1 : 0);
    const uint64_t index = ++sent;
    std::memcpy(body.data(), &index, sizeof(index));
    HOLDFAST_CHECK(links.send(step, peer(),
                              std::make_shared<const Message>(Message{.kind = kNumbered, .body = std::move(body)}),
                              windowed) == index);
  }
  void grant(Step& step) {
    if (credit_owed_bytes == 0) return;
    links.grant_credit(step, peer()->id(), credit_owed_bytes);
    credit_owed_bytes = 0;
  }
  WorkerPtr peer() const { return info(1 - number_); }

  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t credit_owed_bytes = 0;

 private:
  static WorkerPtr make_info(uint32_t rank) {
    return std::make_shared<const WorkerInfo>(WorkerInfo{.name = "worker" + std::to_string(rank),
                                                         .rank = {rank},
                                                         .incarnation = {rank + 7},
                                                         .address = std::to_string(rank)});
  }
  Status on_message(Step&, const WorkerPtr& from, Message message) override;
  void on_fenced(Step&, const std::string&) override { HOLDFAST_CHECK(!"nobody was lost"); }

  ConnectionIds ids_;

 public:
  Links links;

 private:
  const size_t number_;
};

class Pair {
 public:
  explicit Pair(bool reliable)
      : reliable_(reliable), workers_{std::make_unique<Worker>(0, reliable), std::make_unique<Worker>(1, reliable)} {}

  void event(Input& in);
  void heal();

 private:
  template <class F>
  void run(size_t who, F&& event);
  void perform(size_t who, Step& step);
  void collect(Wire& wire, size_t who, size_t bytes_max);
  // The wire, and on which side, of that connection of that worker. Null: it is gone.
  Wire* find(size_t who, ConnectionId id);
  Wire* pick(Input& in);
  void arrive_dial(Wire& wire);
  void deliver(Wire& wire, size_t to);
  void tell_closed(Wire& wire, size_t who);
  // Nobody hears anything over it any more; each side finds out for itself.
  void cut(Wire& wire);
  void spoil(Wire& wire, Input& in);
  void wait(Duration time);
  bool all_done() const;
  bool heal_step();
  void check() const;

  const bool reliable_;
  std::array<std::unique_ptr<Worker>, 2> workers_;
  Time now_ = Time{} + std::chrono::hours(1);
  uint64_t last_accepted_ = 1;
  std::deque<std::unique_ptr<Wire>> wires_;
};

Status Worker::on_message(Step&, const WorkerPtr& from, Message message) {
  HOLDFAST_CHECK(from->id() == peer()->id());
  HOLDFAST_CHECK(message.kind == kNumbered && message.body.size() >= kBodyBytesMin);
  uint64_t index = 0;
  std::memcpy(&index, message.body.data(), sizeof(index));
  HOLDFAST_CHECK(index == received + 1);
  received = index;
  const bool windowed = message.body[8] == 1;
  if (windowed) credit_owed_bytes += message.total_bytes();
  return {};
}

Wire* Pair::find(size_t who, ConnectionId id) {
  for (auto& wire : wires_) {
    if (wire->sides[who].id == id && !wire->sides[who].closed) return wire.get();
  }
  return nullptr;
}

Wire* Pair::pick(Input& in) {
  const size_t index = in.byte();
  return wires_.empty() ? nullptr : wires_[index % wires_.size()].get();
}

template <class F>
void Pair::run(size_t who, F&& event) {
  Step step(now_);
  event(step);
  perform(who, step);
}

void Pair::perform(size_t who, Step& step) {
  for (const Step::Dial& dial : step.dials) {
    auto wire = std::make_unique<Wire>();
    wire->dialler = who;
    wire->sides[who].id = dial.connection;
    wires_.push_back(std::move(wire));
  }
  for (const ConnectionId id : step.flushes) {
    Wire* wire = find(who, id);
    if (wire != nullptr && wire->sides[who].connected && !wire->sides[who].blocked) collect(*wire, who, 1 << 16);
  }
  for (const Step::Close& close : step.closes) {
    if (Wire* wire = find(who, close.connection)) {
      cut(*wire);
      tell_closed(*wire, who);
    }
  }
}

void Pair::collect(Wire& wire, size_t who, size_t bytes_max) {
  std::vector<OutFrame> out;
  workers_[who]->links.collect(wire.sides[who].id, bytes_max, out);
  Side& other = wire.sides[1 - who];
  if (other.closed) return;
  for (const OutFrame& frame : out) other.incoming.push_back({frame.header, *frame.message});
}

void Pair::arrive_dial(Wire& wire) {
  Side& from = wire.sides[wire.dialler];
  Side& to = wire.sides[1 - wire.dialler];
  if (from.connected || from.closed || to.id.value != 0 || to.closed) return;
  to.id = {last_accepted_ += 2};
  to.connected = from.connected = true;
  run(1 - wire.dialler, [&](Step& step) { workers_[1 - wire.dialler]->links.on_accepted(step, to.id); });
  if (from.closed) return;
  run(wire.dialler, [&](Step& step) { workers_[wire.dialler]->links.on_connected(step, from.id); });
}

void Pair::deliver(Wire& wire, size_t to) {
  Side& side = wire.sides[to];
  if (side.closed || side.incoming.empty()) return;
  std::vector<InFrame> frames;
  frames.push_back(std::move(side.incoming.front()));
  side.incoming.pop_front();
  run(to, [&](Step& step) { workers_[to]->links.on_frames(step, side.id, frames); });
}

void Pair::tell_closed(Wire& wire, size_t who) {
  Side& side = wire.sides[who];
  if (side.closed) return;
  side.closed = true;
  side.incoming.clear();
  if (side.id.value == 0) return;
  run(who, [&](Step& step) {
    workers_[who]->links.on_closed(step, side.id, {.code = Code::unavailable, .message = "it broke"});
  });
  HOLDFAST_CHECK(!workers_[who]->links.owns(side.id));
}

void Pair::cut(Wire& wire) {
  for (Side& side : wire.sides) {
    side.incoming.clear();
    side.blocked = true;
  }
}

// Only what an unreliable transport may do.
void Pair::spoil(Wire& wire, Input& in) {
  const uint8_t how = in.byte();
  std::deque<InFrame>& frames = wire.sides[how & 1].incoming;
  if (reliable_ || frames.empty()) return;
  switch (how / 2 % 3) {
    case 0: frames.pop_front(); break;
    case 1: frames.push_back(frames.front()); break;
    default: std::swap(frames.front(), frames.back()); break;
  }
}

void Pair::wait(Duration time) {
  now_ += time;
  for (const size_t who : {0, 1}) {
    run(who, [&](Step& step) { workers_[who]->links.on_time(step); });
    HOLDFAST_CHECK(workers_[who]->links.next_wakeup() > now_);
  }
}

void Pair::event(Input& in) {
  const uint8_t which = in.byte();
  const size_t who = which & 1;
  switch (which / 2 % 12) {
    case 0:
    case 1: {
      const size_t size = in.byte();
      run(who, [&](Step& step) { workers_[who]->send(step, size, which / 2 % 12 == 1); });
      break;
    }
    case 2:
      if (Wire* wire = pick(in)) arrive_dial(*wire);
      break;
    case 3:
    case 4:
      if (Wire* wire = pick(in)) {
        for (uint32_t n = 1 + (which / 2 % 12 == 4 ? in.below(16) : 0); n > 0; --n) deliver(*wire, who);
      }
      break;
    case 5:
      if (Wire* wire = pick(in)) spoil(*wire, in);
      break;
    case 6:
      if (Wire* wire = pick(in)) cut(*wire);
      break;
    case 7:
      if (Wire* wire = pick(in)) {
        cut(*wire);
        tell_closed(*wire, who);
      }
      break;
    case 8: wait(std::chrono::microseconds(100) * (1 << in.below(18))); break;
    case 9: run(who, [&](Step& step) { workers_[who]->grant(step); }); break;
    case 10:
      if (Wire* wire = pick(in)) wire->sides[who].blocked = true;
      break;
    default:
      // The socket takes a little.
      if (Wire* wire = pick(in); wire != nullptr && wire->sides[who].connected && !wire->sides[who].closed) {
        collect(*wire, who, in.byte());
      }
      break;
  }
  std::erase_if(wires_, [](const auto& wire) { return wire->sides[0].closed && wire->sides[1].closed; });
  check();
}

void Pair::check() const {
  for (const size_t who : {0, 1}) {
    const Worker& worker = *workers_[who];
    HOLDFAST_CHECK(worker.received <= workers_[1 - who]->sent);
    const auto open = static_cast<size_t>(std::count_if(wires_.begin(), wires_.end(), [&](const auto& wire) {
      return !wire->sides[who].closed && wire->sides[who].id.value != 0;
    }));
    HOLDFAST_CHECK(worker.links.connection_count() <= open);
    HOLDFAST_CHECK(worker.links.link_count() <= 1);
    if (const Link* link = worker.links.find(worker.peer()->id())) {
      HOLDFAST_CHECK(link->unacked_count() <= worker.sent);
      // What the peer has not got cannot have been acknowledged.
      HOLDFAST_CHECK(link->unacked_count() >= worker.sent - workers_[1 - who]->received);
    }
  }
}

bool Pair::all_done() const {
  for (const size_t who : {0, 1}) {
    const Worker& worker = *workers_[who];
    if (worker.received != workers_[1 - who]->sent || !worker.links.settled()) return false;
    const Link* link = worker.links.find(worker.peer()->id());
    if (link != nullptr && link->waits()) return false;
  }
  return true;
}

// One thing that a network that works does. False: there is nothing to do but wait.
bool Pair::heal_step() {
  for (size_t i = 0; i < wires_.size(); ++i) {
    Wire& wire = *wires_[i];
    for (const size_t who : {0, 1}) {
      Side& side = wire.sides[who];
      if (side.closed) continue;
      if (!side.incoming.empty()) return deliver(wire, who), true;
      if (wire.sides[1 - who].closed) return tell_closed(wire, who), true;
    }
    if (!wire.sides[wire.dialler].connected && !wire.sides[wire.dialler].closed) return arrive_dial(wire), true;
  }
  return false;
}

void Pair::heal() {
  // What was cut, or full, ends; both sides learn of it.
  for (size_t i = 0; i < wires_.size(); ++i) {
    Wire& wire = *wires_[i];
    if (!wire.sides[0].blocked && !wire.sides[1].blocked) continue;
    cut(wire);
    tell_closed(wire, 0);
    tell_closed(wire, 1);
  }
  for (int steps = 0; !all_done(); ++steps) {
    HOLDFAST_CHECK(steps < kHealingStepsMax);
    std::erase_if(wires_, [](const auto& wire) { return wire->sides[0].closed && wire->sides[1].closed; });
    if (heal_step()) continue;
    for (const size_t who : {0, 1}) run(who, [&](Step& step) { workers_[who]->grant(step); });
    const Time next = std::min(workers_[0]->links.next_wakeup(), workers_[1]->links.next_wakeup());
    HOLDFAST_CHECK(next != kNever || all_done() || heal_step());
    if (next != kNever && next > now_) wait(next - now_);
  }
  check();
}

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Pair pair((in.byte() & 1) == 0);
  while (!in.empty()) pair.event(in);
  pair.heal();
  return 0;
}
