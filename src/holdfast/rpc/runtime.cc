#include <holdfast/rpc/runtime.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

// Replies of handlers that run inline go out together, at the latest after this many.
constexpr size_t kRepliesTogether = 16;

// With more than so many calls under way, a new call's message waits for company: until so many are together,
// until somebody waits for a result, or for so long.
constexpr size_t kEagerCalls = 8;
constexpr size_t kCallsTogether = 16;
constexpr Duration kCompanyWait = std::chrono::microseconds(100);

// What this thread is doing for some runtime.
struct ThreadState {
  Step* polling = nullptr;                  // events of the transport go here
  bool overslept = false;                   // one of them wants to be woken earlier than the thread in poll() knows
  const Runtime* running_inline = nullptr;  // a handler of that runtime runs here, on the network thread
  std::vector<std::unique_ptr<Step>> spare_steps;
};
thread_local ThreadState this_thread;

std::chrono::steady_clock::time_point to_steady(Time time) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(time.time_since_epoch()));
}

MemberOptions member_options(const Options& options) {
  MemberOptions member;
  member.job = options.job;
  member.name = options.name;
  if (options.rank) member.rank = static_cast<uint32_t>(*options.rank);
  member.world_size = static_cast<uint32_t>(options.world_size);
  member.coordinator = options.coordinator;
  member.frame_bytes_max = options.frame_bytes_max;
  return member;
}

NodeOptions node_options(const Options& options) {
  NodeOptions node;
  node.member = member_options(options);
  node.link.job = options.job;
  node.link.inflight_bytes_max = options.inflight_bytes_max;
  node.frame_bytes_max = options.frame_bytes_max;
  node.seed = random_seed();
  node.link.reliable = !options.faults.tampers();
  return node;
}

// Workers that are told the same must not do the same at the same time.
uint64_t frame_seed(const Options& options) {
  return options.faults.seed * 31 + static_cast<uint64_t>(options.rank.value_or(0));
}

size_t handler_threads(const Options& options) {
  if (options.handler_threads > 0) return static_cast<size_t>(options.handler_threads);
  return std::max(2u, std::thread::hardware_concurrency());
}

TcpOptions tcp_options(const Options& options) {
  return {.frame_bytes_max = options.frame_bytes_max,
          .tls = make_tls(options.security).take(),
          .handshake_timeout = options.handshake_timeout,
          .strangers_max = options.strangers_max,
          .spin = options.spin,
          .shared_memory = options.shared_memory};
}

// Options with a coordinator whose address is numeric; starts one first where this worker hosts it.
Options with_coordinator(Options options, std::unique_ptr<CoordinatorServer>& server) {
  validate(options);
  if (options.host_coordinator || options.coordinator.empty()) {
    ListenOptions listen;
    if (!options.coordinator.empty()) {
      const Endpoint endpoint = resolve(options.coordinator).take();
      listen.bind = endpoint.host_text();
      listen.port_first = listen.port_last = endpoint.port;
    }
    CoordinatorOptions coordinator;
    coordinator.job = options.job;
    coordinator.world_size = static_cast<uint32_t>(options.world_size);
    coordinator.lease = options.lease;
    server = std::make_unique<CoordinatorServer>(coordinator, listen, tcp_options(options));
    options.coordinator = server->address();
  } else {
    options.coordinator = resolve(options.coordinator).take().text();
  }
  return options;
}

ListenOptions listen_options(const Options& options) {
  ListenOptions listen{.bind = options.bind,
                       .advertise = options.advertise,
                       .port_first = options.port_first,
                       .port_last = options.port_last};
  if (listen.bind.empty()) {
    const Endpoint coordinator = resolve(options.coordinator).take();
    if (!is_loopback(coordinator)) listen.bind = address_towards(coordinator);
    if (is_loopback(coordinator) && coordinator.is_v6) listen.bind = "::1";
  }
  return listen;
}

// Does it for each, and forgets them.
template <class T, class F>
void drain(std::vector<T>& items, F&& act) {
  if (items.empty()) return;
  for (T& item : items) act(item);
  items.clear();
}

}  // namespace

