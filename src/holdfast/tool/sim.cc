#include <holdfast/tool/sim.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <holdfast/sim/backward_world.h>
#include <holdfast/sim/explore.h>
#include <holdfast/sim/sweep.h>
#include <holdfast/tool/launch_error.h>

namespace holdfast {

namespace {

struct SimCommandOptions {
  uint64_t seed = 0;
  uint64_t worlds = 0;
  uint64_t first_seed = 1;
  unsigned threads = 0;
  bool exhaustive = false;
  bool quick = false;
  bool passes = false;
};

constexpr const char* kSimFooter =
    R"(One seed makes one world: two to five workers on a simulated clock and network run a random program of
references while connections are cut, networks are partitioned, frames are lost, repeated and
reordered, and workers die and are replaced. Then everything heals, and must converge.

Checked meanwhile: nothing is freed while a live worker holds, or is being sent, a reference to it;
everything else is freed; every call completes once; no function runs twice; nothing is left over.

--passes takes worlds of distributed backward passes instead: random graphs over several workers, several
passes at once. Checked: each completes once; if it succeeds every gradient is right; nothing is left.

--exhaustive takes small worlds instead (up to three workers, one object, two shares, at most one cut or
one death) and tries every order in which their messages, handlers and timers can happen.

Exit status: 0 if all was as it must be, 1 if not. 2: wrong arguments.

Examples:
  holdfast sim --seed 7          one world, with everything that happens in it
  holdfast sim --seeds 10000     many worlds, on all cores
  holdfast sim --passes --seeds 1000
  holdfast sim --exhaustive      every order of small worlds; with --quick those that take a minute
)";

// An assertion of ours, or worse, ends the program: say in which world, then let it.
void on_crash(int number) {
  char digits[20];
  size_t at = sizeof digits;
  uint64_t seed = sim::running_seed();
  do digits[--at] = static_cast<char>('0' + seed % 10);
  while ((seed /= 10) > 0);
  constexpr std::string_view kBefore = "holdfast sim: this ended the program in the world of seed ";
  constexpr std::string_view kAfter = "; `holdfast sim --seed SEED` shows its history\n";
  for (const std::string_view part : {kBefore, std::string_view(digits + at, sizeof digits - at), kAfter}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, part.data(), part.size());
  }
  std::signal(number, SIG_DFL);
  std::raise(number);
}

int run_one(uint64_t seed) {
  const sim::WorldReport report = sim::run_rref_world(seed, [](const std::string& line) { std::puts(line.c_str()); });
  fmt::print("\nseed {}: {} actions, {} objects, {} calls, {} messages, trace hash {:016x}\n", seed, report.actions,
             report.objects, report.calls, report.messages, report.trace_hash);
  for (const std::string& violation : report.violations) fmt::print("VIOLATION {}\n", violation);
  if (report.violations.empty()) fmt::print("no violations\n");
  return report.violations.empty() ? 0 : 1;
}

void show_progress(uint64_t done, uint64_t all, uint64_t violated) {
  constexpr uint64_t kWidth = 40;
  const auto filled = static_cast<size_t>(kWidth * done / all);
  fmt::print(stderr, "\r[{}{}] {} of {} worlds, {} violated ", std::string(filled, '#'),
             std::string(kWidth - filled, '.'), done, all, violated);
}

unsigned thread_count(const SimCommandOptions& options) {
  return options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
}

int run_many(const SimCommandOptions& options) {
  sim::SweepOptions sweep{.first_seed = options.first_seed,
                          .worlds = options.worlds,
                          .threads = thread_count(options),
                          .progress = nullptr};
  const bool terminal = isatty(STDERR_FILENO) == 1;
  if (terminal) {
    sweep.progress = [&](uint64_t done, uint64_t violated) { show_progress(done, options.worlds, violated); };
  }
  const sim::SweepReport report = sim::sweep(sweep);
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  fmt::print("worlds      {:>12}\nmessages    {:>12}\nobjects     {:>12}\ncalls       {:>12}\nfaults\n", report.worlds,
             report.messages, report.objects, report.calls);
  for (size_t i = 0; i < report.faults.size(); ++i) {
    fmt::print("  {:<28} {:>10}\n", sim::kFaultNames[i], report.faults[i]);
  }
  fmt::print("violations  {:>12}{}\n", report.worlds_violated, report.worlds_violated > 0 ? " worlds" : "");
  for (const sim::WorldReport& world : report.violated) fmt::print("\n{}", sim::describe_violations(world));
  return report.worlds_violated == 0 ? 0 : 1;
}

