#include <holdfast/sim/world.h>

#include <fmt/format.h>

namespace holdfast::sim {

namespace {

constexpr const char* kCoordinatorAddress = "coordinator";

SimOptions network_options(const WorldOptions& options) {
  SimOptions network = options.network;
  network.seed = options.seed;
  return network;
}

bool is_reliable(const SimOptions& options) {
  return options.loss == 0 && options.duplication == 0 && options.reordering == 0;
}

NodeOptions node_options(const WorldOptions& world, uint32_t rank, uint32_t life) {
  NodeOptions node;
  node.member.name = fmt::format("worker{}", rank);
  node.member.rank = rank;
  node.member.world_size = world.workers;
  node.member.coordinator = kCoordinatorAddress;
  node.link = world.link;
  node.link.reliable = is_reliable(world.network) && !world.faults.tampers();
  node.link.inflight_bytes_max = world.inflight_bytes_max;
  node.seed = (world.seed * 1000003 + rank) * 1009 + life;
  return node;
}

}  // namespace

// ---- the coordinator

class World::SimCoordinator final : private TransportEvents {
 public:
  explicit SimCoordinator(World& world)
      : world_(world),
        coordinator_({.world_size = world.options_.workers, .lease = world.options_.lease}),
        transport_(world.network_.make_transport(kCoordinatorAddress, *this)) {}

  void declare_lost(Rank rank, const std::string& reason) {
    step([&](Step& step) { coordinator_.declare_lost(step, rank, reason); });
  }

 private:
  template <class F>
  void step(F&& with_coordinator) {
    Step step(world_.now());
    with_coordinator(step);
    for (ConnectionId connection : step.trusts) transport_->trust(connection);
    for (ConnectionId connection : step.flushes) transport_->flush(connection);
    for (Step::Close& close : step.closes) transport_->close(close.connection, std::move(close.why));
    set_timer();
  }

  void set_timer() {
    const Time next = coordinator_.next_wakeup();
    if (next >= timer_at_ || world_.taken_over_) return;
    timer_at_ = next;
    world_.network_.schedule(next, [this, next] {
      if (timer_at_ == next) timer_at_ = kNever;
      step([this](Step& step) { coordinator_.on_time(step); });
    });
  }

  void on_accepted(ConnectionId connection) override {
    step([&](Step& step) { coordinator_.on_accepted(step, connection); });
  }
  void on_connected(ConnectionId) override {}
  void on_frames(ConnectionId connection, std::vector<InFrame>& frames) override {
    step([&](Step& step) { coordinator_.on_frames(step, connection, frames); });
  }
  void on_progress(ConnectionId) override {}
  void on_closed(ConnectionId connection, const Failure&) override {
    step([&](Step& step) { coordinator_.on_closed(step, connection); });
  }
  void collect(ConnectionId connection, size_t, std::vector<OutFrame>& out) override {
    coordinator_.collect(connection, out);
  }

