// What an ExploreRun looks like from outside: the hash of its state, and its choices in words.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/sim/explore_run.h>

namespace holdfast::sim {

using Arrival = SimNetwork::Arrival;

namespace {

bool is_control(Kind kind) { return kind >= kRRefForkRequest && kind <= kRRefUserDelete; }

// Of parts whose order says nothing.
void add_sorted(StateHash& hash, std::vector<StateHash> parts) {
  std::sort(parts.begin(), parts.end());
  hash.add(parts.size());
  for (const StateHash& part : parts) {
    hash.add(part.first);
    hash.add(part.second);
  }
}

KindNames make_names() {
  KindNames names;
  names.add(kLinkKinds);
  names.add(kClusterKinds);
  names.add(kRpcKinds);
  names.add(kRRefKinds);
  return names;
}

std::string text_of_arrival(const Arrival& arrival) {
  static const KindNames names = make_names();
  switch (arrival.what) {
    case Arrival::What::dial: return "a new connection";
    case Arrival::What::connected: return "its connection was accepted";
    case Arrival::What::finished: return "the end of the connection";
    case Arrival::What::broken: return "the connection is broken";
    case Arrival::What::closed_here: return "its connection is closed";
    case Arrival::What::frame: break;
  }
  const Kind kind = kind_of(arrival);
  std::string text = names.name(kind);
  if (is_control(kind)) {
    for (const ForkId& fork : forks_of(arrival)) text += " " + text_of(fork);
  }
  return text;
}

}  // namespace

Kind kind_of(const Arrival& arrival) { return decode_frame_layout(arrival.frame.data()).header.kind; }

std::vector<ForkId> forks_of(const Arrival& arrival) {
  const std::optional<InFrame> frame = decode_frame(arrival.frame);
  HOLDFAST_CHECK(frame);
  if (frame->header.kind != kRRefForkRequest) return wire::decode_message<Forks>(frame->message)->forks;
  std::vector<ForkId> forks;
  const auto requests = wire::decode_message<ForkRequests>(frame->message);
  for (const ForkRequest& request : requests->requests) forks.push_back(request.fork);
  return forks;
}

// ---- hashes

void StateHash::add(uint64_t word) {
  first = (first ^ word) * 0xff51afd7ed558ccd;
  first ^= first >> 32;
  second = (second + word) * 0x9fb21c651e98df25;
  second ^= second >> 29;
}

void StateHash::add(ByteView bytes) {
  add(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    add(word);
  }
}

void StateHash::add(const ForkId& fork) {
  add(uint64_t{fork.maker.rank.value} << 32 | fork.counter);  // one life each: the incarnation says no more
}

void StateHash::add(const Arrival& arrival) {
  add(static_cast<uint64_t>(arrival.what));
  if (arrival.what != Arrival::What::frame) return;
  const Kind kind = kind_of(arrival);
  add(kind.value);
  if (is_control(kind)) {
    for (const ForkId& fork : forks_of(arrival)) add(fork);
  } else if (kind > kSettled) {
    add(arrival.frame.subspan(kFrameHeaderBytes));
  }
}

uint64_t ExploreRun::identity(const Choice& choice) const {
  StateHash hash;
  hash.add(static_cast<uint64_t>(choice.what));
  hash.add(uint64_t{choice.rank} << 32 | choice.index);
  if (choice.what == Choice::What::work) hash.add(work_identity_.at(choice.work));
  if (choice.what == Choice::What::deliver || choice.what == Choice::What::swallow) {
    hash.add(rank_of(choice.arrival.from));
    hash.add(choice.arrival);
  }
  return hash.first;
}

const Link* ExploreRun::link_of_cut(size_t side) const {
  const auto [a, b] = *cut_;
  return world_->worker(side == 0 ? a : b).node().links().find(world_->worker(side == 0 ? b : a).self()->id());
}

bool ExploreRun::cut_is_repaired() const {
  for (const size_t side : {0, 1}) {
    const Link* link = link_of_cut(side);
    if (link == nullptr || !link->up() || link->reconnects() <= reconnects_at_cut_[side]) return false;
  }
  return true;
}

void ExploreRun::remember_lost() {
  for (const Arrival& arrival : world_->network().under_way()) {
    const uint32_t from = rank_of(arrival.from);
    const uint32_t to = rank_of(arrival.to);
    if (std::pair(std::min(from, to), std::max(from, to)) != *cut_) continue;
    lost_in_cut_.add(to);
    lost_in_cut_.add(arrival);
  }
}

std::array<size_t, 2> ExploreRun::queued_at_cut() const {
  std::array<size_t, 2> counts{};
  for (size_t side = 0; side < 2 && cut_ && !cut_is_repaired(); ++side) {
    if (const Link* link = link_of_cut(side)) counts[side] = link->unacked_count();
  }
  return counts;
}

bool ExploreRun::may_send(const Choice& choice) const {
  switch (choice.what) {
    case Choice::What::deliver:
      return choice.arrival.what == Arrival::What::frame && kind_of(choice.arrival) > kSettled;
    case Choice::What::work:
    case Choice::What::operate:
    case Choice::What::drop: return true;
    case Choice::What::timers: return !references(choice.rank).controls().empty();
    case Choice::What::swallow:
    case Choice::What::cut:
    case Choice::What::kill:
    case Choice::What::declare: break;
  }
  return false;
}

void ExploreRun::add_worker(StateHash& hash, uint32_t rank) const {
  const SimWorker& worker = world_->worker(rank);
  const References& references = this->references(rank);
  for (const auto& [id, object] : references.owned().objects()) {  // one object: no order needed
    hash.add(uint64_t{object.forks} << 32 | object.handles << 8 | static_cast<uint64_t>(object.state));
    hash.add(object.waiting.size());
  }
  std::vector<StateHash> parts;
  for (const auto& [id, fork] : references.owned().forks()) {
    StateHash& part = parts.emplace_back();
    part.add(id);
    part.add(fork.holder.rank.value);
  }
  add_sorted(hash, std::move(parts));
  const Witness& witness = witnesses_[rank];
  parts.clear();
  for (const auto& [id, used] : references.used().references()) {
    StateHash& part = parts.emplace_back();
    part.add(id);
    part.add(uint64_t{used.children} << 32 | used.handles << 8 | static_cast<uint64_t>(used.state));
    part.add(used.parent != nullptr);
    part.add(used.state == Used::State::unconfirmed && witness.before_loss.contains(id));
  }
  add_sorted(hash, std::move(parts));
  parts.clear();
  for (const RRef<ExploredObject>& held : holdings_[rank]) parts.emplace_back().add(held.reference()->fork);
  add_sorted(hash, std::move(parts));
  hash.add(witness.child_accepts);
  hash.add(witness.lost_heard << 1 | witness.settled_heard);
  hash.add(references.used().settled());
  hash.add(references.controls().empty());
  hash.add(worker.node().calls().made_count() << 32 | worker.node().calls().served_count());
  for (uint32_t peer = 0; peer < scenario_.workers; ++peer) {
    const Link* link = peer == rank ? nullptr : worker.node().links().find(world_->worker(peer).self()->id());
    hash.add(link == nullptr ? 0 : 1 + link->up() + 2 * (link->connection().value != 0));
  }
}

StateHash ExploreRun::state() const {
  StateHash hash;
  for (uint32_t rank = 0; rank < scenario_.workers; ++rank) {
    hash.add(rank);
    if (alive(rank)) add_worker(hash, rank);
  }
  for (const Progress& progress : progress_) {
    hash.add(uint64_t{progress.started} << 3 | progress.arrived << 2 | progress.failed << 1 |
             (progress.completions > 0));
  }
  hash.add(uint64_t{created_} << 5 | created_ready_ << 4 | freed_ << 3 | (destroyed_ > 0) << 2 | swallowed_ << 1 |
           declared_);
  hash.add(dead_ ? 1 + *dead_ : 0);
  hash.add(cut_ ? 1 + cut_->first * 8 + cut_->second : 0);
  if (cut_ && !cut_is_repaired()) {
    hash.add(lost_in_cut_.first);
    hash.add(witnesses_[cut_->first].queued);
    hash.add(witnesses_[cut_->second].queued);
  }
  std::vector<StateHash> parts;
  for (const auto& [id, waiting] : world_->waiting_work()) {
    parts.emplace_back().add(waiting.rank);
    parts.back().add(work_identity_.at(id));
  }
  add_sorted(hash, std::move(parts));
  // Each direction in its own order; the connections in any.
  parts.clear();
  std::pair<uint64_t, size_t> place{UINT64_MAX, 0};
  for (const Arrival& arrival : world_->network().under_way()) {
    if (!alive(rank_of(arrival.to))) continue;
    if (place != std::pair(arrival.wire, arrival.side)) {
      place = {arrival.wire, arrival.side};
      parts.emplace_back().add(rank_of(arrival.from) << 8 | rank_of(arrival.to));
    }
    parts.back().add(arrival);
  }
  add_sorted(hash, std::move(parts));
  return hash;
}

// ---- words

std::string ExploreRun::text_of(const Choice& choice) const {
  const std::string worker = fmt::format("worker{}", choice.rank);
  switch (choice.what) {
    case Choice::What::deliver:
      return fmt::format("{} hears from {}: {}", worker, choice.arrival.from, text_of_arrival(choice.arrival));
    case Choice::What::swallow:
      return fmt::format("lost on the way from {} to {}: {}", choice.arrival.from, worker,
                         text_of_arrival(choice.arrival));
    case Choice::What::work: return worker + ": a handler runs";
    case Choice::What::timers: return worker + ": timers fire";
    case Choice::What::drop:
      return fmt::format("{} drops reference {}", worker,
                         holdfast::text_of(holdings_[choice.rank][choice.index].reference()->fork));
    case Choice::What::cut: return fmt::format("{} and worker{} are cut off from each other", worker, choice.index);
    case Choice::What::kill: return worker + " dies";
    case Choice::What::declare: return worker + " is declared lost";
    case Choice::What::operate: break;
  }
  const Operation& operation = scenario_.program[choice.index];
  switch (operation.what) {
    case Operation::What::create: return fmt::format("{} makes an object on worker{}", worker, operation.to);
    case Operation::What::share: return fmt::format("{} shares its reference with worker{}", worker, operation.to);
    case Operation::What::fetch: break;
  }
  return worker + " fetches the object";
}

}  // namespace holdfast::sim
