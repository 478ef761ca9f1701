#include <holdfast/sim/explore_run.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include <holdfast/base/check.h>

namespace holdfast::sim {

namespace {

using namespace std::chrono_literals;
using Arrival = SimNetwork::Arrival;

// Timers that a choice fires are due within this; all others are far away.
constexpr Duration kSoon = 2ms;
constexpr Duration kFarAway = std::chrono::hours(24 * 365);

thread_local ExploreRun* current_run = nullptr;

void take_reference(uint32_t rank, uint32_t operation, const RRef<ExploredObject>& reference) {
  current_run->hold(rank, operation, reference);
}
void greet() {}

WorldOptions world_options(const Scenario& scenario) {
  WorldOptions options;
  options.workers = scenario.workers;
  options.lease = kFarAway;
  options.link.heartbeat = options.link.ack_delay = options.link.dial_timeout = kFarAway;
  options.link.dial_backoff_first = options.link.dial_backoff_max = 1ms;
  return options;
}

}  // namespace

ExploredObject::ExploredObject(int64_t number) : number(number), destroyed(current_run->destroyed()) {}

// ---- the beginning and the end

ExploreRun::ExploreRun(const Scenario& scenario)
    : scenario_(scenario),
      world_(std::make_unique<World>(world_options(scenario))),
      progress_(scenario.program.size()),
      holdings_(scenario.workers),
      witnesses_(scenario.workers) {
  HOLDFAST_CHECK(current_run == nullptr);
  current_run = this;
  join();
}

ExploreRun::~ExploreRun() {
  holdings_.clear();
  world_.reset();
  current_run = nullptr;
}

void ExploreRun::join() {
  HOLDFAST_CHECK(world_->join());
  size_t greeted = 0;
  size_t pairs = 0;
  for (uint32_t from = 0; from < scenario_.workers; ++from) {
    for (uint32_t to = from + 1; to < scenario_.workers; ++to, ++pairs) {
      world_->worker(from).peer(world_->worker(to).self()).async<greet>().then([&] { ++greeted; });
    }
  }
  HOLDFAST_CHECK(world_->run([&] { return greeted == pairs; }, 10s));
  world_->take_over();
  for (auto list = world_->network().arrivals(); !list.empty(); list = world_->network().arrivals()) {
    world_->network().deliver(list.front());
  }
  HOLDFAST_CHECK(world_->waiting_work().empty());
}

References& ExploreRun::references(uint32_t rank) const { return References::of(world_->worker(rank)); }

uint32_t ExploreRun::rank_of(const std::string& address) const {
  return address.starts_with("worker") ? static_cast<uint32_t>(address.back() - '0') : scenario_.workers;
}

// ---- choices

bool ExploreRun::happens_at_once(const Arrival& arrival) const {
  if (rank_of(arrival.to) == scenario_.workers) return true;
  if (arrival.what == Arrival::What::closed_here || arrival.what == Arrival::What::finished ||
      arrival.what == Arrival::What::connected) {
    return true;
  }
  if (rank_of(arrival.from) < scenario_.workers) return false;
  return arrival.what != Arrival::What::frame || (kind_of(arrival) != kLost && kind_of(arrival) != kSettled);
}

bool ExploreRun::may_happen(const Operation& operation) const {
  if (!alive(operation.by)) return false;
  switch (operation.what) {
    case Operation::What::create: return true;
    case Operation::What::share:
    case Operation::What::fetch: break;
  }
  return !holdings_[operation.by].empty();
}

std::vector<Choice> ExploreRun::choices() const {
  std::vector<Choice> list;
  for (const Arrival& arrival : world_->network().arrivals()) {
    const uint32_t to = rank_of(arrival.to);
    if (!alive(to)) continue;
    list.push_back({.what = Choice::What::deliver, .rank = to, .arrival = arrival});
    if (scenario_.swallow && !swallowed_ && arrival.what == Arrival::What::frame &&
        kind_of(arrival) == *scenario_.swallow) {
      list.push_back({.what = Choice::What::swallow, .rank = to, .arrival = arrival});
    }
  }
  for (const auto& [id, waiting] : world_->waiting_work()) {
    list.push_back({.what = Choice::What::work, .rank = waiting.rank, .work = id});
  }
  for (uint32_t rank = 0; rank < scenario_.workers; ++rank) {
    if (!alive(rank)) continue;
    if (world_->worker(rank).node().next_wakeup() <= world_->now() + kSoon) {
      list.push_back({.what = Choice::What::timers, .rank = rank});
    }
    for (uint32_t i = 0; i < holdings_[rank].size(); ++i) {
      list.push_back({.what = Choice::What::drop, .rank = rank, .index = i});
    }
  }
  for (uint32_t i = 0; i < scenario_.program.size(); ++i) {
    if (progress_[i].started || !may_happen(scenario_.program[i])) continue;
    if (i > 0 && !progress_[i - 1].started && scenario_.program[i] == scenario_.program[i - 1])
      continue;  // its twin first
    list.push_back({.what = Choice::What::operate, .rank = scenario_.program[i].by, .index = i});
  }
  // First: they are the last to be possible, so what they leave to do must not count on them to be possible later.
  std::vector<Choice> faults = this->faults(/*over=*/list.empty());
  list.insert(list.begin(), faults.begin(), faults.end());
  return list;
}

std::vector<Choice> ExploreRun::faults(bool over) const {
  std::vector<Choice> list;
  for (uint32_t a = 0; a < scenario_.workers && scenario_.cut && !cut_ && !over; ++a) {
    for (uint32_t b = a + 1; b < scenario_.workers; ++b) {
      list.push_back({.what = Choice::What::cut, .rank = a, .index = b});
    }
  }
  if (scenario_.death && !dead_ && !over) list.push_back({.what = Choice::What::kill, .rank = *scenario_.death});
  if (dead_ && !declared_) list.push_back({.what = Choice::What::declare, .rank = *dead_});
  return list;
}

uint32_t ExploreRun::changes(const Choice& choice) const {
  uint32_t here = 1u << choice.rank;
  switch (choice.what) {
    case Choice::What::deliver:
    case Choice::What::swallow:
      // Connections come and go at both ends.
      return choice.arrival.what == Arrival::What::frame ? here : here | 1u << rank_of(choice.arrival.from);
    case Choice::What::cut: return here | 1u << choice.index;
    case Choice::What::declare: return 1u << scenario_.workers;  // the coordinator
    case Choice::What::kill:
      for (const Arrival& arrival : world_->network().under_way()) {  // what it has sent is lost with it
        if (rank_of(arrival.from) == choice.rank) here |= 1u << rank_of(arrival.to);
      }
      break;
    case Choice::What::work:
    case Choice::What::timers:
    case Choice::What::operate:
    case Choice::What::drop: break;
  }
  return here;
}

template <class F>
void ExploreRun::deliver_where(F&& wanted) {
  bool again = true;
  while (again) {
    again = false;
    for (const Arrival& arrival : world_->network().arrivals()) {
      if (!alive(rank_of(arrival.to)) || !wanted(arrival)) continue;
      world_->network().deliver(arrival);
      again = true;
      break;
    }
  }
}

void ExploreRun::take(const Choice& choice) {
  const uint64_t what_happens = identity(choice);
  if (cut_ && may_send(choice)) {
    uint64_t& history = witnesses_[choice.rank].history;
    history = (history ^ what_happens) * 0xd6e8feb86659fd93;
    history ^= history >> 32;
  }
  const std::array<size_t, 2> queued_before = queued_at_cut();
  switch (choice.what) {
    case Choice::What::deliver:
      deliver(choice.arrival);
      if (choice.arrival.what == Arrival::What::dial && !scenario_.handshakes) shake_hands();
      break;
    case Choice::What::swallow:
      swallowed_ = true;
      world_->network().swallow(choice.arrival);
      break;
    case Choice::What::work: world_->run_work(choice.work); break;
    case Choice::What::timers: world_->fire_timers(choice.rank, kSoon); break;
    case Choice::What::operate: operate(choice.index); break;
    case Choice::What::drop: holdings_[choice.rank].erase(holdings_[choice.rank].begin() + choice.index); break;
    case Choice::What::cut:
      cut_ = {choice.rank, choice.index};
      for (const size_t side : {0, 1}) reconnects_at_cut_[side] = link_of_cut(side)->reconnects();
      remember_lost();
      world_->cut(choice.rank, choice.index);
      if (!scenario_.handshakes)
        deliver_where([](const Arrival& arrival) { return arrival.what == Arrival::What::broken; });
      break;
    case Choice::What::kill:
      dead_ = choice.rank;
      world_->kill(choice.rank);
      holdings_[choice.rank].clear();
      break;
    case Choice::What::declare:
      declared_ = true;
      world_->declare_lost(choice.rank, "it was killed");
      break;
  }
  settle();
  if (const std::array<size_t, 2> queued = queued_at_cut(); cut_) {
    if (queued[0] > queued_before[0]) witnesses_[cut_->first].queued = witnesses_[cut_->first].history;
    if (queued[1] > queued_before[1]) witnesses_[cut_->second].queued = witnesses_[cut_->second].history;
  }
  uint64_t nth = 0;
  for (const auto& [id, waiting] : world_->waiting_work()) {
    if (work_identity_.try_emplace(id, what_happens + nth).second) ++nth;
  }
  watch_object();
}

void ExploreRun::deliver(const Arrival& arrival) {
  Witness& witness = witnesses_[rank_of(arrival.to)];
  const Kind kind = arrival.what == Arrival::What::frame ? kind_of(arrival) : Kind{0};
  if (kind == kRRefChildAccept) {
    for (const ForkId& fork : forks_of(arrival)) {
      StateHash hash;
      hash.add(fork);
      witness.child_accepts += hash.first;
    }
  } else if (kind == kLost) {
    witness.lost_heard = true;
    for (const auto& [fork, used] : references(rank_of(arrival.to)).used().references()) {
      if (used.state == Used::State::unconfirmed) witness.before_loss.insert(fork);
    }
  } else if (kind == kSettled) {
    witness.settled_heard = true;
  }
  world_->network().deliver(arrival);
}

void ExploreRun::settle() {
  deliver_where([this](const Arrival& arrival) {
    if (arrival.why != nullptr && arrival.why->code == Code::corrupt) corrupt_ = arrival.why->message;
    return happens_at_once(arrival);
  });
}

void ExploreRun::shake_hands() {
  deliver_where([this](const Arrival& arrival) {
    if (happens_at_once(arrival) || arrival.what == Arrival::What::dial) return true;
    if (arrival.what != Arrival::What::frame) return false;
    const Kind kind = kind_of(arrival);
    return kind == kHello || kind == kWelcome || kind == kRefused;
  });
}

// ---- the program

void ExploreRun::hold(uint32_t rank, uint32_t operation, const RRef<ExploredObject>& reference) {
  progress_[operation].arrived = true;
  holdings_[rank].push_back(reference);
}

template <class T>
void ExploreRun::follow(const Future<T>& future, uint32_t index) {
  future.then([this, index](Future<T> done) {
    ++progress_[index].completions;
    if (done.failed()) progress_[index].failed = true;
  });
}

void ExploreRun::operate(uint32_t index) {
  progress_[index].started = true;
  try {
    start(index);
  } catch (const Error&) {  // the creation of this reference was refused: so is every use of it
    ++progress_[index].completions;
    progress_[index].failed = true;
  }
}

void ExploreRun::start(uint32_t index) {
  const Operation& operation = scenario_.program[index];
  SimWorker& worker = world_->worker(operation.by);
  auto& holdings = holdings_[operation.by];
  const auto peer = [&] { return worker.peer(world_->worker(operation.to).self()).with_timeout(kForever); };
  switch (operation.what) {
    case Operation::What::create:
      holdings.push_back(peer().make<ExploredObject>(int64_t{1}).with_timeout(kForever));
      break;
    case Operation::What::share:
      follow(peer().async<take_reference>(operation.to, index, holdings.front()), index);
      break;
    case Operation::What::fetch: follow(holdings.front().with_timeout(kForever).fetch(), index); break;
  }
}

void ExploreRun::watch_object() {
  if (!alive(scenario_.owner)) return;
  const auto& objects = references(scenario_.owner).owned().objects();
  // One whose creation was lost with its creator never was an object, though those who hold references to it are told
  // so.
  using State = Owned::State;
  const auto any = [&](std::initializer_list<State> states) {
    return std::ranges::any_of(
        objects, [&](const auto& entry) { return std::ranges::find(states, entry.second.state) != states.end(); });
  };
  created_ = created_ || any({State::pending, State::ready});
  if (created_ && !any({State::pending, State::ready, State::failed})) freed_ = true;
  for (const auto& [id, object] : objects) created_ready_ = created_ready_ || object.state == Owned::State::ready;
}

// ---- what must hold

bool ExploreRun::held() const {
  for (uint32_t rank = 0; rank < scenario_.workers; ++rank) {
    if (!alive(rank)) continue;
    if (!holdings_[rank].empty()) return true;
    for (const auto& [fork, used] : references(rank).used().references()) {
      if (used.handles > 0) return true;  // in a message that has arrived, say
    }
  }
  for (size_t i = 0; i < progress_.size(); ++i) {
    const Operation& operation = scenario_.program[i];
    if (operation.what == Operation::What::share && progress_[i].started && !progress_[i].arrived &&
        progress_[i].completions == 0 && alive(operation.by) && alive(operation.to)) {
      return true;
    }
  }
  return false;
}

std::string ExploreRun::wrong() const {
  if (scenario_.expect_never_freed && freed_) return "the object was freed";
  if (alive(scenario_.owner) && (freed_ || destroyed_ > 0) && held()) {
    return "the object was freed while a live worker holds, or is being sent, a reference to it";
  }
  if (destroyed_ > 1) return "the object was destroyed twice";
  if (alive(scenario_.owner) && references(scenario_.owner).owned().objects().size() > 1) return "a second object";
  if (!corrupt_.empty() && !scenario_.swallow) return "a connection was closed as corrupt: " + corrupt_;
  for (const Progress& progress : progress_) {
    if (progress.completions > 1) return "a call was completed twice";
  }
  return {};
}

std::string ExploreRun::wrong_tables(uint32_t rank) const {
  const DebugInfo info = references(rank).debug_info();
  if (info.owned.empty() && info.used.empty() && info.forks == 0 && info.pending_children == 0 &&
      info.pending_users == 0 && info.quarantined == 0 && info.calls_made == 0 && info.calls_served == 0) {
    return {};
  }
  return fmt::format("all references were dropped, but worker{} still has: {}{}", rank, info.text(),
                     info.quarantined > 0 ? "  a lost worker is not settled" : "");
}

std::string ExploreRun::wrong_at_the_end() const {
  if (alive(scenario_.owner)) {
    if (created_ && !freed_) return "no reference is left, but the object was not freed";
    if (created_ && destroyed_ == 0 && !dead_) return "the object was freed, but not destroyed";
  }
  for (size_t i = 0; i < progress_.size(); ++i) {
    const Operation& operation = scenario_.program[i];
    const bool is_call = operation.what == Operation::What::share || operation.what == Operation::What::fetch;
    if (!is_call || !progress_[i].started || !alive(operation.by)) continue;
    const std::string name =
        fmt::format("the {} by worker{}", operation.what == Operation::What::share ? "share" : "fetch", operation.by);
    if (progress_[i].completions == 0) return name + " never completed";
    // With the owner goes the object: even a share may be refused then. A fetch fails too if the creator died too
    // early.
    const bool is_share = operation.what == Operation::What::share;
    const bool must_succeed = alive(scenario_.owner) && (is_share ? alive(operation.to) : !dead_ || created_ready_);
    if (progress_[i].failed && must_succeed) return name + " failed";
  }
  for (uint32_t rank = 0; rank < scenario_.workers; ++rank) {
    if (!alive(rank)) continue;
    if (std::string problem = wrong_tables(rank); !problem.empty()) return problem;
  }
  return {};
}

}  // namespace holdfast::sim
