#include <holdfast/sim/rref_world.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <holdfast/cluster/messages.h>
#include <holdfast/sim/ledger.h>
#include <holdfast/sim/program.h>
#include <holdfast/sim/trace_text.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {

namespace {

using namespace std::chrono_literals;

// After healing: everybody is back and every call has ended; then, everything is gone.
constexpr Duration kCallsEndWithin = 90s;
constexpr Duration kEmptyWithin = 30s;

constinit thread_local volatile uint64_t seed_of_thread = 0;

class RRefWorld {
 public:
  RRefWorld(uint64_t seed, const TraceLine& trace)
      : random_(seed * 0x9e3779b97f4a7c15 + 77),
        trace_(trace),
        ledger_([this] { return world_.now(); }),
        world_(options(seed)),
        program_(world_, ledger_, random_.split(),
                 trace ? [this](const std::string& text) { say(text); } : Program::Story()) {
    report_.seed = seed;
    program_.set_on_relay([this](uint32_t relay, uint32_t to, uint32_t owner) { on_relay(relay, to, owner); });
    ledger_.set_may_overload(world_.options().inflight_bytes_max < 10000);
    world_.network().set_trace([this](Time, const std::string& from, const std::string& to, const FrameHeader& header,
                                      const Message& message) { on_frame(from, to, header, message); });
  }
  ~RRefWorld() { ledger_.close(); }

  WorldReport run() {
    if (world_.join()) {
      live();
      heal();
    } else {
      ledger_.violation("nobody joined");
    }
    report_.trace_hash = world_.network().trace_hash();
    report_.violations = ledger_.violations();
    report_.actions = program_.actions();
    report_.objects = ledger_.object_count();
    report_.calls = ledger_.call_count();
    const SimNetwork::Counts& counts = world_.network().counts();
    report_.faults[static_cast<size_t>(Fault::loss)] = counts.lost;
    report_.faults[static_cast<size_t>(Fault::duplication)] = counts.duplicated;
    report_.faults[static_cast<size_t>(Fault::reordering)] = counts.reordered;
    report_.faults[static_cast<size_t>(Fault::repetition)] = world_.repetition().count;
    return report_;
  }

 private:
  // The ledger of this thread while this lives; the first to come and the last to go.
  struct CurrentLedger {
    explicit CurrentLedger(Ledger* ledger) { Ledger::current() = ledger; }
    ~CurrentLedger() { Ledger::current() = nullptr; }
  };

  WorldOptions options(uint64_t seed) {
    WorldOptions options;
    options.seed = seed;
    constexpr uint32_t kSizes[] = {2, 3, 3, 3, 4, 4, 4, 5, 5, 5};
    options.workers = kSizes[random_.below(std::size(kSizes))];
    options.lease = 1s;
    options.handler_delay_max = random_.chance(0.7) ? 200us : 20ms;
    if (random_.chance(0.05)) options.inflight_bytes_max = 600;
    options.network.latency_max = random_.chance(0.8) ? 500us : 5ms;
    options.network.dead_after = std::chrono::milliseconds(random_.between(50, 2000));
    options.repetition = random_.chance(0.5) ? 0.1 : 0;
    if (random_.chance(0.3)) {
      options.lease = 4s;  // what was lost is said again after a second: not too late
      options.network.loss = 0.02;
      options.network.duplication = 0.03;
      options.network.reordering = 0.05;
    }
    mishaps_ = random_.chance(0.2) ? 0 : random_.chance(0.5) ? 0.1 : 0.3;
    return options;
  }

  void advance(Duration duration) { world_.network().run_until(world_.now() + duration); }
  uint32_t any_rank() { return static_cast<uint32_t>(random_.below(world_.size())); }

  // ---- the history

  void live() {
    for (uint64_t actions = random_.between(10, 80); actions > 0; --actions) {
      program_.act();
      if (random_.chance(mishaps_)) mishap();
      if (random_.chance(0.08)) world_.network().heal();
      if (const uint32_t rank = any_rank(); random_.chance(0.1) && is_over(rank)) replace(rank);
      if (random_.chance(0.5)) continue;  // at the same moment
      const auto lease_ns = static_cast<uint64_t>(world_.options().lease.count());
      // Mostly little; at times longer than a lease.
      const uint64_t most_ns = random_.chance(0.03) ? 2 * lease_ns : random_.chance(0.5) ? 1'000'000 : 10'000'000;
      advance(Duration(random_.below(most_ns)));
    }
  }

