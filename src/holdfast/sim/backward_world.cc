#include <holdfast/sim/backward_world.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include <holdfast/backward/backwards.h>
#include <holdfast/cluster/messages.h>
#include <holdfast/sim/backward_forward.h>
#include <holdfast/sim/backward_ledger.h>
#include <holdfast/sim/backward_toy.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {

namespace {

using namespace std::chrono_literals;
using ToyKind = ToyFunction::Kind;

constexpr Duration kPassesEndWithin = 60s;
constexpr Duration kPassesGoneWithin = 30s;

class BackwardWorld {
 public:
  BackwardWorld(uint64_t seed, const TraceLine& trace)
      : random_(seed * 0x9e3779b97f4a7c15 + 177), trace_(trace), world_(options(seed)) {
    report_.seed = seed;
    world_.network().set_trace([this](Time, const std::string& from, const std::string& to, const FrameHeader& header,
                                      const Message& message) { on_frame(from, to, header, message); });
    for (uint32_t rank = 0; rank < world_.size(); ++rank) begin_life(rank);
  }

  BackwardReport run() {
    if (!world_.join()) {
      violation("nobody joined");
    } else {
      live();
      heal();
    }
    for (const auto& [id, record] : ledger_.records) {
      report_.violations.insert(report_.violations.end(), record.violations.begin(), record.violations.end());
    }
    report_.trace_hash = world_.network().trace_hash();
    report_.contexts = programs_.size();
    report_.passes = passes_.size();
    return report_;
  }

 private:
  WorldOptions options(uint64_t seed) {
    WorldOptions options;
    options.seed = seed;
    options.workers = static_cast<uint32_t>(random_.between(2, 4));
    options.lease = 1s;
    options.network.latency_max = random_.chance(0.8) ? 500us : 5ms;
    options.network.dead_after = std::chrono::milliseconds(random_.between(50, 2000));
    if (random_.chance(0.3)) {
      options.lease = 4s;
      options.network.loss = 0.02;
      options.network.duplication = 0.03;
      options.network.reordering = 0.05;
    }
    mishaps_ = random_.chance(0.3) ? 0 : random_.chance(0.5) ? 0.05 : 0.15;
    deaths_ = random_.chance(0.6);
    ends_ = random_.chance(0.6);
    throwing_ = random_.chance(0.6) ? 0 : 0.05;
    run_delay_max_ = random_.chance(0.7) ? 200us : 10ms;
    return options;
  }

  // ---- workers

  void begin_life(uint32_t rank) {
    SimWorker& worker = world_.worker(rank);
    ToyForwards::of(worker).set_on_forward([this, &worker](const WorkerPtr& from, const ToyForward& forward) {
      later([this, &worker, from, forward] { receive(worker, from, forward); });
    });
  }
  void later(Closure run) {
    const Duration delay(random_.below(static_cast<uint64_t>(run_delay_max_.count()) + 1));
    world_.network().schedule(world_.now() + delay, std::move(run));
  }
  bool works(SimWorker& worker) { return worker.alive() && worker.joined() && !worker.node().member().fenced(); }
  SimWorker* pick_worker() {
    SimWorker& worker = world_.worker(static_cast<uint32_t>(random_.below(world_.size())));
    return works(worker) ? &worker : nullptr;
  }
  MakeContext maker(SimWorker& worker, ToyProgram& program) {
    return [this, &worker, &program](const ContextId& id) {
      program.id = id;
      return std::make_shared<ToyContext>(program, worker.self(), ledger_.records,
                                          [this](Closure run) { later(std::move(run)); });
    };
  }
  std::shared_ptr<ToyContext> find(SimWorker& worker, const ToyProgram& program) {
    return std::static_pointer_cast<ToyContext>(Backwards::of(worker).find_context(program.id));
  }

  // ---- the forward

  void create() {
    SimWorker* worker = pick_worker();
    if (worker == nullptr) return;
    programs_.push_back(std::make_unique<ToyProgram>());
    ToyProgram& program = *programs_.back();
    program.chain = random_.chance(0.5);
    program.creator = worker->self();
    auto context = std::static_pointer_cast<ToyContext>(Backwards::of(*worker).create_context(maker(*worker, program)));
    context->add({.kind = ToyKind::leaf, .worker = {}, .edges = {}});
    say("{} creates context {}", worker->self()->name, text_of(program.id));
  }

  ToyProgram* pick_program() {
    return programs_.empty()
               ? nullptr
               : programs_[programs_.size() - 1 - random_.below(std::min<size_t>(4, programs_.size()))].get();
  }
  ToyValue pick_value(const ToyContext& context) {
    return context.values[context.values.size() - 1 - random_.below(std::min<size_t>(5, context.values.size()))];
  }

