#include <holdfast/cluster/member.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

// A lease from the wire: long enough for arithmetic to be safe, and never zero.
constexpr uint64_t kLeaseMsMax = uint64_t{1000} * 3600 * 24 * 365;
constexpr size_t kUnansweredHeartbeatsMax = 16;

// Completions run outside the lock.
template <class Callback, class Value>
void later(Step& step, Callback callback, Value value) {
  step.closures.emplace_back(
      [callback = std::move(callback), value = std::move(value)]() mutable { callback(std::move(value)); });
}

}  // namespace

Member::Member(MemberOptions options, MemberEvents& events, ConnectionIds& ids, Random random)
    : options_(std::move(options)), events_(events), ids_(ids), random_(random), instance_(random_.next()) {}

// ---- the connection

void Member::dial(Step& step) {
  connection_ = ids_.next();
  connected_ = greeted_ = false;
  dial_at_ = kNever;
  attempt_until_ = after(step.now, options_.dial_timeout);
  step.dials.push_back({connection_, options_.coordinator});
}

void Member::send(Step& step, MessagePtr message) {
  if (connected_) outbox_.send(step, connection_, std::move(message));
}

void Member::on_connected(Step& step) {
  connected_ = true;
  join_sent_ = step.now;
  say_join(step);
}

void Member::say_join(Step& step) {
  repeat_at_ = after(step.now, options_.repeat_every);
  send(step, cluster_message(kJoin, Join{.job = options_.job,
                                         .name = options_.name,
                                         .rank = options_.rank,
                                         .world_size = options_.world_size,
                                         .address = address_,
                                         .instance = instance_,
                                         .frame_bytes_max = options_.frame_bytes_max,
                                         .losses_seen = losses_seen_,
                                         .devices = devices_}));
}

void Member::on_closed(Step& step, const Failure& why) {
  outbox_.forget(connection_);
  connection_ = {};
  connected_ = greeted_ = false;
  attempt_until_ = heartbeat_at_ = kNever;
  heartbeats_.clear();  // their answers were lost with the connection
  last_problem_ = why.message;
  if (state_ == State::fenced || state_ == State::left) return;
  const uint32_t doublings = std::min(failed_attempts_++, 10u);
  const Duration wait = std::min<Duration>(std::chrono::milliseconds(5) * (1u << doublings), options_.dial_backoff_max);
  dial_at_ = after(step.now, wait / 2 + Duration(random_.below(static_cast<uint64_t>(wait.count()))));
}

void Member::on_frames(Step& step, std::vector<InFrame>& frames) {
  for (InFrame& frame : frames) {
    if (connection_.value == 0) return;
    if (Status status = on_frame(step, frame); !status.ok()) {
      step.closes.push_back({connection_, status.failure()});
      return;
    }
  }
}

Status Member::on_frame(Step& step, InFrame& frame) {
  const auto with = [&]<class T>(T, auto&& handle) -> Status {
    Result<T> decoded = wire::decode_message<T>(frame.message);
    if (!decoded) return std::move(decoded.failure());
    handle(std::move(*decoded));
    return {};
  };
  const Kind kind = frame.message.kind;
  if (kind == kAccepted) return with(Accepted(), [&](Accepted accepted) { on_accepted(step, accepted); });
  if (kind == kJoinRefused) {
    return with(Text(), [&](Text refused) { on_join_refused(step, refused.text); });
  }
  if (kind == kWaiting) return with(Text(), [&](Text text) { waiting_ = std::move(text.text); });
  if (kind == kReady) {
    if (frame.message.body.empty()) return on_ready(step, {});
    const Result<Ready> ready = wire::decode_message<Ready>(frame.message);
    return ready ? on_ready(step, *ready) : Status(ready.failure());
  }
  if (kind == kHeartbeatAck) {
    return with(Counter64(), [&](Counter64 counter) {
      auto sent = heartbeats_.find(counter.value);
      if (sent == heartbeats_.end()) return;
      lease_until_ = after(sent->second, lease_);
      heartbeats_.erase(heartbeats_.begin(), std::next(sent));
    });
  }
  if (kind == kFound) return with(Found(), [&](Found found) { on_found(step, std::move(found)); });
  if (kind == kLost) return with(Lost(), [&](Lost lost) { on_lost(step, lost); });
  if (kind == kSettled) return with(Counter64(), [&](Counter64 number) { on_settled(step, number.value); });
  if (kind == kFenced) return with(Text(), [&](Text text) { become_fenced(step, text.text); });
  if (kind == kCheck) return with(Counter64(), [&](Counter64 round) { events_.on_check(step, round.value); });
  if (kind == kReleased) {
    if (!left_) return {};
    finish_leave(step, {});
    leave(step, "shut down together with all others");
    return {};
  }
  return Failure{.code = Code::corrupt, .message = fmt::format("the coordinator sent kind {}", kind.value)};
}

