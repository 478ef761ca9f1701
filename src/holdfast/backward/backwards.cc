#include <holdfast/backward/backwards.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

namespace {

constexpr size_t kNamesBytesMax = 400;  // of functions that wait, in one report

PassId first_of(const ContextId& context) { return {.context = context, .root = {}, .counter = 0}; }

}  // namespace

Backwards::Backwards(Node& node, Host& host) : node_(node), host_(host), frame_bytes_max_(node.frame_bytes_max()) {}

std::unique_ptr<Protocol> Backwards::make(Node& node, Host& host) {
  auto backwards = std::make_unique<Backwards>(node, host);
  node.add_protocol(kContextReached, kPassEnd, *backwards);
  return backwards;
}

Backwards& Backwards::of(Host& host) {
  return static_cast<Backwards&>(host.protocol(RegisteredProtocol<Backwards>::index()));
}

// ---- contexts

std::shared_ptr<ContextData> Backwards::create_context(const MakeContext& make) {
  std::shared_ptr<ContextData> data;
  host_.step([&](Step&) {
    if (!stopped_) data = contexts_.create(node_.self(), make).data;
  });
  if (!data) {
    throw_failure({.code = Code::shutdown, .message = fmt::format("{} is shut down: no new context", host_.name())});
  }
  return data;
}

std::shared_ptr<ContextData> Backwards::find_context(const ContextId& id) {
  std::shared_ptr<ContextData> data;
  host_.step([&](Step&) {
    if (const Context* context = contexts_.find(id)) data = context->data;
  });
  return data;
}

std::shared_ptr<ContextData> Backwards::enter_context(const ContextId& id, const WorkerPtr& creator,
                                                      const WorkerId& from, const MakeContext& make) {
  std::shared_ptr<ContextData> data;
  host_.step([&](Step& step) {
    if (stopped_ || node_.is_lost(id.creator)) return;
    const Context* context = contexts_.enter(step, id, creator, from, node_.self()->id(), make);
    if (context != nullptr) data = context->data;
  });
  return data;
}

void Backwards::will_send(const ContextId& id, const WorkerPtr& to) {
  host_.step([&](Step& step) {
    if (!stopped_) contexts_.will_send(step, id, to, node_.self()->id());
  });
}

void Backwards::end_context(const ContextId& id) {
  host_.step([&](Step& step) {
    if (stopped_ || !node_.is_self(id.creator)) return;
    drop(step, contexts_.end(step, id),
         {.code = Code::cancelled, .message = fmt::format("context {} has ended", text_of(id))});
  });
}

void Backwards::drop(Step& step, std::unique_ptr<Context> context, const Failure& why) {
  if (!context) return;
  const PassId first = first_of(context->id);
  for (auto at = roots_.lower_bound(first); at != roots_.end() && at->first.context == context->id;) {
    end_pass(step, (at++)->first, why);
  }
  for (auto at = parts_.lower_bound(first); at != parts_.end() && at->first.context == context->id;) {
    end_part(step, (at++)->first);
  }
  step.garbage.push_back(std::shared_ptr<Context>(std::move(context)));
}

// ---- passes that were started here

PassId Backwards::start_pass(const ContextId& context_id, const PassOptions& options, BeginPass begin, PassDone done) {
  PassId id{.context = context_id, .root = {}, .counter = 0};
  std::optional<Failure> refusal;
  host_.step([&](Step& step) {
    Context* context = contexts_.find(context_id);
    if (stopped_) {
      refusal = {.code = Code::shutdown, .message = fmt::format("{} is shut down", host_.name())};
    } else if (node_.member().fenced()) {
      refusal = {.code = Code::worker_lost, .message = "this worker was declared lost", .worker = host_.name()};
    } else if (context == nullptr) {
      refusal = {
          .code = Code::invalid_argument,
          .message = fmt::format("context {} has ended, or never reached {}", text_of(context_id), host_.name())};
    }
    if (refusal) return;
    id.root = node_.self()->id();
    id.counter = ++context->last_pass;
    const Time deadline = after(step.now, options.timeout);
    roots_[id] = std::make_unique<RootPass>(id, options.mode, deadline, std::move(done));
    if (deadline != kNever) deadlines_.emplace(deadline, id);
    auto ended = std::make_shared<std::atomic<bool>>(false);
    auto part = std::make_shared<Part>(
        PassInfo{.id = id, .root = node_.self(), .mode = options.mode, .options = options.options, .ended = ended},
        ended, context->data, std::move(begin));
    parts_[id] = part;
    part->inbox.walk_roots = true;
    part->inbox.run_roots = true;
    schedule(step, part);
  });
  if (refusal) done(std::move(*refusal));
  return id;
}

