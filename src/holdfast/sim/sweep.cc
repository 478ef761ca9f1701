#include <holdfast/sim/sweep.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace holdfast::sim {

namespace {

constexpr size_t kViolatedKept = 5;
constexpr auto kProgressEvery = std::chrono::milliseconds(200);

}  // namespace

void SweepReport::add(WorldReport world) {
  ++worlds;
  messages += world.messages;
  actions += world.actions;
  objects += world.objects;
  calls += world.calls;
  for (size_t i = 0; i < faults.size(); ++i) faults[i] += world.faults[i];
  if (world.violations.empty()) return;
  ++worlds_violated;
  violated.push_back(std::move(world));
  std::sort(violated.begin(), violated.end(), [](const auto& a, const auto& b) { return a.seed < b.seed; });
  if (violated.size() > kViolatedKept) violated.pop_back();
}

SweepReport sweep(const SweepOptions& options) {
  SweepReport total;
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<uint64_t> next{0};
  unsigned running = std::max(options.threads, 1u);
  std::vector<std::thread> threads;
  for (unsigned i = running; i > 0; --i) {
    threads.emplace_back([&] {
      for (uint64_t at = next++; at < options.worlds; at = next++) {
        WorldReport world = run_rref_world(options.first_seed + at);
        std::lock_guard lock(mutex);
        total.add(std::move(world));
      }
      std::lock_guard lock(mutex);
      --running;
      changed.notify_one();
    });
  }
  std::unique_lock lock(mutex);
  while (!changed.wait_for(lock, kProgressEvery, [&] { return running == 0; })) {
    if (options.progress) options.progress(total.worlds, total.worlds_violated);
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  return total;
}

}  // namespace holdfast::sim