  void grow(SimWorker& worker, ToyContext& context) {
    if (random_.chance(0.3) && !context.program.chain) context.add({.kind = ToyKind::leaf, .worker = {}, .edges = {}});
    ToyFunction op{.kind = ToyKind::op, .worker = {}, .edges = {}};
    op.throws = random_.chance(throwing_);
    // In a chain the first input is always the last value.
    op.edges.push_back({context.program.chain ? context.values.back() : pick_value(context), random_.between(1, 9)});
    while (random_.chance(0.4)) op.edges.push_back({pick_value(context), random_.between(1, 9)});
    context.add(std::move(op));
    if (random_.chance(0.6)) send(worker, context);
  }

  void send(SimWorker& worker, ToyContext& context) {
    ToyProgram& program = context.program;
    const uint32_t rank = static_cast<uint32_t>(random_.below(world_.size()));
    SimWorker& target = world_.worker(rank);
    if (!target.joined()) return;
    std::vector<ToyValue> values{program.chain ? context.values.back() : pick_value(context)};
    while (random_.chance(0.3) && !program.chain) values.push_back(pick_value(context));
    const SendNumber number = context.add_send(values);
    const ToyForward forward{program.id, *program.creator, context.sends.at(number)};
    if (program.chain) context.values.clear();  // from here on they are the receiver's business
    const WorkerPtr to = target.self();
    say("{} sends {} of context {} to {}", worker.self()->name, number.value, text_of(program.id), to->name);
    Backwards::of(worker).will_send(program.id, to);
    const auto go = [&worker, to, forward] { ToyForwards::of(worker).send(to, forward); };
    if (random_.chance(0.2)) {
      later(go);
    } else {
      go();
    }
  }

  void receive(SimWorker& worker, const WorkerPtr& from, const ToyForward& forward) {
    if (!works(worker)) return;
    auto program =
        std::find_if(programs_.begin(), programs_.end(), [&](const auto& one) { return one->id == forward.context; });
    auto context = std::static_pointer_cast<ToyContext>(Backwards::of(worker).enter_context(
        forward.context, std::make_shared<const WorkerInfo>(forward.creator), from->id(), maker(worker, **program)));
    if (!context) {
      ++report_.refused_contexts;
      if (!(*program)->ended && !ledger_.anybody_lost()) violation("a context was refused that has not ended");
      return;
    }
    context->add_recv(forward.send_function);
    if (!(*program)->frozen && random_.chance(0.85)) grow(worker, *context);
  }

  // ---- passes

  void start_pass() {
    ToyProgram* program = pick_program();
    SimWorker* worker = pick_worker();
    if (program == nullptr || worker == nullptr) return;
    std::shared_ptr<ToyContext> context = find(*worker, *program);
    if (!context || context->values.empty()) return;
    program->frozen = true;
    std::vector<ToyRoot> roots{{context->values.back(), random_.between(1, 9)}};
    if (random_.chance(0.3)) roots.push_back({pick_value(*context), random_.between(1, 9)});
    const size_t index = passes_.size();
    passes_.emplace_back();
    WatchedPass& pass = passes_.back();
    pass.root = worker;
    pass.mode = random_.chance(0.5) ? PassMode::fast : PassMode::smart;
    pass.expected = expect(*program, roots, pass.mode);
    pass.program = program;
    pass.little_time = random_.chance(0.03);
    const PassOptions options{.mode = pass.mode,
                              .options = index,
                              .timeout = pass.little_time ? Duration(random_.below(5'000'000)) : Duration::max()};
    const PassId id = Backwards::of(*worker).start_pass(
        program->id, options, [context, roots](const PassInfo& info) { return context->begin_root(info, roots); },
        [this, index](Status status) { on_done(index, status); });
    passes_[index].id = id;
    say("{} starts {} pass {}", worker->self()->name, pass.mode == PassMode::fast ? "FAST" : "SMART", text_of(id));
  }

  // What befalls a pass should befall it while it runs.
  void start_passes() {
    do {
      start_pass();
    } while (random_.chance(0.3));
    const Time soon = world_.now() + Duration(random_.below(4'000'000));
    const uint32_t rank = static_cast<uint32_t>(random_.below(world_.size()));
    if (deaths_ && random_.chance(mishaps_)) {
      world_.network().schedule(soon, [this, rank] {
        if (!healed_ && !is_over(rank)) die(rank);
      });
    }
    if (!ends_ || !random_.chance(0.1)) return;
    world_.network().schedule(soon, [this] {
      if (healed_) return;
      if (random_.chance(0.5)) return cancel();
      end_context(*pick_program());
    });
  }

