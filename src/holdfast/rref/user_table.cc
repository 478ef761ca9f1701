#include <holdfast/rref/user_table.h>

#include <algorithm>
#include <vector>

#include <holdfast/base/canary.h>
#include <holdfast/base/check.h>

namespace holdfast {

Used& UserTable::add(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner, Used::State state) {
  const auto [place, fresh] = references_.try_emplace(fork);
  HOLDFAST_CHECK(fresh);
  Used& used = place->second;
  used.fork = fork;
  used.rref = rref;
  used.state = state;
  used.handles = 1;
  used.owner = owner;
  if (state == Used::State::unconfirmed) ++unconfirmed_;
  return used;
}

Used& UserTable::add_created(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner) {
  return add(fork, rref, owner, Used::State::unconfirmed);
}

Used& UserTable::add_from_owner(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner) {
  return add(fork, rref, owner, Used::State::confirmed);
}

Used& UserTable::add_from_user(Step& step, const ForkId& fork, const RRefId& rref, const WorkerPtr& owner,
                               const WorkerPtr& parent, bool owner_lost) {
  if (owner_lost) return add(fork, rref, owner, Used::State::dead);
  Used& used = add(fork, rref, owner, Used::State::unconfirmed);
  used.parent = parent;
  used.order = next_order_++;
  unconfirmed_by_order_.emplace(used.order, &used);
  controls_.request(step, owner, {.rref = rref, .fork = fork});
  return used;
}

void UserTable::add_child(Used& used, const ForkId& child, const WorkerId& receiver) {
  if (used.state == Used::State::dead) return;  // there is nothing to keep alive
  if (HOLDFAST_CANARY(parent_not_kept)) return;
  const bool fresh = children_.try_emplace(child, Child{&used, receiver}).second;
  HOLDFAST_CHECK(fresh);
  ++used.children;
}

void UserTable::release(Step& step, Used& used) {
  HOLDFAST_CHECK(used.handles > 0);
  --used.handles;
  delete_if_unused(step, used);
}

void UserTable::delete_if_unused(Step& step, Used& used) {
  if (used.handles > 0) return;
  if (used.state == Used::State::unconfirmed && !HOLDFAST_CANARY(delete_overtakes)) return;
  if (used.children > 0) return;
  if (used.state != Used::State::dead) controls_.user_delete(step, used.owner, used.fork);
  if (used.state == Used::State::unconfirmed) confirmed(used, Used::State::dead);  // only with a canary
  references_.erase(used.fork);
}

// It is not unconfirmed any more.
void UserTable::confirmed(Used& used, Used::State state) {
  if (used.state == Used::State::unconfirmed) --unconfirmed_;
  used.state = state;
  if (used.order != 0) unconfirmed_by_order_.erase(std::exchange(used.order, 0));
  follow_settled();
}

void UserTable::on_accept(Step& step, const ForkId& fork, const WorkerId& from) {
  Used* used = find(fork);
  if (used == nullptr || used->state != Used::State::unconfirmed || used->owner->id() != from) return;
  confirmed(*used, Used::State::confirmed);
  if (used->parent) controls_.child_accept(step, used->parent, fork);
  used->parent.reset();
  delete_if_unused(step, *used);
}

void UserTable::on_child_accept(Step& step, const ForkId& child, const WorkerId& from) {
  auto found = children_.find(child);
  if (found != children_.end() && found->second.receiver == from) remove_child(step, child);
}

void UserTable::remove_child(Step& step, const ForkId& child) {
  auto node = children_.extract(child);
  Used& parent = *node.mapped().parent;
  --parent.children;
  delete_if_unused(step, parent);
}

void UserTable::remove_children_of(Step& step, const std::unordered_set<WorkerId>& receivers) {
  std::vector<ForkId> gone;
  for (const auto& [id, child] : children_) {
    if (receivers.contains(child.receiver)) gone.push_back(id);
  }
  std::sort(gone.begin(), gone.end());  // what follows is sent: the same order in every run
  for (const ForkId& id : gone) remove_child(step, id);
}

void UserTable::on_worker_lost(Step& step, const WorkerId& worker) {
  if (HOLDFAST_CANARY(lost_owner_ignored)) return;
  std::vector<Used*> dead;
  for (auto& [fork, used] : references_) {
    if (used.owner->id() == worker) dead.push_back(&used);
    if (used.parent && used.parent->id() == worker) used.parent.reset();
  }
  std::erase_if(children_, [&](const auto& entry) { return entry.second.parent->owner->id() == worker; });
  for (Used* used : dead) {
    used->children = 0;
    used->parent.reset();
    confirmed(*used, Used::State::dead);
    delete_if_unused(step, *used);
  }
}

void UserTable::on_loss(uint64_t number) {
  losses_.push_back({number, next_order_});
  follow_settled();
}

void UserTable::follow_settled() {
  while (!losses_.empty()) {
    const Loss& loss = losses_.front();
    const bool waits = !unconfirmed_by_order_.empty() && unconfirmed_by_order_.begin()->first < loss.before;
    if (HOLDFAST_CANARY(never_settled) || (waits && !HOLDFAST_CANARY(settled_too_early))) return;
    settled_ = loss.number;
    losses_.pop_front();
  }
}

void UserTable::clear() {
  references_.clear();
  children_.clear();
  unconfirmed_by_order_.clear();
  losses_.clear();
  unconfirmed_ = 0;
}

Used* UserTable::find(const ForkId& fork) {
  auto found = references_.find(fork);
  return found == references_.end() ? nullptr : &found->second;
}

}  // namespace holdfast