// ---- joining and staying

void Member::join(Step& step, std::string address, Time deadline, Done done) {
  HOLDFAST_CHECK(state_ == State::outside);
  state_ = State::joining;
  address_ = std::move(address);
  join_deadline_ = deadline;
  joined_ = std::move(done);
  dial(step);
}

void Member::set_devices(DeviceFacts devices) {
  HOLDFAST_CHECK(state_ == State::outside);
  devices_ = std::move(devices);
}

Status Member::on_ready(Step& step, const Ready& ready) {
  for (const PeerDeviceMap& each : ready.maps) {
    if (!is_known(each.map)) return Failure{.code = Code::corrupt, .message = "a device map with an unknown device"};
  }
  if (state_ != State::accepted && state_ != State::ready) return {};  // it overtook ACCEPTED
  if (!ready.maps.empty()) events_.on_device_maps(step, ready.maps);
  if (state_ == State::ready) return {};  // repeated, or about a newcomer
  state_ = State::ready;
  finish_join(step, {});
  return {};
}

void Member::finish_join(Step& step, Status status) {
  join_deadline_ = kNever;
  if (joined_) later(step, std::move(joined_), std::move(status));
}

void Member::on_accepted(Step& step, const Accepted& accepted) {
  if (state_ == State::fenced || state_ == State::left) return;
  if (state_ != State::joining && accepted.self.id() != self_.id()) {
    return become_fenced(step, "the coordinator does not remember this worker; was it started anew?");
  }
  failed_attempts_ = 0;
  step.trusts.push_back(connection_);
  lease_ = std::chrono::milliseconds(std::clamp<uint64_t>(accepted.lease_ms, 1, kLeaseMsMax));
  if (state_ == State::joining) {
    // The lease counts from when JOIN was sent, so that it ends here before it ends there. If half of it is over, one
    // lost heartbeat might be the end: ask again.
    if (step.now >= after(join_sent_, lease_ / 2)) {
      join_sent_ = step.now;
      return say_join(step);
    }
    lease_until_ = after(join_sent_, lease_);
  }
  attempt_until_ = kNever;
  if (!std::exchange(greeted_, true)) heartbeat_at_ = step.now;  // at once: little of the lease may be left
  if (state_ == State::joining) {
    state_ = State::accepted;
    self_ = accepted.self;
    learn(self_);
    losses_seen_ = accepted.losses;
    losses_settled_ = accepted.losses_settled;
    events_.on_accepted(step, self_);
  }
  // Said before the connection broke, and perhaps not heard.
  for (auto& [request, pending] : lookups_) send(step, cluster_message(kLookup, pending.lookup));
  if (last_quiet_) send(step, cluster_message(kQuiet, *last_quiet_));
}

void Member::say_heartbeat(Step& step) {
  heartbeat_at_ = after(step.now, lease_ / 4);
  ++heartbeat_;
  // The oldest must stay, for it tells how long the coordinator has been silent.
  if (heartbeats_.size() < kUnansweredHeartbeatsMax) heartbeats_[heartbeat_] = step.now;
  send(step, cluster_message(kHeartbeat, Heartbeat{.counter = heartbeat_,
                                                   .losses_seen = losses_seen_,
                                                   .losses_settled = losses_settled_,
                                                   .settled_heard = settled_heard_}));
}

void Member::on_join_refused(Step& step, const std::string& text) {
  if (state_ == State::ready) return become_fenced(step, text);
  if (state_ != State::joining && state_ != State::accepted) return;
  state_ = State::left;
  stop_timers();
  const Failure failure{.code = Code::invalid_argument,
                        .message = fmt::format("{} (coordinator at {})", text, options_.coordinator)};
  step.closes.push_back({connection_, failure});
  finish_join(step, failure);
  finish_leave(step, failure);
  fail_lookups(step, failure);
}

bool Member::awaits_answer() const {
  return state_ == State::joining || state_ == State::accepted || !greeted_ || !lookups_.empty() || left_;
}