  void count(Fault fault) { ++report_.faults[static_cast<size_t>(fault)]; }

  void mishap() {
    // Half of them befall the one that has just acted: what it did is still under way.
    const uint32_t a = random_.chance(0.5) ? program_.last_actor() : any_rank();
    const uint32_t b = any_rank();
    switch (random_.below(12)) {
      case 0:
      case 1:
      case 2:
        if (a == b) return;
        say("the connection between worker{} and worker{} is cut", a, b);
        count(Fault::cut);
        return world_.cut(a, b);
      case 3:
      case 4:
        if (a == b) return;
        say("worker{} and worker{} are partitioned", a, b);
        count(Fault::partition);
        return world_.partition(a, b);
      case 5:
        say("worker{} is partitioned from the coordinator", a);
        count(Fault::coordinator_partition);
        return world_.partition_from_coordinator(a);
      case 6:
        say("the connection between worker{} and the coordinator is cut", a);
        count(Fault::coordinator_cut);
        return world_.cut_from_coordinator(a);
      case 7:
        if (!program_.works(a)) return;
        say("worker{} is declared lost though it lives", a);
        count(Fault::declared_lost);
        return world_.declare_lost(a, "the simulator says so");
      case 8:
      case 9: return isolate(b);
      default: return die(a);
    }
  }

  // The hard case of the protocol: a worker dies that has just passed a reference on, and the owner cannot hear of it
  // from the next one yet.
  void on_relay(uint32_t relay, uint32_t to, uint32_t owner) {
    if (healed_ || relay == owner || to == owner || relay == to || !random_.chance(mishaps_)) return;
    const bool both = random_.chance(0.5);
    for (const uint32_t rank : {to, relay}) {
      if (rank == relay && !both) continue;
      say("worker{} and worker{} are partitioned", rank, owner);
      count(Fault::partition);
      world_.partition(rank, owner);
    }
    world_.network().schedule(world_.now() + Duration(random_.below(4'000'000)), [this, relay] {
      if (!healed_ && world_.worker(relay).alive()) die(relay);
    });
  }

  // Only one other worker can still reach it.
  void isolate(uint32_t rank) {
    const uint32_t friend_rank = any_rank();
    for (uint32_t other = 0; other < world_.size(); ++other) {
      if (other == rank || other == friend_rank) continue;
      say("worker{} and worker{} are partitioned", rank, other);
      count(Fault::partition);
      world_.partition(rank, other);
    }
  }

  void die(uint32_t rank) {
    if (!world_.worker(rank).alive()) return replace(rank);
    say("worker{} dies", rank);
    program_.kill(rank);
    if (random_.chance(0.5)) {
      count(Fault::death_by_lease);
      return;
    }
    count(Fault::death);
    world_.declare_lost(rank, "its process ended");
    if (random_.chance(0.5)) replace(rank);
  }

  bool is_over(uint32_t rank) {
    SimWorker& worker = world_.worker(rank);
    return !worker.alive() || worker.node().member().fenced();
  }

  // As a launcher: the process of that rank has ended, start it anew.
  void replace(uint32_t rank) {
    say("worker{} is replaced", rank);
    if (world_.worker(rank).alive()) program_.kill(rank);
    world_.declare_lost(rank, "its process ended");
    world_.restart(rank);
    program_.begin_life(rank);
    count(Fault::rejoin);
  }

  // ---- the end

  void heal() {
    say("everything heals");
    healed_ = true;
    world_.network().heal();
    world_.network().calm_down();
    world_.repetition().chance = 0;
    advance(2 * world_.options().lease);  // whoever was cut off for long may find out only now that it is lost
    const auto calls_ended = [this] { return missing() + ledger_.open_calls(); };
    if (!converge("every worker is back and every call has ended", calls_ended, kCallsEndWithin)) return;
    program_.fetch_all();
    if (!converge("everything that is held was fetched", calls_ended, kCallsEndWithin)) return;
    program_.drop_all();
    const auto nothing_left = [this] { return missing() + ledger_.left_over() + tables(); };
    if (!converge("nothing is left", nothing_left, kEmptyWithin)) return;
    if (random_.chance(0.1)) shut_down();
  }

