#include <holdfast/rpc/message_faults.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/rpc/function.h>
#include <holdfast/rpc/messages.h>

namespace holdfast {

namespace {

constexpr Duration kRetryFirst = std::chrono::milliseconds(10);
constexpr Duration kRetryMax = std::chrono::seconds(1);

// Calls that failed and were never tried again are forgotten when so many are remembered.
constexpr size_t kFailedCallsMax = 65536;

}  // namespace

MessageFaults::MessageFaults(FaultOptions options, KindNames names)
    : options_(std::move(options)), names_(std::move(names)) {}

MessageFaults::ToPeer::ToPeer(const PeerFaults& faults, const KindNames& names, Random random)
    : kill(faults.kill), random(random) {
  for (const std::string& kind : faults.messages_to_fail) kinds[names.find(kind)->value].fails = faults.num_fail_sends;
  for (const auto& [kind, time] : faults.messages_to_delay) kinds[names.find(kind)->value].delay = time;
}

MessageFaults::ToPeer* MessageFaults::find(const WorkerInfo& self, const WorkerInfo& to) {
  if (!options_.made_by(self.name)) return nullptr;
  auto found = peers_.find(to.id());
  if (found == peers_.end()) {
    const uint64_t seed = options_.seed ^ text_id(self.name) ^ (text_id(to.name) * 3);
    found = peers_.try_emplace(to.id(), options_.towards(to.name), names_, Random(seed)).first;
  }
  return &found->second;
}

std::optional<Failure> MessageFaults::fail_call(const WorkerInfo& self, const WorkerInfo& to, Kind kind,
                                                const std::string& function, uint64_t content) {
  ToPeer* const peer = find(self, to);
  if (peer == nullptr) return std::nullopt;
  const auto faults = peer->kinds.find(kind.value);
  if (faults == peer->kinds.end() || faults->second.fails == 0) return std::nullopt;
  if (peer->failed_calls.size() >= kFailedCallsMax) peer->failed_calls.clear();
  const auto failed = peer->failed_calls.try_emplace(content, 0).first;
  if (failed->second == faults->second.fails) {
    peer->failed_calls.erase(failed);
    return std::nullopt;
  }
  ++failed->second;
  ++count_;
  return Failure{
      .code = Code::fault_injected,
      .message = fmt::format("{} to {} failed by fault injection (messages_to_fail), time {} of {}: {} was not sent",
                             names_.name(kind), to.name, failed->second, faults->second.fails, function),
      .worker = to.name};
}

bool MessageFaults::kills(const WorkerInfo& self, const WorkerInfo& to) {
  ToPeer* const peer = find(self, to);
  if (peer == nullptr || peer->kill <= 0 || !peer->random.chance(peer->kill)) return false;
  ++count_;
  return true;
}

uint64_t MessageFaults::hold(Time now, const WorkerInfo& self, const WorkerPtr& to, const MessagePtr& message,
                             bool windowed) {
  ToPeer* const peer = find(self, *to);
  if (peer == nullptr) return 0;
  Waiting waiting{.at = now, .message = message, .windowed = windowed};
  if (const auto faults = peer->kinds.find(message->kind.value); faults != peer->kinds.end()) {
    if (faults->second.delay > Duration::zero()) {
      ++count_;
      waiting.at = after(now, faults->second.delay);
      if (windowed) waiting.message = delayed_call(*message, faults->second.delay);
    }
    if (!windowed && faults->second.fails > 0) {
      ++count_;
      waiting.fails_left = faults->second.fails - 1;
      waiting.backoff = kRetryFirst;
      waiting.at = after(waiting.at, kRetryFirst);
    }
  }
  if (waiting.at <= now && peer->waiting.empty()) return 0;
  if (windowed) peer->windowed_bytes += message->total_bytes();
  peer->worker = to;
  peer->waiting.push_back(std::move(waiting));
  ++waiting_count_;
  return ++peer->last_number;
}

bool MessageFaults::has_left(const WorkerId& to, uint64_t number) const {
  const auto peer = peers_.find(to);
  return peer == peers_.end() || number + peer->second.waiting.size() <= peer->second.last_number;
}

bool MessageFaults::has_room(const WorkerId& to, uint64_t bytes, uint64_t bytes_max) const {
  const auto peer = peers_.find(to);
  return peer == peers_.end() || peer->second.windowed_bytes == 0 || peer->second.windowed_bytes + bytes <= bytes_max;
}

void MessageFaults::on_time(Step& step, FaultsPost& post) {
  if (waiting_count_ == 0) return;
  for (auto& [id, peer] : peers_) {
    while (!peer.waiting.empty() && peer.waiting.front().at <= step.now) {
      Waiting& first = peer.waiting.front();
      if (first.fails_left > 0) {
        --first.fails_left;
        ++count_;
        first.backoff = std::min(first.backoff * 2, kRetryMax);
        first.at = after(step.now, first.backoff);
        break;
      }
      const Waiting due = std::move(first);
      peer.waiting.pop_front();
      --waiting_count_;
      if (due.windowed) {
        peer.windowed_bytes -= due.message->total_bytes();
        step.room_opened = true;
      }
      post.send_late(step, peer.worker, due.message, due.windowed);
    }
  }
}

Time MessageFaults::next_wakeup() const {
  if (waiting_count_ == 0) return kNever;
  Time next = kNever;
  for (const auto& [id, peer] : peers_) {
    if (!peer.waiting.empty()) next = std::min(next, peer.waiting.front().at);
  }
  return next;
}

void MessageFaults::forget(Step& step, const WorkerId& to) {
  const auto peer = peers_.find(to);
  if (peer == peers_.end()) return;
  waiting_count_ -= peer->second.waiting.size();
  for (Waiting& waiting : peer->second.waiting) step.garbage.push_back(std::move(waiting.message));
  peers_.erase(peer);
}

void MessageFaults::forget_all(Step& step) {
  while (!peers_.empty()) forget(step, peers_.begin()->first);
}

}  // namespace holdfast