int run_one_of_passes(uint64_t seed) {
  const sim::BackwardReport report =
      sim::run_backward_world(seed, [](const std::string& line) { std::puts(line.c_str()); });
  fmt::print("\nseed {}: {} contexts, {} passes, {} messages, trace hash {:016x}\n", seed, report.contexts,
             report.passes, report.messages, report.trace_hash);
  for (const std::string& violation : report.violations) fmt::print("VIOLATION {}\n", violation);
  if (report.violations.empty()) fmt::print("no violations\n");
  return report.violations.empty() ? 0 : 1;
}

int run_many_of_passes(const SimCommandOptions& options) {
  std::mutex mutex;
  uint64_t next = 0;
  uint64_t violated = 0;
  sim::BackwardReport total;
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto work = [&] {
    for (;;) {
      std::unique_lock lock(mutex);
      if (next == options.worlds) return;
      const uint64_t seed = options.first_seed + next++;
      if (terminal && next % 64 == 0) show_progress(next, options.worlds, violated);
      lock.unlock();
      const sim::BackwardReport report = sim::run_backward_world(seed);
      lock.lock();
      total.add(report);
      if (report.violations.empty()) continue;
      ++violated;
      fmt::print("VIOLATION in the world of seed {}: {}\n", seed, report.violations.front());
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count(options); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  fmt::print("worlds      {:>12}\nmessages    {:>12}\ncontexts    {:>12}\npasses      {:>12}\n", options.worlds,
             total.messages, total.contexts, total.passes);
  const std::pair<const char*, uint64_t> ends[] = {{"succeeded, FAST", total.fast_succeeded},
                                                   {"succeeded, SMART", total.smart_succeeded},
                                                   {"... over several workers", total.remote_succeeded},
                                                   {"failed: functions starved", total.starved},
                                                   {"failed: a function threw", total.threw},
                                                   {"failed: a worker was lost", total.lost},
                                                   {"cancelled", total.cancelled},
                                                   {"deaths of workers", total.deaths}};
  for (const auto& [name, count] : ends) fmt::print("  {:<28} {:>10}\n", name, count);
  fmt::print("violations  {:>12}{}\n", violated, violated > 0 ? " worlds" : "");
  return violated == 0 ? 0 : 1;
}

// One row for each small world, as they end.
int run_exhaustive(const SimCommandOptions& options) {
  const std::vector<sim::Scenario> scenarios = sim::small_worlds(options.quick);
  std::mutex mutex;
  size_t next = 0;
  uint64_t states = 0;
  bool good = true;
  fmt::print("{}\n", sim::explore_table_head());
  const auto work = [&] {
    for (;;) {
      std::unique_lock lock(mutex);
      if (next == scenarios.size()) return;
      const sim::Scenario& scenario = scenarios[next++];
      lock.unlock();
      const sim::ExploreReport report = sim::explore(scenario);
      lock.lock();
      states += report.states;
      good = good && report.good();
      fmt::print("{}\n", sim::explore_table_row(report));
      if (!report.violation.empty()) fmt::print("VIOLATION {}\n", report.violation);
      for (const std::string& line : report.trace) fmt::print("  {}\n", line);
      std::fflush(stdout);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < thread_count(options); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  fmt::print("{} small worlds, {} states, {}\n", scenarios.size(), states,
             good ? "no violations" : "NOT as it must be");
  return good ? 0 : 1;
}

}  // namespace

CommandBody add_sim_command(CLI::App& app) {
  auto options = std::make_shared<SimCommandOptions>();
  app.footer(kSimFooter);
  CLI::Option* seed =
      app.add_option("--seed", options->seed, "Run the world of this seed and print its history")->type_name("SEED");
  app.add_option("--seeds", options->worlds, "Run so many worlds")->excludes(seed)->type_name("COUNT");
  app.add_option("--first-seed", options->first_seed, "The first seed of --seeds (1)")->type_name("SEED");
  app.add_option("--jobs", options->threads, "Worlds to run at the same time (as many as there are cores)")
      ->type_name("COUNT");
  CLI::Option* exhaustive =
      app.add_flag("--exhaustive", options->exhaustive, "Try every order of small worlds")->excludes(seed);
  app.add_flag("--passes", options->passes, "Worlds of backward passes instead of references")->excludes(exhaustive);
  app.add_flag("--quick", options->quick, "With --exhaustive: only those that take seconds")->needs(exhaustive);
  return [options, seed](const std::vector<std::string>& rest) {
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE}) std::signal(number, on_crash);
    if (!rest.empty()) throw LaunchError(kStatusUsage, "unknown argument: " + rest[0]);
    if (seed->count() > 0) return options->passes ? run_one_of_passes(options->seed) : run_one(options->seed);
    if (options->exhaustive) return run_exhaustive(*options);
    if (options->worlds == 0) {
      throw LaunchError(kStatusUsage, "say which world (--seed), how many (--seeds), or all small ones (--exhaustive)");
    }
    return options->passes ? run_many_of_passes(*options) : run_many(*options);
  };
}

}  // namespace holdfast
