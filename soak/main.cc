// The soak: several workers do random work with each other, round after round, under faults that Options::faults makes.
// After each round everything is let go, and worker 0 looks: did every call run once, is anything still held, do
// memory, descriptors or threads grow? tools/soak starts it.
#include <fmt/color.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "watch.h"
#include "work.h"

namespace hf = holdfast;
using namespace std::chrono_literals;

namespace {

constexpr auto kRound = 5s;
// The first rounds fill pools and caches: growth is looked for after them, in runs that are long enough to tell.
constexpr double kWarmUp = 0.2;
constexpr size_t kRoundsToJudgeMin = 24;
constexpr size_t kRoundsForLow = 12;
// More than this, over what is left of the run, is growth.
constexpr double kGrowthBytesMax = 4e6;
constexpr double kGrowthCountMax = 2;

soak::Sample sample_here() { return soak::sample(hf::current_worker()); }

struct Totals {
  uint64_t calls = 0, references = 0, passes = 0, bytes = 0, lost = 0, doubled = 0, faults = 0;
};

class Soak {
 public:
  Soak(hf::Worker& worker, std::string only)
      : worker_(worker), only_(std::move(only)), heap_(size()), descriptors_(size()), threads_(size()) {}

  bool run(int64_t rounds, uint64_t seed) {
    for (int64_t round = 1; round <= rounds; ++round) {
      play(seed + static_cast<uint64_t>(round));
      if (!let_go() || !failure_.empty()) break;
      look();
      show(round, rounds);
    }
    return judge();
  }

 private:
  size_t size() const { return static_cast<size_t>(worker_.world_size()); }
  hf::Peer peer(size_t rank) { return worker_.peer(static_cast<int>(rank)).with_timeout(hf::kForever); }

  template <auto function, class... Args>
  auto on_all(const Args&... args) {
    std::vector<decltype(peer(0).async<function>(args...))> calls;
    for (size_t rank = 0; rank < size(); ++rank) calls.push_back(peer(rank).async<function>(args...));
    std::vector<std::decay_t<decltype(calls[0].get())>> results;
    for (auto& call : calls) results.push_back(call.get());
    return results;
  }

  void play(uint64_t seed) {
    const int64_t milliseconds = std::chrono::milliseconds(kRound).count();
    std::vector<soak::Done> done = on_all<soak::work>(seed, milliseconds, only_);
    std::vector<soak::Ran> ran = on_all<soak::take_ran>();
    for (uint32_t caller = 0; caller < size(); ++caller) {
      totals_.calls += done[caller].calls;
      totals_.references += done[caller].references;
      totals_.passes += done[caller].passes;
      totals_.bytes += done[caller].bytes;
      totals_.doubled += ran[caller].doubled;
      if (failure_.empty()) failure_ = done[caller].wrong;
      for (uint32_t callee = 0; callee < size(); ++callee) {
        const uint64_t made = done[caller].made[callee];
        const uint64_t run = ran[callee].of[caller];
        if (run < made) totals_.lost += made - run;
        if (run > made) totals_.doubled += run - made;
      }
    }
  }

  // What was dropped takes a moment to be gone everywhere.
  bool let_go() {
    std::string held;
    for (int tries = 0; tries < 300; ++tries) {
      held.clear();
      samples_ = on_all<sample_here>();
      for (size_t rank = 0; rank < size(); ++rank) {
        if (samples_[rank].tables > 0) held += fmt::format("worker {} holds:\n{}", rank, samples_[rank].held);
      }
      if (held.empty()) return true;
      std::this_thread::sleep_for(100ms);
    }
    if (failure_.empty()) failure_ = "after half a minute without work something is still held:\n" + held;
    return false;
  }

  void look() {
    totals_.faults = 0;
    for (size_t rank = 0; rank < size(); ++rank) {
      heap_[rank].push_back(static_cast<double>(samples_[rank].heap_bytes));
      descriptors_[rank].push_back(static_cast<double>(samples_[rank].descriptors));
      threads_[rank].push_back(static_cast<double>(samples_[rank].threads));
      totals_.faults += samples_[rank].faults;
    }
  }

  void show(int64_t round, int64_t rounds) const {
    double heap = 0;
    for (const auto& values : heap_) heap += values.back();
    const std::string line = fmt::format(
        "{:3}%  {} calls, {} references, {} passes, {:.1f} GB; {} faults, {} lost, {} doubled; heap {:.2f} MB",
        100 * round / rounds, totals_.calls, totals_.references, totals_.passes,
        static_cast<double>(totals_.bytes) / 1e9, totals_.faults, totals_.lost, totals_.doubled, heap / 1e6);
    fmt::print("{}\n", line);
    std::fflush(stdout);
  }