  void on_done(size_t index, const Status& status) {
    say("pass {}: {}", text_of(passes_[index].id), status.ok() ? "done" : status.failure().message);
    ledger_.on_done(index, status);
  }

  void cancel() {
    if (passes_.empty()) return;
    WatchedPass& pass = passes_[passes_.size() - 1 - random_.below(std::min<size_t>(3, passes_.size()))];
    if (pass.completions > 0) return;
    pass.cancelled = true;
    say("pass {} is cancelled", text_of(pass.id));
    Backwards::of(*pass.root).cancel(pass.id);
  }

  void end_context(ToyProgram& program) {
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      SimWorker& worker = world_.worker(rank);
      if (!worker.joined() || worker.self()->id() != program.id.creator) continue;
      if (!program.ended) say("context {} ends", text_of(program.id));
      program.ended = program.frozen = true;
      Backwards::of(worker).end_context(program.id);
    }
  }

  // ---- the history

  void act() {
    const uint64_t what = random_.below(100);
    if (what < 7 || programs_.empty()) return create();
    if (what < 19) return start_passes();
    if (what < 22 && ends_) return cancel();
    if (what < 24 && ends_) return end_context(*pick_program());
    ToyProgram& program = *pick_program();
    SimWorker* worker = pick_worker();
    if (worker == nullptr || program.frozen) return;
    const std::shared_ptr<ToyContext> context = find(*worker, program);
    if (context && !context->values.empty()) grow(*worker, *context);
  }

  void live() {
    for (uint64_t actions = random_.between(20, 150); actions > 0; --actions) {
      act();
      if (random_.chance(mishaps_)) mishap();
      if (random_.chance(0.08)) world_.network().heal();
      if (random_.chance(0.5)) continue;  // at the same moment
      advance(Duration(random_.below(random_.chance(0.02)  ? 2'000'000'000
                                     : random_.chance(0.5) ? 1'000'000
                                                           : 10'000'000)));
    }
  }

  void mishap() {
    const uint32_t a = static_cast<uint32_t>(random_.below(world_.size()));
    const uint32_t b = static_cast<uint32_t>(random_.below(world_.size()));
    const uint64_t what = random_.below(6);
    if (what < 2 && a != b) {
      say("worker{} and worker{} are cut", a, b);
      world_.cut(a, b);
    } else if (what == 2 && a != b) {
      say("worker{} and worker{} are partitioned", a, b);
      world_.partition(a, b);
    } else if (what >= 4 && deaths_) {
      die(a);
    }
  }

  void die(uint32_t rank) {
    ledger_.somebody_is_lost();
    ++report_.deaths;
    say("worker{} dies", rank);
    if (world_.worker(rank).alive()) world_.kill(rank);
    if (random_.chance(0.5)) return;
    world_.declare_lost(rank, "its process ended");
    if (random_.chance(0.5)) replace(rank);
  }

  bool is_over(uint32_t rank) {
    SimWorker& worker = world_.worker(rank);
    return !worker.alive() || worker.node().member().fenced();
  }

  void replace(uint32_t rank) {
    ledger_.somebody_is_lost();
    if (world_.worker(rank).alive()) world_.kill(rank);
    world_.declare_lost(rank, "its process ended");
    world_.restart(rank);
    begin_life(rank);
    say("worker{} is replaced", rank);
  }

  void advance(Duration duration) { world_.network().run_until(world_.now() + duration); }

  // ---- the end

  void heal() {
    say("everything heals");
    healed_ = true;
    world_.network().heal();
    world_.network().calm_down();
    if (ledger_.anybody_lost()) advance(2 * world_.options().lease);
    const auto ended = [this] { return open_passes(); };
    if (!converge("every pass has ended", ended, kPassesEndWithin)) return;
    // Once more, now that nothing goes wrong any more.
    for (int i = 0; i < 3; ++i) start_pass();
    if (random_.chance(0.2)) return shut_down();
    if (!converge("every pass has ended again", ended, kPassesEndWithin)) return;
    for (const auto& program : programs_) end_context(*program);
    converge(
        "nothing is left", [this] { return tables(); }, kPassesGoneWithin);
  }