  World& world_;
  Coordinator coordinator_;
  std::unique_ptr<Transport> transport_;
  Time timer_at_ = kNever;
};

// ---- a worker

SimWorker::SimWorker(World& world, uint32_t rank, uint32_t life)
    : world_(world),
      rank_(rank),
      address_(life == 0 ? fmt::format("worker{}", rank) : fmt::format("worker{}.{}", rank, life)),
      node_owned_(std::make_unique<Node>(node_options(world.options(), rank, life), *this)),
      node_(*node_owned_),
      repeater_(world.options().repetition > 0
                    ? std::make_unique<Repeater>(node_, *this, world.network(), world.repetition())
                    : nullptr),
      protocols_(make_protocols(node_, *this)),
      transport_(make_transport()) {
  node_
      .inject_faults(world.options().faults,
                     [this] {
                       if (alive_) die();
                     })
      .check();
  step_node([&](Step& step) {
    node_.member().join(step, address_, kNever, [this](Status status) { joined_ = status.ok(); });
  });
}

SimWorker::~SimWorker() {
  // Whoever still waits for a reply may hold references, which look for the protocols when they go.
  node_owned_.reset();
}

Time SimWorker::now() { return world_.now(); }

std::unique_ptr<Transport> SimWorker::make_transport() {
  const FaultOptions& faults = world_.options().faults;
  const auto make = [this](TransportEvents& events) { return world_.network().make_transport(address_, events); };
  if (!faults.any_for_frames()) return make(*this);
  auto faulty = std::make_unique<FaultyTransport>(
      static_cast<TransportEvents&>(*this),
      FaultPlan{.drop = faults.tampers() ? 1.0 : 0.0, .seed = faults.seed * 31 + rank_},
      [this] { return world_.now(); }, make, [this](ConnectionId connection) { return frame_faults(connection); });
  faulty_ = faulty.get();
  return faulty;
}

FaultPlan SimWorker::frame_faults(ConnectionId connection) const {
  const FaultOptions& faults = world_.options().faults;
  const WorkerInfo* peer = node_.links().peer_of(connection);
  if (peer == nullptr || !faults.made_by(node_.self()->name)) return {};
  return faults.towards(peer->name).frame_plan();
}

template <class F>
void SimWorker::step_node(F&& with_node) {
  if (!alive_) return;
  Step step(world_.now());
  with_node(step);
  perform(step);
  set_timer();
}

void SimWorker::set_timer() {
  if (!alive_ || world_.taken_over_) return;
  Time next = node_.next_wakeup();
  if (faulty_ != nullptr) next = std::min(next, faulty_->next_wakeup());
  if (next >= timer_at_) return;
  timer_at_ = next;
  world_.network().schedule(next, [this, next] {
    if (timer_at_ == next) timer_at_ = kNever;
    if (alive_ && faulty_ != nullptr) faulty_->on_time(world_.now());
    step_node([this](Step& step) { node_.on_time(step); });
  });
}

void SimWorker::perform(Step& step) {
  for (Step::Dial& dial : step.dials) transport_->connect(dial.connection, dial.address);
  for (ConnectionId connection : step.trusts) transport_->trust(connection);
  for (ConnectionId connection : step.flushes) transport_->flush(connection);
  for (Step::Close& close : step.closes) transport_->close(close.connection, std::move(close.why));
  for (Step::Completed& completed : step.completed) completed.completion(std::move(completed.result));
  for (Closure& closure : step.closures) closure();
  for (std::shared_ptr<Work>& work : step.work) world_.run_later(rank_, std::move(work));
}

void SimWorker::start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                           Duration timeout, Completion completion, FutureStateBase& state) {
  if (!alive_) return;
  if (!node_.has_room(to->id(), message->total_bytes())) {
    completion(Failure{.code = Code::overloaded, .message = "no room on the link"});
    return;
  }
  step_node([&](Step& step) {
    const Term term{step.now, std::min(after(step.now, timeout), current_ambient().deadline)};
    const CallId call = node_.start_call(step, to, function, std::move(message), term, std::move(completion));
    if (call.value == 0) return;
    step.closures.emplace_back([this, call, state = StateRef<FutureStateBase>(&state)] {
      state->on_cancel([this, call] { this->step_node([&](Step& step) { node_.calls().cancel(step, call); }); });
    });
  });
}

void SimWorker::start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                                Duration timeout, Refused refused) {
  if (!alive_) return;
  std::optional<Failure> failure;
  if (!node_.has_room(to->id(), message->total_bytes())) {
    failure = Failure{.code = Code::overloaded, .message = "no room on the link"};
  } else {
    step_node([&](Step& step) {
      const Time deadline = std::min(after(step.now, timeout), current_ambient().deadline);
      failure = node_.start_kept_call(step, to, function, std::move(message), deadline);
    });
  }
  if (failure) refused(std::move(*failure));
}

void SimWorker::run_step(void (*run)(void*, Step&), void* argument) {
  step_node([&](Step& step) { run(argument, step); });
}

std::shared_ptr<const rpc_detail::PeerState> SimWorker::peer_state(WorkerPtr worker) {
  auto state = std::make_shared<rpc_detail::PeerState>();
  state->host = share();
  state->worker = std::move(worker);
  return state;
}

void SimWorker::shutdown(Duration timeout, Member::Done done) {
  step_node([&](Step& step) { node_.shutdown(step, after(step.now, timeout), std::move(done)); });
}

bool SimWorker::begin(ServedCall& call, Time) {
  bool go = false;
  step_node([&](Step& step) { go = node_.begin(step, call); });
  return go;
}