// Messages are not numbered, and a connection may break: what was not answered is said again.
void Member::repeat(Step& step) {
  repeat_at_ = after(step.now, options_.repeat_every);
  if (state_ == State::fenced || state_ == State::left) return;
  if (state_ == State::joining || state_ == State::accepted || !greeted_) return say_join(step);
  for (auto& [request, pending] : lookups_) send(step, cluster_message(kLookup, pending.lookup));
  if (left_ && last_quiet_) send(step, cluster_message(kQuiet, *last_quiet_));
}

void Member::become_fenced(Step& step, const std::string& reason) {
  if (state_ == State::fenced || state_ == State::left) return;
  state_ = State::fenced;
  fenced_reason_ = reason;
  stop_timers();
  const Failure failure = over();
  finish_join(step, failure);
  finish_leave(step, failure);
  fail_lookups(step, failure);
  if (connection_.value != 0) step.closes.push_back({connection_, failure});
  events_.on_fenced(step, reason);
}

// ---- others

const WorkerInfo* Member::known(Rank rank) const {
  auto found = known_.find(rank);
  return found == known_.end() ? nullptr : &found->second;
}

void Member::lookup(Step& step, const std::string& name, Rank rank, Time deadline, FoundWorker found) {
  if (state_ == State::fenced || state_ == State::left) {
    return later(step, std::move(found), Result<WorkerInfo>(over()));
  }
  const WorkerInfo* info = name.empty() ? known(rank) : nullptr;
  if (!name.empty()) {
    const auto named =
        std::find_if(known_.begin(), known_.end(), [&](const auto& entry) { return entry.second.name == name; });
    if (named != known_.end()) info = &named->second;
  }
  if (info != nullptr) return later(step, std::move(found), Result<WorkerInfo>(*info));
  const uint64_t request = ++last_lookup_;
  PendingLookup& pending = lookups_[request];
  pending.lookup = {.request = request, .name = name, .rank = rank.value};
  pending.deadline = deadline;
  pending.found = std::move(found);
  if (repeat_at_ <= step.now) repeat_at_ = after(step.now, options_.repeat_every);
  send(step, cluster_message(kLookup, pending.lookup));
}

void Member::on_found(Step& step, Found found) {
  auto pending = lookups_.find(found.request);
  if (pending == lookups_.end()) return;  // answered already, or too late
  if (found.worker) {
    auto lost = lost_.find(found.worker->rank);
    // It died while the answer was on its way, and we have heard that first: the repeated question is answered anew.
    if (lost != lost_.end() && found.worker->incarnation <= lost->second) return;
  }
  FoundWorker callback = std::move(pending->second.found);
  lookups_.erase(pending);
  if (found.worker) {
    learn(*found.worker);
    later(step, std::move(callback), Result<WorkerInfo>(std::move(*found.worker)));
  } else {
    later(step, std::move(callback),
          Result<WorkerInfo>(Failure{.code = Code::invalid_argument, .message = std::move(found.text)}));
  }
}

void Member::on_lost(Step& step, const Lost& lost) {
  if (state_ == State::joining) return;         // it overtook ACCEPTED, which says where counting starts
  if (lost.number != losses_seen_ + 1) return;  // heard before; or one in between was missed: all are said again
  losses_seen_ = lost.number;
  Incarnation& newest = lost_[lost.worker.rank];
  newest = std::max(newest, lost.worker.incarnation);
  auto known = known_.find(lost.worker.rank);
  if (known != known_.end() && known->second.incarnation <= lost.worker.incarnation) known_.erase(known);
  events_.on_worker_lost(step, lost.worker, lost.reason, lost.number);
}

void Member::report_settled(Step& step, uint64_t number) {
  if (state_ == State::fenced || state_ == State::left) return;
  HOLDFAST_CHECK(number <= losses_seen_);  // what came before a loss is known only when the loss is
  if (number <= losses_settled_) return;
  losses_settled_ = number;
  if (greeted_) say_heartbeat(step);  // else the next ACCEPTED causes one
}

void Member::on_settled(Step& step, uint64_t number) {
  if (state_ != State::accepted && state_ != State::ready) return;
  // Heard before; or LOST was missed: heartbeats tell the coordinator, which then says both again, in order.
  if (number <= settled_heard_ || number > losses_seen_) return;
  settled_heard_ = number;
  events_.on_settled(step, number);
}

// ---- leaving