  // The growth of one number of one worker over the rounds after the warm-up.
  static double growth(const std::vector<double>& values) {
    const size_t skip = static_cast<size_t>(kWarmUp * static_cast<double>(values.size()));
    const std::vector<double> rest(values.begin() + static_cast<std::ptrdiff_t>(skip), values.end());
    return soak::slope(rest) * static_cast<double>(rest.size());
  }

  // The least of every so many rounds. Threads and descriptors come and go with the load; what is never given back
  // lifts the least of them, too.
  static std::vector<double> lows(const std::vector<double>& values) {
    std::vector<double> least;
    for (size_t at = 0; at + kRoundsForLow <= values.size(); at += kRoundsForLow) {
      const auto from = values.begin() + static_cast<std::ptrdiff_t>(at);
      least.push_back(*std::min_element(from, from + std::ptrdiff_t{kRoundsForLow}));
    }
    return least;
  }

  bool judge() {
    fmt::print("\n{:8} {:>14} {:>22} {:>14} {:>10}\n", "worker", "heap in use", "heap's slope per min", "descriptors",
               "threads");
    const double rounds_per_minute = 60.0 / std::chrono::duration<double>(kRound).count();
    for (size_t rank = 0; rank < size() && !heap_[rank].empty(); ++rank) {
      const double rest = (1 - kWarmUp) * static_cast<double>(heap_[rank].size());
      const double bytes = growth(heap_[rank]);
      fmt::print("{:8} {:>11.2f} MB {:>16.1f} kB/min {:>7} ({:+.1f}) {:>5} ({:+.1f})\n", rank, heap_[rank].back() / 1e6,
                 bytes / rest * rounds_per_minute / 1e3, descriptors_[rank].back(), growth(lows(descriptors_[rank])),
                 threads_[rank].back(), growth(lows(threads_[rank])));
      const auto grows = [&](double by, double most, const char* what) {
        if (heap_[rank].size() < kRoundsToJudgeMin || by <= most || !failure_.empty()) return;
        failure_ = fmt::format("worker {}: {} grow: by {:.0f}", rank, what, by);
      };
      grows(bytes, kGrowthBytesMax, "the bytes in use");
      grows(growth(lows(descriptors_[rank])), kGrowthCountMax, "descriptors");
      grows(growth(lows(threads_[rank])), kGrowthCountMax, "threads");
    }
    if (failure_.empty() && totals_.lost + totals_.doubled > 0) failure_ = "calls were lost or ran twice";
    fmt::print("{} calls, {} lost, {} doubled, {} faults\n", totals_.calls, totals_.lost, totals_.doubled,
               totals_.faults);
    if (failure_.empty()) {
      const bool is_long = heap_[0].size() >= kRoundsToJudgeMin;
      fmt::print("Everything ran once, nothing is left, {}.\n",
                 is_long ? "nothing grows" : "and the run was too short to see whether anything grows");
    } else {
      fmt::print("FAILED: {}\n", failure_);
    }
    return failure_.empty();
  }

  hf::Worker& worker_;
  const std::string only_;
  Totals totals_;
  std::string failure_;
  std::vector<soak::Sample> samples_;
  // By worker, one number for each round.
  std::vector<std::vector<double>> heap_, descriptors_, threads_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Random work of several workers under faults; fails if calls are lost or doubled, or anything grows.");
  double minutes = 1;
  uint64_t seed = 1;
  app.add_option("--minutes", minutes, "How long")->check(CLI::PositiveNumber);
  app.add_option("--seed", seed, "Of the random work");
  std::string only;
  app.add_option("--only", only, "One kind of work")->check(CLI::IsMember({"calls", "large", "references", "passes"}));
  CLI11_PARSE(app, argc, argv);

  hf::Worker worker(hf::Options::from_env());
  if (worker.world_size() < 2) {
    std::fprintf(stderr, "soak needs two workers or more: tools/soak, or holdfast run -n 4 soak\n");
    return 2;
  }
  bool good = true;
  if (worker.rank() == 0) {
    const double rounds = minutes * 60 / std::chrono::duration<double>(kRound).count();
    good = Soak(worker, only).run(std::max<int64_t>(1, static_cast<int64_t>(rounds)), seed);
  }
  worker.shutdown(hf::kForever);
  return good ? 0 : 1;
}
