// Many worlds at once: runs the seeds from `first` on, on several threads, and adds up what they report.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include <holdfast/sim/rref_world.h>

namespace holdfast::sim {

struct SweepReport {
  uint64_t worlds = 0;
  uint64_t messages = 0;
  uint64_t actions = 0;
  uint64_t objects = 0;
  uint64_t calls = 0;
  std::array<uint64_t, kFaultNames.size()> faults{};
  uint64_t worlds_violated = 0;
  std::vector<WorldReport> violated;  // the first few, by seed

  void add(WorldReport world);
};

struct SweepOptions {
  uint64_t first_seed = 1;
  uint64_t worlds = 1000;
  unsigned threads = 2;
  // Called on the thread that sweeps, now and then, with how many worlds are done.
  std::function<void(uint64_t worlds_done, uint64_t violated)> progress;
};

SweepReport sweep(const SweepOptions& options);

}  // namespace holdfast::sim
