#include <holdfast/backward/contexts.h>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

Context& Contexts::create(const WorkerPtr& self, const MakeContext& make) {
  const ContextId id{self->id(), ++last_created_};
  created_.insert(id.counter);
  auto context = std::make_unique<Context>();
  context->id = id;
  context->creator = self;
  context->data = make(id);
  return *(contexts_[id] = std::move(context));
}

Context* Contexts::find(const ContextId& id) {
  auto found = contexts_.find(id);
  return found == contexts_.end() ? nullptr : found->second.get();
}

bool Contexts::has_ended(const ContextId& id, const WorkerId& self) const {
  if (contexts_.contains(id)) return false;
  if (id.creator == self) return id.counter <= last_created_;
  if (HOLDFAST_CANARY(context_comes_back)) return false;
  auto ended = ended_.find(id.creator);
  return ended != ended_.end() && ended->second.contains(id.counter);
}

Context* Contexts::enter(Step& step, const ContextId& id, const WorkerPtr& creator, const WorkerId& from,
                         const WorkerId& self, const MakeContext& make) {
  if (Context* context = find(id)) return context;
  if (id.creator == self || creator->id() != id.creator || has_ended(id, self)) return nullptr;
  auto context = std::make_unique<Context>();
  context->id = id;
  context->creator = creator;
  context->data = make(id);
  if (from != id.creator && !HOLDFAST_CANARY(reached_not_told)) {
    post_.send_to(step, creator, wire::encode_message(kContextReached, ContextReached{id}));
  }
  return (contexts_[id] = std::move(context)).get();
}

void Contexts::will_send(Step& step, const ContextId& id, const WorkerPtr& to, const WorkerId& self) {
  if (id.creator != self || to->id() == self) return;  // the receiver will tell the creator
  if (Context* context = find(id)) {
    context->reached.try_emplace(to->id(), to);
  } else {
    send_cleanup(step, id, to);
  }
}

void Contexts::send_cleanup(Step& step, const ContextId& id, const WorkerPtr& to) {
  const uint64_t all_ended_below = created_.empty() ? last_created_ + 1 : *created_.begin();
  post_.send_to(step, to, wire::encode_message(kCleanupContext, CleanupContext{id, all_ended_below}));
}

std::unique_ptr<Context> Contexts::take(const ContextId& id) {
  auto node = contexts_.extract(id);
  return node.empty() ? nullptr : std::move(node.mapped());
}

std::unique_ptr<Context> Contexts::end(Step& step, const ContextId& id) {
  std::unique_ptr<Context> context = take(id);
  if (!context) return nullptr;
  created_.erase(id.counter);
  for (const auto& [worker, info] : context->reached) send_cleanup(step, id, info);
  return context;
}

Status Contexts::on_reached(Step& step, const WorkerPtr& from, const WorkerId& self, const ContextReached& reached) {
  const ContextId& id = reached.context;
  if (id.creator != self || id.counter == 0 || id.counter > last_created_) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("{} says that it has met context {}, which was not created here", from->name,
                                          text_of(id))};
  }
  if (Context* context = find(id)) {
    context->reached.try_emplace(from->id(), from);
  } else if (!HOLDFAST_CANARY(late_reach_not_answered)) {
    send_cleanup(step, id, from);
  }
  return {};
}

std::unique_ptr<Context> Contexts::on_cleanup(const CleanupContext& cleanup) {
  IntervalSet& ended = ended_[cleanup.context.creator];
  ended.insert(cleanup.context.counter);
  if (cleanup.all_ended_below > 1) ended.insert(1, cleanup.all_ended_below - 1);
  return take(cleanup.context);
}

std::vector<std::unique_ptr<Context>> Contexts::on_worker_lost(const WorkerId& worker) {
  std::vector<ContextId> of_worker;
  for (auto& [id, context] : contexts_) {
    context->reached.erase(worker);
    context->ended_passes.erase(worker);
    if (id.creator == worker) of_worker.push_back(id);
  }
  std::vector<std::unique_ptr<Context>> taken;
  if (!HOLDFAST_CANARY(lost_creator_keeps_contexts)) {
    for (const ContextId& id : of_worker) taken.push_back(take(id));
  }
  ended_.erase(worker);  // from now on it is known to be lost, and so are its contexts
  return taken;
}

std::vector<std::unique_ptr<Context>> Contexts::take_all() {
  std::vector<std::unique_ptr<Context>> taken;
  for (auto& [id, context] : contexts_) taken.push_back(std::move(context));
  contexts_.clear();
  created_.clear();
  ended_.clear();
  return taken;
}

size_t Contexts::remembered() const {
  size_t count = 0;
  for (const auto& [creator, ended] : ended_) count += ended.interval_count();
  return count;
}

}  // namespace holdfast