void Backwards::cancel(const PassId& pass, Failure why) {
  host_.step([&](Step& step) { end_pass(step, pass, std::move(why)); });
}

void Backwards::receive_report(Step& step, RootPass& root, const WorkerPtr& from, const Report& report) {
  std::optional<Failure> failure = root.on_report(from, report);
  for (const SpawnedSend& send : report.spawned) {
    if (failure || !node_.is_lost(send.worker())) continue;
    if (HOLDFAST_CANARY(loss_before_report_ignored)) continue;
    const std::string name = node_.lost_name(send.worker());
    failure = {.code = Code::worker_lost,
               .message = fmt::format("a backward pass needs {}, which is lost", name),
               .worker = name};
  }
  if (failure) return end_pass(step, root.id(), std::move(*failure));
  if (root.settled() && report.status == PartStatus::held) send_marked(step, root.id(), from);
  advance(step, root);
}

void Backwards::advance(Step& step, RootPass& root) {
  if (root.settle()) {
    const PartPtr& own = parts_.at(root.id());
    own->settled = true;
    for (const auto& [worker, reporter] : root.reporters()) {
      if (reporter.status != PartStatus::held) continue;
      if (node_.is_self(worker)) {
        resume(step, own);
      } else {
        send_marked(step, root.id(), reporter.worker);
      }
    }
  }
  if (!root.complete()) return;
  std::optional<Failure> starved = root.mode() == PassMode::fast ? root.starved() : std::nullopt;
  end_pass(step, root.id(), starved ? Status(std::move(*starved)) : Status());
}

void Backwards::send_marked(Step& step, const PassId& pass, const WorkerPtr& to) {
  if (!HOLDFAST_CANARY(marked_not_sent)) send_to(step, to, wire::encode_message(kMarked, PassOnly{pass}));
}

void Backwards::end_pass(Step& step, const PassId& id, Status status) {
  auto node = roots_.extract(id);
  if (node.empty()) return;
  std::shared_ptr<RootPass> root = std::move(node.mapped());
  deadlines_.erase({root->deadline(), root->id()});
  for (const auto& [worker, reporter] : root->reporters()) {
    if (node_.is_self(worker) || HOLDFAST_CANARY(pass_end_not_sent)) continue;
    send_to(step, reporter.worker, wire::encode_message(kPassEnd, PassOnly{root->id()}));
  }
  end_part(step, root->id());
  step.closures.emplace_back(
      [done = root->take_done(), status = std::move(status)]() mutable { done(std::move(status)); });
  step.garbage.push_back(std::move(root));
}

// ---- work

void Backwards::schedule(Step& step, const PartPtr& part) {
  Context* context = contexts_.find(part->pass().id.context);
  if (part->queued || context == nullptr) return;
  part->queued = true;
  context->ready.push_back(part);
  if (context->running) return;
  context->running = true;
  post_run(step, *context);
}

void Backwards::post_run(Step& step, const Context& context) {
  step.closures.emplace_back([this, host = host_.share(), data = context.data, id = context.id]() mutable {
    data->post([this, host = std::move(host), id] { run_next(id); });
  });
}

void Backwards::run_next(const ContextId& id) {
  PartPtr part;
  PartWork work;
  host_.step([&](Step& step) {
    Context* context = contexts_.find(id);
    if (context == nullptr) return;
    while (!part && !context->ready.empty()) {
      part = std::move(context->ready.front());
      context->ready.pop_front();
      if (part->ended()) step.garbage.push_back(std::exchange(part, nullptr));
    }
    if (part) {
      work = part->take_work();
    } else {
      context->running = false;
    }
  });
  if (!part) return;
  PartOutcome outcome = part->perform(std::move(work), [&](LeavingMessage& leaving) {
    host_.step([&](Step& step) { send_leaving(step, *part, leaving); });
  });
  host_.step([&](Step& step) {
    settle(step, part, outcome);
    part->queued = false;
    if (!part->ended() && !part->failed && !part->inbox.empty()) schedule(step, part);
    Context* context = contexts_.find(id);
    if (context == nullptr) return;
    context->running = !context->ready.empty();
    if (context->running) post_run(step, *context);
  });
}