void SimWorker::respond(ServedCall& call, std::shared_ptr<Message> reply) {
  step_node([&](Step& step) { node_.respond(step, call, std::move(reply)); });
}

void SimWorker::on_accepted(ConnectionId connection) {
  step_node([&](Step& step) { node_.on_accepted(step, connection); });
}
void SimWorker::on_connected(ConnectionId connection) {
  step_node([&](Step& step) { node_.on_connected(step, connection); });
}
void SimWorker::on_frames(ConnectionId connection, std::vector<InFrame>& frames) {
  step_node([&](Step& step) { node_.on_frames(step, connection, frames); });
}
void SimWorker::on_progress(ConnectionId connection) {
  step_node([&](Step& step) { node_.on_progress(step, connection); });
}
void SimWorker::on_closed(ConnectionId connection, const Failure& why) {
  step_node([&](Step& step) { node_.on_closed(step, connection, why); });
}
void SimWorker::collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) {
  if (alive_) node_.collect(connection, bytes_max, out);
}

void SimWorker::die() {
  alive_ = false;
  world_.network().take_down(address_);
}

// ---- the world

World::World(WorldOptions options)
    : options_(std::move(options)),
      random_(options_.seed ^ 0x5eed),
      repetition_{options_.repetition, 0, Random(options_.seed ^ 0x4e9ea7)},
      network_(network_options(options_)) {
  coordinator_ = std::make_unique<SimCoordinator>(*this);
  for (uint32_t rank = 0; rank < options_.workers; ++rank) {
    workers_.emplace_back().push_back(std::make_unique<SimWorker>(*this, rank, 0));
  }
}

World::~World() {
  for (auto& lives : workers_) {
    for (auto& worker : lives) worker->alive_ = false;
  }
  work_.clear();  // calls that never ran still say so to their workers, which no longer care
}

void World::run_later(uint32_t rank, std::shared_ptr<Work> work) {
  const uint64_t id = ++last_work_;
  work_[id] = {rank, std::move(work)};
  if (taken_over_) return;
  const Duration delay(random_.below(static_cast<uint64_t>(options_.handler_delay_max.count()) + 1));
  network_.schedule(now() + delay, [this, id] { run_work(id); });
}

void World::run_work(uint64_t id) {
  auto node = work_.extract(id);
  if (!node.empty()) node.mapped().work->run();
}

void World::take_over() {
  taken_over_ = true;
  network_.take_over();
}

void World::fire_timers(uint32_t rank, Duration ahead) {
  network_.advance(ahead);
  SimWorker& worker = this->worker(rank);
  worker.step_node([&](Step& step) { worker.node_.on_time(step); });
}

bool World::run(const std::function<bool()>& done, Duration limit) {
  const Time until = now() + limit;
  while (!done()) {
    if (network_.next_event_at() > until) return false;
    network_.step();
  }
  return true;
}

bool World::join(Duration limit) {
  return run(
      [this] {
        for (auto& lives : workers_) {
          if (!lives.back()->joined()) return false;
        }
        return true;
      },
      limit);
}

void World::kill(uint32_t rank) {
  worker(rank).die();
  // Otherwise their events come, and find the worker dead.
  if (taken_over_) std::erase_if(work_, [&](const auto& entry) { return entry.second.rank == rank; });
}

SimWorker& World::restart(uint32_t rank) {
  auto& lives = workers_.at(rank);
  lives.push_back(std::make_unique<SimWorker>(*this, rank, static_cast<uint32_t>(lives.size())));
  return *lives.back();
}

void World::declare_lost(uint32_t rank, const std::string& reason) { coordinator_->declare_lost(Rank{rank}, reason); }

void World::cut(uint32_t a, uint32_t b) { network_.cut(worker(a).address_, worker(b).address_); }

void World::partition(uint32_t a, uint32_t b) { network_.partition(worker(a).address_, worker(b).address_); }

void World::cut_from_coordinator(uint32_t rank) { network_.cut(worker(rank).address_, kCoordinatorAddress); }

void World::partition_from_coordinator(uint32_t rank) {
  network_.partition(worker(rank).address_, kCoordinatorAddress);
}

}  // namespace holdfast::sim