  // Whether that becomes empty in time.
  bool converge(const char* goal, const std::function<std::string()>& what_is_left, Duration within) {
    const Time until = world_.now() + within;
    for (Duration wait = 2ms;; wait = std::min<Duration>(2 * wait, 500ms)) {
      for (uint32_t rank = 0; rank < world_.size(); ++rank) {
        if (is_over(rank)) replace(rank);
      }
      const std::string left = what_is_left();
      if (left.empty()) break;
      if (world_.now() >= until) {
        ledger_.violation(fmt::format("{} s after healing it is not true that {}: {}",
                                      std::chrono::duration_cast<std::chrono::seconds>(within).count(), goal, left));
        return false;
      }
      advance(wait);
    }
    say(goal);
    return true;
  }

  std::string missing() {
    std::string text;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      if (!program_.works(rank)) text += fmt::format("worker{} is not in the job; ", rank);
    }
    return text;
  }

  // Only now the tables: all must be empty.
  std::string tables() {
    std::string text;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      SimWorker& worker = world_.worker(rank);
      const Node& node = worker.node();
      const std::string name = fmt::format("worker{}", rank);
      References& references = References::of(worker);
      if (!references.idle()) text += fmt::format("{}: {}; ", name, references.describe());
      const DebugInfo info = references.debug_info();
      if (!info.owned.empty() || !info.used.empty() || info.forks + info.pending_children + info.pending_users > 0) {
        text += fmt::format("{}: {}; ", name, info.text());
      }
      if (info.quarantined > 0) text += fmt::format("{} keeps {} workers in quarantine; ", name, info.quarantined);
      if (node.calls().made_count() > 0) text += fmt::format("{} waits for {}; ", name, node.calls().describe_made());
      if (node.calls().served_count() > 0) text += fmt::format("{} serves {}; ", name, node.calls().describe_served());
      if (!node.links().settled()) text += name + " waits for acknowledgements; ";
      // At most one link to the current life of each other worker: those of the dead must be gone.
      if (node.links().link_count() >= world_.size()) text += name + " has links to the dead; ";
    }
    return text;
  }

  void shut_down() {
    say("everybody shuts down");
    size_t released = 0;
    for (uint32_t rank = 0; rank < world_.size(); ++rank) {
      world_.worker(rank).shutdown(60s, [this, &released](Status status) {
        ++released;
        if (!status.ok()) ledger_.violation("a shutdown failed: " + status.failure().message);
      });
    }
    if (!world_.run([&] { return released == world_.size(); }, 60s)) {
      ledger_.violation("not all workers were released 60 s after they began to shut down");
    }
  }

  // ---- the trace

  void on_frame(const std::string& from, const std::string& to, const FrameHeader& header, const Message& message) {
    ++report_.messages;
    if (header.kind == kLost) {
      if (const Result<Lost> lost = wire::decode_message<Lost>(message)) program_.on_lost(lost->worker.id());
    }
    if (trace_ && !is_routine(header.kind)) say("{} -> {}: {}", from, to, text_of_frame(header, message));
  }

  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    if (trace_) say(fmt::format(format, std::forward<Args>(args)...));
  }
  void say(const std::string& text) {
    if (!trace_) return;
    const double now_ms = std::chrono::duration<double, std::milli>(world_.now().time_since_epoch()).count();
    trace_(fmt::format("{:>12.3f} ms  {}", now_ms, text));
  }

  Random random_;
  const TraceLine& trace_;
  double mishaps_ = 0;   // how likely
  bool healed_ = false;  // no more of them
  WorldReport report_;
  Ledger ledger_;
  CurrentLedger current_ledger_{&ledger_};
  World world_;
  Program program_;
};

}  // namespace

WorldReport run_rref_world(uint64_t seed, const TraceLine& trace) {
  seed_of_thread = seed;
  return RRefWorld(seed, trace).run();
}

uint64_t running_seed() { return seed_of_thread; }

std::string describe_violations(const WorldReport& report) {
  std::string text;
  for (const std::string& violation : report.violations) text += fmt::format("seed {}: {}\n", report.seed, violation);
  if (!text.empty()) text += fmt::format("`holdfast sim --seed {}` shows the whole history.\n", report.seed);
  return text;
}

}  // namespace holdfast::sim