// The pass may end by this: `part` is then no longer in the table.
void Backwards::settle(Step& step, const PartPtr& part, PartOutcome& outcome) {
  if (part->ended()) return;
  if (outcome.failure) return fail_part(step, *part, std::move(*outcome.failure));
  if (outcome.ran) part->set_roots_run();
  const bool fast = part->pass().mode == PassMode::fast;
  Report report{.pass = part->pass().id, .processed = std::move(outcome.processed), .spawned = {}};
  for (const RemoteSend& reached : outcome.reached) {
    report.spawned.push_back(
        {.rank = reached.worker->rank, .incarnation = reached.worker->incarnation, .send = reached.send});
  }
  send_marks(step, *part, outcome);
  for (LeavingMessage& leaving : outcome.leaving) {
    const WorkerInfo& to = *leaving.to;
    if (fast) report.spawned.push_back({.rank = to.rank, .incarnation = to.incarnation, .send = leaving.send});
    if (!send_leaving(step, *part, leaving)) return;
  }
  if (fast) {
    report.waiting = outcome.waiting;
    report.waiting_names = outcome.waiting_names.substr(0, kNamesBytesMax);
    return this->report(step, *part, std::move(report));
  }
  if (outcome.held && part->settled) part->inbox.resume = true;  // it has heard of that meanwhile
  if (outcome.ran && part->complete() && outcome.waiting > 0 && !outcome.held && !HOLDFAST_CANARY(done_too_early)) {
    return fail_part(step, *part,
                     {.code = Code::remote_error,
                      .message = fmt::format("{} functions wait though every gradient has arrived: {}", outcome.waiting,
                                             outcome.waiting_names)});
  }
  if (find_status(*part, outcome, report)) this->report(step, *part, std::move(report));
}

bool Backwards::send_leaving(Step& step, Part& part, LeavingMessage& leaving) {
  if (part.ended() || part.failed) return false;
  const std::shared_ptr<Message> message = std::exchange(leaving.message, nullptr);
  if (!message || (HOLDFAST_CANARY(gradient_not_sent) && leaving.send.value % 8 == 0)) return true;
  const uint64_t bytes = message->total_bytes();
  if (bytes > frame_bytes_max_) {
    fail_part(step, part,
              {.code = Code::invalid_argument,
               .message = fmt::format("a gradient takes {} bytes, over the limit of {} (Options::frame_bytes_max)",
                                      bytes, frame_bytes_max_)});
    return false;
  }
  send_to(step, leaving.to, message);
  return !part.ended() && !part.failed;  // by a word to this worker itself that was wrong
}

void Backwards::send_marks(Step& step, const Part& part, const PartOutcome& outcome) {
  std::set<std::pair<WorkerId, SendNumber>> with_gradient;
  for (const LeavingMessage& leaving : outcome.leaving) with_gradient.emplace(leaving.to->id(), leaving.send);
  std::map<WorkerId, std::pair<WorkerPtr, std::vector<SendNumber>>> by_worker;
  for (const RemoteSend& reached : outcome.reached) {
    if (with_gradient.contains({reached.worker->id(), reached.send})) continue;
    auto& [to, sends] = by_worker[reached.worker->id()];
    to = reached.worker;
    sends.push_back(reached.send);
  }
  for (const auto& [id, marks] : by_worker) {
    const auto& [to, sends] = marks;
    for (size_t at = 0; at < sends.size(); at += kSendsTogether) {
      const auto begin = sends.begin() + static_cast<ptrdiff_t>(at);
      const auto count = static_cast<ptrdiff_t>(std::min(kSendsTogether, sends.size() - at));
      send_to(step, to, wire::encode_message(kMark, Mark{part.header(), {begin, begin + count}}));
    }
  }
}

bool Backwards::find_status(Part& part, const PartOutcome& outcome, Report& report) const {
  if (outcome.held && !part.settled) {
    report.status = PartStatus::held;
  } else if (outcome.ran && ((part.complete() && outcome.waiting == 0) || HOLDFAST_CANARY(done_too_early))) {
    report.status = PartStatus::done;
  }
  const bool is_news = report.status != PartStatus::working && report.status != part.status;
  if (!outcome.walked && !is_news) return false;
  part.status = report.status;
  return true;
}

void Backwards::resume(Step& step, const PartPtr& part) {
  part->inbox.resume = true;
  schedule(step, part);
}

