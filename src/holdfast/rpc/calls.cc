#include <holdfast/rpc/calls.h>

#include <algorithm>

#include <fmt/format.h>

namespace holdfast {

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string call_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

}  // namespace

// ---- calls that this worker makes

CallId Calls::start(Step& step, WorkerPtr to, const Function& function, std::shared_ptr<Message> message, Term term,
                    Completion completion) {
  uint32_t slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<uint32_t>(made_.size());
    made_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
  }
  ++made_count_;
  ++activity_;
  Made& made = made_[slot];
  const CallId call{(uint64_t{++made.generation} << 32) | slot};
  made.active = true;
  made.to = std::move(to);
  made.function = &function;
  made.term = term;
  made.completion = std::move(completion);
  made.timer = term.deadline == kNever ? kNoTimer : timers_.add(term.deadline, call);
  stamp_call(*message, call, term.deadline == kNever ? Duration::max() : term.deadline - step.now);
  // A call to oneself may be answered inside send(), but never completes before this returns: `made_` may
  // move, so it is not used after.
  const WorkerPtr target = made.to;
  const uint64_t number = post_.send(step, target, std::move(message), true);
  if (Made* still = find(call)) {
    still->number = number;
    if (number == 0) {
      fail(step, call, lost_failure(*still, "it is not in the job any more"));
      return {};
    }
  }
  return call;
}

bool Calls::start_kept(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message, Time deadline) {
  // No entry in the table; the id only tells it from the other calls that `to` serves for us.
  constexpr uint64_t kKeptBit = uint64_t{1} << 63;
  ++activity_;
  stamp_call(*message, {kKeptBit | ++kept_calls_}, deadline == kNever ? Duration::max() : deadline - step.now);
  return post_.send(step, to, std::move(message), true) != 0;
}

Calls::Made* Calls::find(CallId call) {
  const auto slot = static_cast<uint32_t>(call.value);
  if (slot >= made_.size()) return nullptr;
  Made& made = made_[slot];
  return made.active && made.generation == call.value >> 32 ? &made : nullptr;
}

Completion Calls::remove(CallId call) {
  Made& made = *find(call);
  if (made.timer != kNoTimer) timers_.remove(made.timer);
  Completion completion = std::move(made.completion);
  made.active = false;
  made.to.reset();
  free_slots_.push_back(static_cast<uint32_t>(call.value));
  --made_count_;
  return completion;
}

void Calls::fail(Step& step, CallId call, Failure failure) {
  step.completed.push_back({remove(call), std::move(failure)});
}

void Calls::cancel(Step& step, CallId call) {
  Made* made = find(call);
  if (made == nullptr) return;
  const WorkerPtr to = made->to;
  step.closures.emplace_back([unused = remove(call)] {});  // destroyed outside the lock
  post_.send(step, to, cancel_message(call), false);
}

Failure Calls::lost_failure(const Made& made, const std::string& reason) const {
  const bool maybe_executed = made.number != 0 && post_.maybe_sent(made.to->id(), made.number);
  return {.code = Code::worker_lost,
          .message = fmt::format("{} was lost during a call of {}: {} (the call {})", made.to->name,
                                 made.function->name, reason, maybe_executed ? "may have run" : "did not run"),
          .worker = made.to->name,
          .type = {},
          .maybe_executed = maybe_executed};
}

// What the callee says, in words that make sense to the caller.
Failure Calls::translate(const Made& made, Failure failure) const {
  const std::string& worker = made.to->name;
  if (!failure.worker.empty()) return failure;  // complete as it is: it speaks of something earlier
  switch (failure.code) {
    case Code::no_such_function:
      failure.message = fmt::format(
          "{} has no function {}; name it in that program with HOLDFAST_EXPORT, or start the same program there",
          worker, made.function->text());
      break;
    case Code::invalid_argument:
      failure.message = fmt::format("{} differs between the programs: called as {}, but {} has {}", made.function->name,
                                    made.function->text(), worker, failure.message);
      break;
    case Code::remote_error:
      failure.message =
          fmt::format("{} on {} threw {}: {}", made.function->name, worker, failure.type, failure.message);
      break;
    default: failure.message = fmt::format("{} on {}: {}", made.function->name, worker, failure.message);
  }
  failure.worker = worker;
  return failure;
}

Status Calls::on_reply(Step& step, const WorkerInfo& from, Message&& message) {
  wire::Reader reader(message);
  ReplyHeader header = read_reply_header(reader);
  Made* made = find(header.call);
  if (made != nullptr && made->to->id() != from.id()) made = nullptr;
  if (!reader.ok()) {
    Failure failure{.code = Code::corrupt, .message = fmt::format("a reply from {}: {}", from.name, reader.error())};
    if (made != nullptr) fail(step, header.call, failure);  // there will be no other reply
    return failure;
  }
  if (made == nullptr) return {};  // timed out or cancelled meanwhile
  if (header.failure) {
    fail(step, header.call, translate(*made, std::move(*header.failure)));
  } else {
    step.completed.push_back({remove(header.call), std::move(message)});
  }
  return {};
}

void Calls::on_time(Step& step) {
  CallId call;
  while (timers_.pop_due(step.now, call)) {
    Made& made = *find(call);
    made.timer = kNoTimer;
    const WorkerPtr to = made.to;
    fail(step, call,
         {.code = Code::timeout,
          .message = fmt::format("{} on {} did not answer within {:.3g} s", made.function->name, to->name,
                                 seconds(made.term.deadline - made.term.begun))});
    post_.send(step, to, cancel_message(call), false);
  }
}