// A Step from this thread's spares. Nests: completions may start calls of their own.
// Without a time it is for what does not step the Node, or for events, which bring their own: to read the clock takes
// longer than most of what a step does. perform() leaves it empty.
class Runtime::StepScope {
 public:
  explicit StepScope(Time now = Time{}) {
    auto& spares = this_thread.spare_steps;
    if (spares.empty()) {
      step_ = std::make_unique<Step>(now);
    } else {
      step_ = std::move(spares.back());
      spares.pop_back();
      step_->now = now;
    }
  }
  ~StepScope() { this_thread.spare_steps.push_back(std::move(step_)); }
  StepScope(const StepScope&) = delete;
  StepScope& operator=(const StepScope&) = delete;
  Step& operator*() { return *step_; }
  Step* operator->() { return step_.get(); }

 private:
  std::unique_ptr<Step> step_;
};

Runtime::Runtime(Options options, Worker* worker)
    : options_(with_coordinator(std::move(options), coordinator_)),
      worker_(worker),
      node_(node_options(options_), *this),
      protocols_(make_protocols(node_, *this)),
      carrier_(*this, tcp_options(options_), options_.faults, frame_seed(options_),
               [this](ConnectionId connection) { return frame_faults(connection); }),
      transport_(carrier_.tcp()),
      executor_({.threads = handler_threads(options_), .name = "hf-handler"}),
      io_([this] { turn(); }, "hf-network") {
  node_.inject_faults(options_.faults, [] { ::kill(::getpid(), SIGKILL); }).check();
  if ((!options_.device_maps.empty() || !options_.devices.empty()) && !node_.has_devices()) {
    throw_failure({.code = Code::invalid_argument,
                   .message = "Options::device_maps and devices are for programs that send tensors: link to "
                              "holdfast::torch and include <holdfast/torch.h>"});
  }
}

Runtime::~Runtime() { stop("the worker was destroyed"); }

template <class F>
auto Runtime::step(F&& with_node) {
  StepScope scope(steady_now());
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    with_node(*scope);
    wake = overslept();
  }
  perform(*scope);
  if (wake) transport_.interrupt();
}

void Runtime::join() {
  const std::string address = transport_.listen(listen_options(options_)).take();
  io_.start();
  Promise<void> joined;
  Future<void> done = joined.future();
  step([&](Step& step) {
    node_.member().join(step, address, after(step.now, options_.join_timeout),
                        [joined = std::move(joined)](Status status) mutable {
                          if (status.ok()) {
                            joined.set_value();
                          } else {
                            joined.set_failure(std::move(status.failure()));
                          }
                        });
  });
  done.get();
}

// ---- performing

void Runtime::perform(Step& step) {
  const bool flushes = !step.flushes.empty();
  drain(step.dials, [this](Step::Dial& dial) { transport_.connect(dial.connection, dial.address); });
  drain(step.trusts, [this](ConnectionId connection) { transport_.trust(connection); });
  drain(step.flushes, [this](ConnectionId connection) { transport_.flush(connection); });
  if (carrier_.faulty() != nullptr && flushes) wake_for_held_frames();
  drain(step.closes, [this](Step::Close& close) { transport_.close(close.connection, std::move(close.why)); });
  if (step.room_opened && room_waiters_ > 0) room_.notify_all();
  step.room_opened = false;
  drain(step.completed, [](Step::Completed& completed) { completed.completion(std::move(completed.result)); });
  drain(step.closures, [](Closure& closure) { closure(); });
  step.garbage.clear();
  if (!step.work.empty()) dispatch(step.work);
}

