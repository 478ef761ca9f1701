#include <holdfast/rref/owner_table.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/base/check.h>

namespace holdfast {

// A user's destructor is user code: it runs on the executor.
class OwnerTable::DestroyValue final : public Work {
 public:
  DestroyValue(const OwnerTable& table, std::shared_ptr<void> object)
      : destroying_(table.destroying_), destroyed_(table.destroyed_), object_(std::move(object)) {
    ++*destroying_;
  }
  ~DestroyValue() override {
    if (object_) end();  // the worker ends, and it is not run
  }
  void run() override {
    end();
    if (destroyed_) destroyed_();
  }

 private:
  void end() {
    object_.reset();
    --*destroying_;
  }

  const std::shared_ptr<std::atomic<size_t>> destroying_;
  const std::function<void()> destroyed_;
  std::shared_ptr<void> object_;
};

void OwnerTable::destroy(Step& step, KeptValue value) {
  if (!value.object) return;
  if (value.trivial) {
    step.garbage.push_back(std::move(value.object));
  } else {
    step.work.push_back(std::make_shared<DestroyValue>(*this, std::move(value.object)));
  }
}

std::string Origin::text() const {
  if (!caller) return place;
  const FunctionLookup found = find_function(function, signature);
  std::string name = found.function != nullptr ? found.function->name : "a function that is not here";
  constexpr std::string_view kOurs = "holdfast::rref_detail::";
  if (name.starts_with(kOurs)) name.erase(0, kOurs.size());
  return fmt::format("{}, called by {}", name, caller->name);
}

Owned& OwnerTable::at(const RRefId& id) {
  Owned& object = objects_[id];
  object.id = id;
  return object;
}

Owned* OwnerTable::find(const RRefId& id) {
  auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : &found->second;
}

void OwnerTable::begin(Owned& object, Time deadline, Origin origin) {
  HOLDFAST_CHECK(object.state == Owned::State::expected);
  object.state = Owned::State::pending;
  object.origin = std::move(origin);
  if (deadline == kNever) return;
  object.timed = true;
  object.timer = timers_.add(deadline, object.id);
}

void OwnerTable::settle(Step& step, Owned& object, Owned::State state) {
  object.state = state;
  if (std::exchange(object.timed, false)) timers_.remove(object.timer);
  for (std::shared_ptr<Work>& work : object.waiting) step.work.push_back(std::move(work));
  object.waiting.clear();
}

void OwnerTable::set_value(Step& step, Owned& object, KeptValue value) {
  if (object.settled()) return destroy(step, std::move(value));  // it came too late
  object.value = std::move(value);
  settle(step, object, Owned::State::ready);
}

void OwnerTable::set_failure(Step& step, Owned& object, Failure failure) {
  if (object.settled()) return;
  object.failure = std::make_unique<Failure>(std::move(failure));
  settle(step, object, Owned::State::failed);
}

bool OwnerTable::add_fork(Owned& object, const ForkId& fork, const WorkerId& holder) {
  if (!forks_.try_emplace(fork, Fork{&object, holder}).second) return false;
  ++object.forks;
  return true;
}

bool OwnerTable::remove_fork(Step& step, const ForkId& fork, const WorkerId& holder) {
  auto found = forks_.find(fork);
  if (found == forks_.end() || found->second.holder != holder) return false;
  Owned& object = *found->second.object;
  forks_.erase(found);
  --object.forks;
  free_if_unused(step, object);
  return true;
}

void OwnerTable::release(Step& step, Owned& object) {
  HOLDFAST_CHECK(object.handles > 0);
  --object.handles;
  free_if_unused(step, object);
}

void OwnerTable::free_if_unused(Step& step, Owned& object) {
  if (object.forks > 0 || object.handles > 0) return;
  if (object.timed) timers_.remove(object.timer);
  destroy(step, std::move(object.value));
  objects_.erase(object.id);
}

void OwnerTable::on_creator_lost(Step& step, const WorkerId& creator, const std::string& name) {
  std::vector<Owned*> orphans;
  for (auto& [id, object] : objects_) {
    if (object.state == Owned::State::expected && id.creator == creator) orphans.push_back(&object);
  }
  std::sort(orphans.begin(), orphans.end(), [](const Owned* a, const Owned* b) { return a->id < b->id; });
  for (Owned* object : orphans) on_creator_lost(step, *object, name);
}

void OwnerTable::on_creator_lost(Step& step, Owned& object, const std::string& name) {
  if (HOLDFAST_CANARY(lost_creator_ignored)) return;
  set_failure(step, object,
              {.code = Code::worker_lost,
               .message = fmt::format("object {} was never created: {} was lost before it could say how",
                                      text_of(object.id), name),
               .worker = name});
}

void OwnerTable::remove_forks_of(Step& step, const std::unordered_set<WorkerId>& holders) {
  std::vector<std::pair<ForkId, WorkerId>> gone;
  for (const auto& [id, fork] : forks_) {
    if (holders.contains(fork.holder)) gone.emplace_back(id, fork.holder);
  }
  std::sort(gone.begin(), gone.end());  // freeing is visible: the same order in every run
  for (const auto& [id, holder] : gone) remove_fork(step, id, holder);
}

void OwnerTable::on_time(Step& step) {
  RRefId id;
  while (timers_.pop_due(step.now, id)) {
    Owned& object = objects_.at(id);
    object.timed = false;
    set_failure(step, object,
                {.code = Code::timeout,
                 .message = fmt::format("object {} was not there in time: {} took too long", text_of(id),
                                        object.origin.text())});
  }
}

void OwnerTable::stop_waiting(Step& step) {
  for (auto& [id, object] : objects_) {
    for (std::shared_ptr<Work>& work : object.waiting) step.garbage.push_back(std::move(work));
    object.waiting.clear();
  }
}

void OwnerTable::clear(Step& step) {
  std::vector<RRefId> ids;
  for (const auto& [id, object] : objects_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const RRefId& id : ids) {
    Owned& object = objects_.at(id);
    if (object.timed) timers_.remove(object.timer);
    for (std::shared_ptr<Work>& work : object.waiting) step.garbage.push_back(std::move(work));
    destroy(step, std::move(object.value));
  }
  objects_.clear();
  forks_.clear();
}

}  // namespace holdfast