void Backwards::report(Step& step, const Part& part, Report report) {
  if (node_.is_self(part.pass().id.root)) {
    return receive_report(step, *roots_.at(part.pass().id), node_.self(), report);
  }
  if (HOLDFAST_CANARY(report_not_sent) && report.spawned.empty()) return;
  // In pieces if need be. What was processed comes last: until then the account is not even.
  while (report.spawned.size() > kSendsTogether) {
    Report piece{.pass = report.pass, .processed = {}, .spawned = {}};
    const auto from = report.spawned.end() - static_cast<ptrdiff_t>(kSendsTogether);
    piece.spawned.assign(from, report.spawned.end());
    report.spawned.erase(from, report.spawned.end());
    send_to(step, part.pass().root, wire::encode_message(kReport, piece));
  }
  send_to(step, part.pass().root, wire::encode_message(kReport, report));
}

void Backwards::fail_part(Step& step, Part& part, Failure failure) {
  if (part.failed || part.ended()) return;
  part.failed = true;
  step.garbage.push_back(std::make_shared<PartWork>(part.take_work()));
  if (failure.worker.empty()) failure.worker = node_.self()->name;
  if (node_.is_self(part.pass().id.root)) return end_pass(step, part.pass().id, std::move(failure));
  send_error(step, part.pass().root, part.pass().id, failure);
}

void Backwards::end_part(Step& step, const PassId& id) {
  auto found = parts_.find(id);
  if (found == parts_.end()) return;
  found->second->end();
  step.garbage.push_back(std::move(found->second));
  parts_.erase(found);
  if (idle() && node_.owes_quiet()) look_again_at_ = step.now;
}

// ---- losses, time and the end

void Backwards::on_worker_lost(Step& step, const WorkerInfo& worker, uint64_t) {
  for (std::unique_ptr<Context>& context : contexts_.on_worker_lost(worker.id())) {
    const Failure why{.code = Code::worker_lost,
                      .message = fmt::format("context {} has ended: {}, which created it, is lost",
                                             text_of(context->id), worker.name),
                      .worker = worker.name};
    drop(step, std::move(context), why);
  }
  for (auto at = parts_.begin(); at != parts_.end();) {
    const PassId id = (at++)->first;
    if (id.root == worker.id() && !HOLDFAST_CANARY(lost_root_ignored)) end_part(step, id);
  }
  for (auto at = roots_.begin(); at != roots_.end();) {
    const auto& [id, root] = *at++;
    if (!root->involves(worker.id()) || HOLDFAST_CANARY(lost_part_ignored)) continue;
    end_pass(step, id,
             Failure{.code = Code::worker_lost,
                     .message = fmt::format("{} was lost during a backward pass that it took part in", worker.name),
                     .worker = worker.name});
  }
}

void Backwards::on_time(Step& step) {
  look_again_at_ = kNever;
  if (node_.member().fenced()) {
    while (!roots_.empty()) {
      end_pass(step, roots_.begin()->first,
               Failure{.code = Code::worker_lost, .message = "this worker was declared lost", .worker = host_.name()});
    }
  }
  while (!deadlines_.empty() && deadlines_.begin()->first <= step.now) {
    const PassId id = deadlines_.begin()->second;
    end_pass(step, id,
             Failure{.code = Code::timeout,
                     .message = fmt::format("the backward pass {} took longer than its timeout", text_of(id))});
  }
}

Time Backwards::next_wakeup() const {
  if (!roots_.empty() && node_.member().fenced()) return Time{};  // at once
  return std::min(look_again_at_, deadlines_.empty() ? kNever : deadlines_.begin()->first);
}

std::string Backwards::describe() const {
  std::string text;
  for (const auto& [id, part] : parts_) {
    text += fmt::format("{}backward pass {} of {}", text.empty() ? "" : ", ", text_of(id), part->pass().root->name);
  }
  return text;
}

void Backwards::stop(Step& step) {
  stopped_ = true;
  const Failure why{.code = Code::shutdown, .message = fmt::format("{} is shut down", host_.name())};
  for (std::unique_ptr<Context>& context : contexts_.take_all()) drop(step, std::move(context), why);
}

BackwardCounts Backwards::counts() {
  BackwardCounts counts;
  host_.step([&](Step&) {
    counts = {.contexts = contexts_.size(), .passes = roots_.size(), .parts = parts_.size(), .sends_outstanding = 0};
    for (const auto& [id, part] : parts_) counts.sends_outstanding += part->outstanding();
  });
  return counts;
}

uint64_t Backwards::messages_sent() {
  uint64_t messages = 0;
  host_.step([&](Step&) { messages = messages_sent_; });
  return messages;
}

}  // namespace holdfast