void Runtime::dispatch(std::vector<std::shared_ptr<Work>>& work) {
  // Inside an inline handler (which calls this worker itself) nothing runs inline: it may hold locks.
  const bool may_run_inline = io_.has_role() && this_thread.running_inline == nullptr;
  size_t quick = 0;
  std::vector<Closure> begun, fresh;
  for (std::shared_ptr<Work>& item : work) {
    if (may_run_inline && item->quick()) {
      work[quick++].swap(item);  // those stand in front; what was there has been taken
    } else {
      std::vector<Closure>& posted = item->has_waited() ? begun : fresh;
      posted.emplace_back([item = std::move(item)] { item->run(); });
    }
  }
  try {
    // Whoever is waited for with a result that is there must not wait for all that is still to be computed.
    if (!begun.empty()) executor_.post_all(begun, Executor::Turn::begun);
    if (!fresh.empty()) executor_.post_all(fresh);
  } catch (const Unavailable&) {
    // No thread to be had. The calls, destroyed unrun, tell their callers.
  }
  begun.clear();
  fresh.clear();
  if (quick > 1) {
    // Not kept here: if the first one blocks, whoever takes the role runs the others.
    std::lock_guard lock(mutex_);
    for (size_t i = 1; i < quick; ++i) quick_work_.push_back(std::move(work[i]));
  }
  std::shared_ptr<Work> first = quick > 0 ? std::move(work[0]) : nullptr;
  work.clear();
  if (first) run_inline(std::move(first));
}

void Runtime::run_inline(std::shared_ptr<Work> work) {
  StepScope step;
  for (size_t ran = 1; work; ++ran) {
    this_thread.running_inline = this;
    {
      IoThreads::Inline inside(io_);
      work->run();
    }
    this_thread.running_inline = nullptr;
    const std::shared_ptr<Work> done = std::move(work);  // destroyed when its reply is on its way
    {
      std::lock_guard lock(mutex_);
      if (!quick_work_.empty() && io_.has_role()) {
        work = std::move(quick_work_.front());
        quick_work_.pop_front();
      }
      if (!work || ran % kRepliesTogether == 0) take_deferred(*step);
    }
    if (!step->flushes.empty()) perform(*step);
  }
}

FaultPlan Runtime::frame_faults(ConnectionId connection) {
  std::lock_guard lock(mutex_);
  const WorkerInfo* peer = node_.links().peer_of(connection);
  if (peer == nullptr || !self_ || !options_.faults.made_by(self_->name)) return {};
  return options_.faults.towards(peer->name).frame_plan();
}

void Runtime::wake_for_held_frames() {
  {
    std::lock_guard lock(mutex_);
    if (carrier_.faulty()->next_wakeup() >= sleeping_until_.load()) return;
  }
  transport_.interrupt();
}

void Runtime::turn() {
  StepScope step(steady_now());
  Time until;
  if (carrier_.faulty() != nullptr) carrier_.faulty()->on_time(step->now);
  {
    std::lock_guard lock(mutex_);
    // What the last holder of the role left when it lost it.
    for (; !quick_work_.empty(); quick_work_.pop_front()) step->work.push_back(std::move(quick_work_.front()));
    take_deferred(*step);
    until = node_.next_wakeup();
    if (until <= step->now) {
      node_.on_time(*step);
      until = node_.next_wakeup();
    }
    if (carrier_.faulty() != nullptr) until = std::min(until, carrier_.faulty()->next_wakeup());
    sleeping_until_ = until;
  }
  perform(*step);
  if (!io_.has_role()) return;  // lost while performing; the next one asks anew
  this_thread.polling = &*step;
  transport_.poll(until);
  this_thread.polling = nullptr;
  sleeping_until_ = Time::min();
  perform(*step);
}

// ---- transport events

void Runtime::on_accepted(ConnectionId connection) {
  std::lock_guard lock(mutex_);
  this_thread.polling->now = steady_now();
  node_.on_accepted(*this_thread.polling, connection);
}

void Runtime::on_connected(ConnectionId connection) {
  std::lock_guard lock(mutex_);
  this_thread.polling->now = steady_now();
  node_.on_connected(*this_thread.polling, connection);
}

void Runtime::on_frames(ConnectionId connection, std::vector<InFrame>& frames) {
  Step& step = *this_thread.polling;
  {
    std::lock_guard lock(mutex_);
    step.now = steady_now();
    node_.on_frames(step, connection, frames);
    if (!self_) self_ = node_.self();                           // with ACCEPTED, before any call can come
    if (!io_.has_role()) this_thread.overslept |= overslept();  // who has it asks anew before it sleeps
  }
  // At once: the frame after a handshake may be large.
  for (ConnectionId trusted : step.trusts) transport_.trust(trusted);
  step.trusts.clear();
}