// ---- calls that this worker serves

Status Calls::on_call(Step& step, const WorkerPtr& from, Message&& message, std::shared_ptr<Keeper> keeper) {
  wire::Reader reader(message);
  const CallHeader header = read_call_header(reader);
  if (!reader.ok())
    return Failure{.code = Code::corrupt, .message = fmt::format("a call from {}: {}", from->name, reader.error())};
  ++activity_;
  const FunctionLookup found = find_function(header.function, header.signature);
  std::optional<Failure> refusal;
  if (!refusing_.empty()) {
    refusal = Failure{.code = Code::shutdown, .message = refusing_};
  } else if (found.ambiguous) {
    refusal = Failure{.code = Code::invalid_argument,
                      .message = found.known_as + " (two different functions; give them different names)"};
  } else if (found.function == nullptr) {
    refusal = Failure{.code = found.known_as.empty() ? Code::no_such_function : Code::invalid_argument,
                      .message = found.known_as};
  }
  if (refusal) {
    post_.grant_credit(step, from->id(), message.total_bytes());
    if (keeper) {
      step.closures.emplace_back(
          [keeper, failure = std::move(*refusal)]() mutable { keeper->fail("", std::move(failure)); });
    } else {
      post_.send(step, from, failed_reply(header.call, *refusal), false);
    }
    return {};
  }
  const Time deadline = header.timeout_us == 0 || header.timeout_us > INT64_MAX / 1000
                            ? kNever
                            : after(step.now, std::chrono::microseconds(header.timeout_us));
  const auto [place, fresh] = served_.try_emplace({from->id(), header.call}, nullptr);
  if (!fresh) return Failure{.code = Code::corrupt, .message = fmt::format("{} made the same call twice", from->name)};
  const size_t arguments_at = message.body.size() - reader.remaining();
  auto call = std::make_shared<ServedCall>(host_, *found.function, from, header.call, deadline, std::move(message),
                                           arguments_at, std::move(keeper));
  place->second = call.get();
  if (call->quick() && host_.runs_quick_work_now()) {
    // It starts at once. Now and not with the reply: it may block after all, and wait for another call.
    call->credited = true;
    post_.grant_credit(step, from->id(), call->message.total_bytes());
  }
  step.work.push_back(std::move(call));
  return {};
}

Status Calls::on_cancel(Step& step, const WorkerInfo& from, const Message& message) {
  wire::Reader reader(message);
  const CallId id{reader.unsigned_integer()};
  if (!reader.ok())
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("a cancellation from {}: {}", from.name, reader.error())};
  auto found = served_.find({from.id(), id});
  if (found == served_.end()) return {};  // it was answered already
  found->second->cancel(step);
  return {};
}

bool Calls::begin(Step& step, ServedCall& call) {
  if (!call.credited) {
    call.credited = true;
    post_.grant_credit(step, call.caller->id(), call.message.total_bytes());
  }
  if (!call.cancelled && step.now < call.deadline) return true;
  served_.erase({call.caller->id(), call.id});
  return false;
}

void Calls::respond(Step& step, ServedCall& call, std::shared_ptr<Message> reply) {
  if (!call.credited) {
    call.credited = true;
    post_.grant_credit(step, call.caller->id(), call.message.total_bytes());
  }
  ++activity_;
  if (served_.erase({call.caller->id(), call.id}) == 0) return;  // the caller is lost
  if (reply) post_.send(step, call.caller, std::move(reply), false);
}

// ---- the end

void Calls::on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason) {
  for (uint32_t slot = 0; slot < made_.size(); ++slot) {
    Made& made = made_[slot];
    if (!made.active || made.to->id() != worker.id()) continue;
    fail(step, {(uint64_t{made.generation} << 32) | slot}, lost_failure(made, reason));
  }
  cancel_served(step, worker.id());
}

void Calls::cancel_served(Step& step, const std::optional<WorkerId>& caller) {
  std::vector<ServedKey> keys;
  for (const auto& [key, served] : served_) {
    if (!caller || (key.caller == *caller && !served->kept())) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end());  // cancelling may send: the same order in every run
  for (const ServedKey& key : keys) {
    served_.at(key)->cancel(step);
    served_.erase(key);
  }
}

void Calls::fail_all(Step& step, const Failure& why) {
  for (uint32_t slot = 0; slot < made_.size(); ++slot) {
    Made& made = made_[slot];
    if (!made.active) continue;
    Failure failure = why;
    if (failure.code == Code::worker_lost) {
      failure.maybe_executed = made.number != 0 && post_.maybe_sent(made.to->id(), made.number);
    }
    fail(step, {(uint64_t{made.generation} << 32) | slot}, std::move(failure));
  }
  cancel_served(step, std::nullopt);
}

std::string Calls::describe_made() const {
  std::vector<std::string> names;
  for (const Made& made : made_) {
    if (made.active) names.push_back(fmt::format("{} on {}", made.function->name, made.to->name));
  }
  return call_names(names);
}

std::string Calls::describe_served() const {
  std::vector<std::string> names;
  for (const auto& [key, served] : served_) {
    names.push_back(fmt::format("{} for {}", served->function.name, served->caller->name));
  }
  return call_names(names);
}

}  // namespace holdfast