void Member::leave_together(Step& step, Time deadline, Done done) {
  if (state_ == State::fenced || state_ == State::left) {
    return later(step, std::move(done), Status(over()));
  }
  left_ = std::move(done);
  leave_deadline_ = deadline;
  waiting_.clear();
}

void Member::report_quiet(Step& step, uint64_t round, bool quiet, uint64_t activity) {
  last_quiet_ = Quiet{.round = round, .quiet = quiet, .activity = activity};
  send(step, cluster_message(kQuiet, *last_quiet_));
}

void Member::leave(Step& step, const std::string& text) {
  if (state_ == State::fenced || state_ == State::left) return;
  state_ = State::left;
  stop_timers();
  send(step, cluster_message(kLeave, Text{text}));
  const Failure failure = over();
  finish_join(step, failure);
  finish_leave(step, failure);
  fail_lookups(step, failure);
}

void Member::stop_timers() {
  heartbeat_at_ = lease_until_ = dial_at_ = attempt_until_ = kNever;
  heartbeats_.clear();
}

Time Member::silent_at() const { return heartbeats_.empty() ? kNever : after(heartbeats_.begin()->second, lease_ / 2); }

Failure Member::over() const {
  if (state_ == State::left) {
    return {.code = Code::shutdown, .message = fmt::format("this worker ({}) has left the job", self_.name)};
  }
  return {.code = Code::worker_lost,
          .message = fmt::format("this worker ({}) was declared lost: {}", self_.name, fenced_reason_),
          .worker = self_.name};
}

void Member::fail_lookups(Step& step, const Failure& failure) {
  for (auto& [request, pending] : lookups_) later(step, std::move(pending.found), Result<WorkerInfo>(failure));
  lookups_.clear();
}

void Member::finish_leave(Step& step, Status status) {
  leave_deadline_ = kNever;
  if (left_) later(step, std::move(left_), std::move(status));
}

// ---- time

void Member::on_time(Step& step) {
  if (step.now >= dial_at_) dial(step);
  if (step.now >= attempt_until_) {
    attempt_until_ = kNever;
    step.closes.push_back({connection_, {.code = Code::timeout, .message = "it did not answer"}});
  }
  if (awaits_answer() && connected_ && step.now >= repeat_at_) repeat(step);
  if (step.now >= silent_at()) {
    heartbeats_.clear();
    heartbeat_at_ = kNever;
    step.closes.push_back({connection_, {.code = Code::timeout, .message = "it does not answer heartbeats"}});
  }
  if (step.now >= heartbeat_at_) say_heartbeat(step);
  if (step.now >= join_deadline_) {
    const std::string who = state_ == State::joining
                                ? fmt::format("the coordinator at {} cannot be reached ({})", options_.coordinator,
                                              last_problem_.empty() ? "no answer" : last_problem_)
                                : (waiting_.empty() ? std::string("the world is not complete") : waiting_);
    finish_join(step, Failure{.code = Code::timeout, .message = fmt::format("joining timed out: {}", who)});
  }
  if (step.now >= leave_deadline_) {
    finish_leave(step, Failure{.code = Code::timeout,
                               .message = waiting_.empty() ? "no answer from the coordinator" : waiting_});
  }
  for (auto at = lookups_.begin(); at != lookups_.end();) {
    if (step.now < at->second.deadline) {
      ++at;
      continue;
    }
    later(step, std::move(at->second.found),
          Result<WorkerInfo>(
              Failure{.code = Code::timeout,
                      .message = fmt::format("the coordinator at {} did not answer in time", options_.coordinator)}));
    at = lookups_.erase(at);
  }
  if (step.now >= lease_until_) {
    become_fenced(step, fmt::format("the coordinator at {} could not be reached for {:g} s (the lease){}",
                                    options_.coordinator, std::chrono::duration<double>(lease_).count(),
                                    last_problem_.empty() ? "" : ": " + last_problem_));
  }
}

Time Member::next_wakeup() const {
  // In pairs and not as a list: every call asks for it, and this takes a third of the instructions.
  Time next = std::min(silent_at(), awaits_answer() && connected_ ? repeat_at_ : kNever);
  next = std::min(std::min(next, dial_at_), std::min(attempt_until_, heartbeat_at_));
  next = std::min(std::min(next, lease_until_), std::min(join_deadline_, leave_deadline_));
  for (const auto& [request, pending] : lookups_) next = std::min(next, pending.deadline);
  return next;
}

}  // namespace holdfast