void Runtime::on_progress(ConnectionId connection) {
  StepScope step(steady_now());  // may come while another thread writes, outside poll()
  std::lock_guard lock(mutex_);
  node_.on_progress(*step, connection);
}

void Runtime::on_closed(ConnectionId connection, const Failure& why) {
  std::lock_guard lock(mutex_);
  this_thread.polling->now = steady_now();
  node_.on_closed(*this_thread.polling, connection, why);
  this_thread.overslept |= overslept();
  left_.notify_all();
}

void Runtime::collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) {
  std::lock_guard lock(mutex_);
  node_.collect(connection, bytes_max, out);
}

// ---- serving

bool Runtime::begin(ServedCall& call, Time now) {
  const bool runs_inline = this_thread.running_inline == this;
  // Inline, the credit was given when the call came: one lock less.
  if (runs_inline && !call.cancelled && now < call.deadline) return true;
  bool go = false;
  step([&](Step& step) { go = node_.begin(step, call); });
  return go;
}

void Runtime::respond(ServedCall& call, std::shared_ptr<Message> reply) {
  const bool runs_inline = this_thread.running_inline == this;
  step([&](Step& step) {
    node_.respond(step, call, std::move(reply));
    if (runs_inline && io_.has_role()) defer(step);  // run_inline() flushes, or whoever takes the role
  });
}

// ---- calling

bool Runtime::may_defer() { return node_.calls().made_count() > kEagerCalls && ++deferred_calls_ < kCallsTogether; }

void Runtime::defer(Step& step) {
  for (ConnectionId connection : step.flushes) {
    if (std::find(deferred_.begin(), deferred_.end(), connection) == deferred_.end()) deferred_.push_back(connection);
  }
  step.flushes.clear();
}

void Runtime::take_deferred(Step& step) {
  for (ConnectionId connection : deferred_) step.flush(connection);
  deferred_.clear();
  deferred_calls_ = 0;
}

void Runtime::flush_deferred() {
  StepScope step;
  {
    std::lock_guard lock(mutex_);
    if (deferred_.empty()) return;
    take_deferred(*step);
  }
  perform(*step);
}

bool Runtime::wait_for_room(std::unique_lock<Mutex>& lock, const WorkerId& to, uint64_t bytes, Time deadline) {
  lock.unlock();
  flush_deferred();
  BlockingScope blocking;
  lock.lock();
  const auto may_go = [&] {
    return node_.has_room(to, bytes) || node_.stopped() || node_.member().fenced() || node_.links().is_lost(to);
  };
  ++room_waiters_;
  if (deadline == kNever) {
    room_.wait(lock, may_go);
  } else {
    room_.wait_until(lock, to_steady(deadline), may_go);
  }
  --room_waiters_;
  return may_go();
}

template <class Start>
bool Runtime::start_with_room(const WorkerPtr& to, uint64_t bytes, Duration timeout, Start&& start) {
  StepScope step(steady_now());
  const Term term{step->now, std::min(after(step->now, timeout), current_ambient().deadline)};
  bool wake = false;
  bool deferred = false;
  {
    std::unique_lock lock(mutex_);
    if (!node_.has_room(to->id(), bytes)) {
      if (!wait_for_room(lock, to->id(), bytes, term.deadline)) return false;
      step->now = steady_now();
    }
    start(*step, term);
    wake = overslept();
    deferred = may_defer();
    if (deferred) {
      defer(*step);
    } else {
      take_deferred(*step);
    }
  }
  perform(*step);
  if (deferred) transport_.interrupt_after(kCompanyWait);
  if (wake) transport_.interrupt();
  return true;
}

Failure Runtime::no_room(const Function& function, const WorkerInfo& to) const {
  return {.code = Code::timeout,
          .message = fmt::format("{} was not sent to {}: {} bytes of earlier calls were not started in time",
                                 function.name, to.name, options_.inflight_bytes_max)};
}