  // It waits for the passes that run.
  void shut_down() {
    say("everybody shuts down");
    size_t released = 0;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      world_.worker(rank).shutdown(60s, [this, &released](Status status) {
        ++released;
        if (!status.ok()) violation("a shutdown failed: " + status.failure().message);
      });
    }
    if (!world_.run([&] { return released == world_.size(); }, 60s)) violation("not all workers were released");
    for (const WatchedPass& pass : passes_) {
      if (pass.completions == 0 && pass.root->alive()) violation("a shutdown did not wait for a pass");
    }
  }

  bool converge(const char* goal, const std::function<std::string()>& what_is_left, Duration within) {
    const Time until = world_.now() + within;
    for (Duration wait = 2ms;; wait = std::min<Duration>(2 * wait, 500ms)) {
      for (uint32_t rank = 0; rank < world_.size(); ++rank) {
        if (is_over(rank)) replace(rank);
      }
      const std::string left = what_is_left();
      if (left.empty()) return true;
      if (world_.now() >= until) {
        violation(fmt::format("after healing it is not true that {}: {}", goal, left));
        return false;
      }
      advance(wait);
    }
  }

  std::string open_passes() {
    std::string text;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      SimWorker& worker = world_.worker(rank);
      if (!works(worker)) {
        text += fmt::format("worker{} is not in the job; ", rank);
      } else if (!Backwards::of(worker).idle()) {
        text += fmt::format("worker{} has a {}; ", rank, Backwards::of(worker).describe());
      }
    }
    for (const WatchedPass& pass : passes_) {
      if (pass.completions == 0 && works(*pass.root)) text += fmt::format("pass {} runs; ", text_of(pass.id));
    }
    return text;
  }

  std::string tables() {
    std::string text;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      SimWorker& worker = world_.worker(rank);
      if (!works(worker)) {
        text += fmt::format("worker{} is not in the job; ", rank);
        continue;
      }
      Backwards& backwards = Backwards::of(worker);
      const BackwardCounts counts = backwards.counts();
      if (counts != BackwardCounts() || !backwards.idle()) {
        text += fmt::format("worker{} has {} contexts, {} passes, {} parts, {} sends; ", rank, counts.contexts,
                            counts.passes, counts.parts, counts.sends_outstanding);
      }
      if (!worker.node().links().settled()) text += fmt::format("worker{} waits for acknowledgements; ", rank);
    }
    return text;
  }

  // ---- the trace

  void on_frame(const std::string& from, const std::string& to, const FrameHeader& header, const Message& message) {
    ++report_.messages;
    if (header.kind == kLost) ledger_.somebody_is_lost();
    if (!trace_ || header.sequence == 0) return;
    for (const KindName& kind : kBackwardKinds) {
      if (kind.kind == header.kind) say("{} -> {}: {} ({} bytes)", from, to, kind.name, message.body.size());
    }
  }

  void violation(const std::string& text) {
    const double now_ms = std::chrono::duration<double, std::milli>(world_.now().time_since_epoch()).count();
    report_.violations.push_back(fmt::format("at {:.3f} ms: {}", now_ms, text));
    say("VIOLATION: {}", text);
  }
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (!trace_) return;
    const double now_ms = std::chrono::duration<double, std::milli>(world_.now().time_since_epoch()).count();
    trace_(fmt::format("{:>12.3f} ms  {}", now_ms, fmt::format(format, std::forward<Args>(args)...)));
  }

  Random random_;
  const TraceLine& trace_;
  double mishaps_ = 0;
  double throwing_ = 0;  // how many functions throw
  bool deaths_ = false;
  bool ends_ = false;  // passes are cancelled and contexts end in the middle
  Duration run_delay_max_{};
  bool healed_ = false;  // no more mishaps
  BackwardReport report_;
  BackwardLedger ledger_{report_, [this](const std::string& text) { violation(text); }};
  std::vector<WatchedPass>& passes_ = ledger_.passes();
  std::vector<std::unique_ptr<ToyProgram>> programs_;
  World world_;  // the last to come: its end may still touch the others
};

}  // namespace

BackwardReport run_backward_world(uint64_t seed, const TraceLine& trace) { return BackwardWorld(seed, trace).run(); }

void BackwardReport::add(const BackwardReport& other) {
  messages += other.messages;
  contexts += other.contexts;
  passes += other.passes;
  fast_succeeded += other.fast_succeeded;
  smart_succeeded += other.smart_succeeded;
  remote_succeeded += other.remote_succeeded;
  starved += other.starved;
  threw += other.threw;
  lost += other.lost;
  cancelled += other.cancelled;
  refused_contexts += other.refused_contexts;
  deaths += other.deaths;
  violations.insert(violations.end(), other.violations.begin(), other.violations.end());
}

}  // namespace holdfast::sim