void Runtime::start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                         Duration timeout, Completion completion, FutureStateBase& state) {
  const uint64_t bytes = message->total_bytes();
  CallId call;
  const bool started = start_with_room(to, bytes, timeout, [&](Step& step, Term term) {
    call = node_.start_call(step, to, function, std::move(message), term, std::move(completion));
  });
  if (!started) return completion(no_room(function, *to));
  if (call.value == 0) return;
  state.on_cancel([runtime = weak_from_this(), call] {
    if (auto self = runtime.lock()) self->cancel(call);
  });
}

void Runtime::start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                              Duration timeout, Refused refused) {
  const uint64_t bytes = message->total_bytes();
  std::optional<Failure> failure;
  const bool started = start_with_room(to, bytes, timeout, [&](Step& step, Term term) {
    failure = node_.start_kept_call(step, to, function, std::move(message), term.deadline);
  });
  if (!started) failure = no_room(function, *to);
  if (failure) refused(std::move(*failure));
}

void Runtime::run_step(void (*run)(void*, Step&), void* argument) {
  step([&](Step& step) { run(argument, step); });
}

void Runtime::cancel(CallId call) {
  step([&](Step& step) { node_.calls().cancel(step, call); });
}

void Runtime::help(const WorkerId& worker, FutureStateBase& state, Time until) {
  StepScope step;
  ConnectionId connection;
  {
    std::lock_guard lock(mutex_);
    take_deferred(*step);
    connection = node_.links().connection_to(worker);
  }
  if (!step->flushes.empty()) perform(*step);
  if (connection.value == 0) return;
  const HelpSessionPtr session = transport_.try_help(connection);
  if (!session) return;

  struct Wake final : Interrupt {
    explicit Wake(HelpSession& session) : session(session) {}
    void interrupt() noexcept override {
      if (std::this_thread::get_id() != helper) session.interrupt();
    }
    HelpSession& session;
    const std::thread::id helper = std::this_thread::get_id();
  } wake(*session);
  if (!state.set_interrupt(&wake)) return;

  while (!state.ready() && (until == kNever || steady_now() < until)) {
    this_thread.polling = &*step;
    this_thread.overslept = false;
    const HelpSession::Outcome outcome = session->poll_once(until);
    this_thread.polling = nullptr;
    const bool wake_poller = this_thread.overslept;
    perform(*step);
    if (wake_poller) transport_.interrupt();
    if (outcome == HelpSession::Outcome::closed) break;
  }
  state.clear_interrupt();
}

// ---- peers

std::shared_ptr<const rpc_detail::PeerState> Runtime::find_peer(const std::string& name, Rank rank) {
  Promise<WorkerInfo> promise(&executor_);
  Future<WorkerInfo> found = promise.future();
  step([&](Step& step) {
    if (node_.stopped()) {
      promise.set_failure({.code = Code::shutdown, .message = fmt::format("{} is shut down", self_->name)});
      return;
    }
    node_.member().lookup(step, name, rank, after(step.now, options_.timeout),
                          [promise = std::move(promise)](Result<WorkerInfo> result) mutable {
                            if (result) {
                              promise.set_value(std::move(*result));
                            } else {
                              promise.set_failure(std::move(result.failure()));
                            }
                          });
  });
  return peer_state(std::make_shared<const WorkerInfo>(found.get()));
}

namespace {

class PeerHelper final : public WaitHelper {
 public:
  PeerHelper(std::shared_ptr<Runtime> runtime, const WorkerId& worker)
      : runtime_(std::move(runtime)), worker_(worker) {}
  void help(FutureStateBase& state, Time until) override { runtime_->help(worker_, state, until); }

 private:
  const std::shared_ptr<Runtime> runtime_;
  const WorkerId worker_;
};

}  // namespace

std::shared_ptr<const rpc_detail::PeerState> Runtime::peer_state(WorkerPtr worker) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<const rpc_detail::PeerState>& known = peers_[worker->id()];
  if (auto state = known.lock()) return state;
  auto state = std::make_shared<rpc_detail::PeerState>();
  state->host = shared_from_this();
  state->helper = std::make_shared<PeerHelper>(shared_from_this(), worker->id());
  state->worker = std::move(worker);
  known = state;
  return state;
}

// ---- the end

void Runtime::shutdown(Duration timeout) {
  if (current_ambient().worker == worker_ || executor_.on_executor_thread()) {
    throw_failure({.code = Code::invalid_argument,
                   .message = "shutdown() was called inside a handler, which it would have to wait for"});
  }
  {
    std::lock_guard lock(stop_mutex_);
    if (stopped_ || std::exchange(shut_down_, true)) return;
  }
  Promise<void> promise;
  Future<void> done = promise.future();
  step([&](Step& step) {
    node_.shutdown(step, after(step.now, timeout), [promise = std::move(promise)](Status status) mutable {
      if (status.ok()) {
        promise.set_value();
      } else {
        promise.set_failure(std::move(status.failure()));
      }
    });
  });
  done.wait();
  std::string under_way;
  std::string leftovers;
  {
    std::lock_guard lock(mutex_);
    if (node_.calls().made_count() > 0)
      under_way += fmt::format("; it still waits for: {}", node_.calls().describe_made());
    if (node_.calls().served_count() > 0)
      under_way += fmt::format("; it still serves: {}", node_.calls().describe_served());
    for (const auto& protocol : protocols_) {
      if (const std::string text = protocol->describe(); !text.empty()) under_way += "; it still has " + text;
      leftovers += protocol->leftovers();
    }
  }
  if (!leftovers.empty()) report_held(leftovers);
  stop("the worker is shut down");
  if (!done.failed()) return;
  Failure failure = done.failure();
  if (failure.code == Code::timeout) {
    failure.message = fmt::format("{} left after waiting {:.3g} s for the others: {}{}", self_->name,
                                  std::chrono::duration<double>(timeout).count(), failure.message, under_way);
  }
  throw_failure(std::move(failure));
}

void Runtime::report_held(const std::string& leftovers) const {
  const std::string text =
      fmt::format("{} shuts down while references to its objects are still held:\n{}", self_->name, leftovers);
  if (options_.on_held_at_shutdown) {
    options_.on_held_at_shutdown(text);
  } else {
    std::fprintf(stderr, "holdfast: %s", text.c_str());
  }
}

void Runtime::stop(const std::string& why) {
  std::lock_guard stopping(stop_mutex_);
  if (std::exchange(stopped_, true)) return;
  step([&](Step& step) { node_.stop(step, why); });
  executor_.stop();
  step([&](Step& step) { node_.ended(step); });
  {
    // The coordinator closes the connection when it has read that we leave.
    std::unique_lock lock(mutex_);
    left_.wait_for(lock, std::chrono::seconds(1), [this] { return !node_.member().connected(); });
  }
  io_.stop([this] { transport_.interrupt(); });
  {
    std::deque<std::shared_ptr<Work>> unrun;  // destroyed outside the lock
    std::lock_guard lock(mutex_);
    unrun.swap(quick_work_);
  }
  if (coordinator_) coordinator_->wait_until_empty(shut_down_ ? std::chrono::seconds(5) : std::chrono::seconds(0));
  coordinator_.reset();
}

WorkerStats Runtime::stats() const {
  const size_t shared_memory = transport_.shared_memory_count();
  std::lock_guard lock(mutex_);
  return {.connections = node_.links().connection_count(),
          .shared_memory = shared_memory,
          .links = node_.links().link_count(),
          .calls_made = node_.calls().made_count(),
          .calls_served = node_.calls().served_count(),
          .threads = executor_.stats().threads,
          .faults = (node_.faults() != nullptr ? node_.faults()->count() : 0) +
                    (carrier_.faulty() != nullptr ? carrier_.faulty()->counts().total() : 0)};
}

// ---- for templates

namespace rpc_detail {

std::shared_ptr<Message> begin_call(Kind kind, const Function& function) {
  auto message = std::make_shared<Message>();
  message->kind = kind;
  message->body.reserve(128);
  wire::Writer writer(*message);
  write_call_header(writer, function.id, function.signature_id);
  return message;
}

}  // namespace rpc_detail

}  // namespace holdfast
