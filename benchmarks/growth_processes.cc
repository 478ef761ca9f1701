// ./bench growth, its part with real workers: processes on this machine, far more of them than cores in the end.
#include <holdfast/holdfast.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>

#include "growth_parts.h"
#include "process_use.h"
#include "worker_crowd.h"

namespace holdfast::bench {

namespace {

// In a child: what its process had when its worker was about to join, and has once it has joined.
uint64_t bytes_before_join = 0;
uint64_t bytes_after_join = 0;
const WorkerCrowd::Watch kWatchMemory = {.before_join = [] { bytes_before_join = own_memory_bytes(); },
                                         .after_join = [] { bytes_after_join = own_memory_bytes(); }};

int64_t crowd_echo(int64_t n) { return n; }

struct MemberCost {
  uint64_t join_bytes = 0;
  uint64_t connections = 0;
  HOLDFAST_FIELDS(MemberCost, join_bytes, connections)
};
MemberCost member_cost() {
  return {.join_bytes = bytes_after_join - bytes_before_join, .connections = current_worker().stats().connections};
}

int next_rank() { return (current_worker().rank() + 1) % current_worker().world_size(); }

// Calls the next worker, one call after the other, for so long. Answers how many calls that were.
uint64_t call_next(std::chrono::milliseconds time) {
  const Peer next = current_worker().peer(next_rank());
  const auto until = std::chrono::steady_clock::now() + time;
  uint64_t count = 0;
  while (std::chrono::steady_clock::now() < until) next.call<crowd_echo>(static_cast<int64_t>(count++));
  return count;
}

// Calls everybody; answers how many bytes this process has more than before, for each link that this made.
double bytes_per_new_link() {
  Worker& worker = current_worker();
  const size_t links = worker.stats().links;
  const uint64_t before = own_memory_bytes();
  for (int rank = 0; rank < worker.world_size(); ++rank) worker.peer(rank).call<crowd_echo>(1);
  const double more = static_cast<double>(own_memory_bytes()) - static_cast<double>(before);
  return more / static_cast<double>(worker.stats().links - links);
}

// Never answers. No thread waits for it meanwhile.
std::atomic<uint64_t> waiting_here = 0;
Future<int64_t> never() {
  static std::deque<Promise<int64_t>> promises;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ++waiting_here;
  return promises.emplace_back().future();
}
uint64_t waiting_count() { return waiting_here; }
// Returns when this worker knows that the other is dead.
void wait_for_death(int rank) {
  try {
    current_worker().peer(rank).with_timeout(kForever).call<never>();
  } catch (const WorkerLost&) {
  }
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// All workers call their next one at the same time.
double us_per_call_of_all(Worker& worker, std::chrono::milliseconds time) {
  std::vector<Future<uint64_t>> counts;
  const auto start = std::chrono::steady_clock::now();
  for (int rank = 0; rank < worker.world_size(); ++rank) {
    counts.push_back(worker.peer(rank).with_timeout(kForever).async<call_next>(time));
  }
  uint64_t calls = 0;
  for (const Future<uint64_t>& count : counts) calls += count.get();
  return milliseconds_since(start) * 1e3 / static_cast<double>(calls);
}

double call_p50_us(const Peer& peer, size_t count_max, std::chrono::milliseconds time_max) {
  Latencies latencies;
  const auto begin = std::chrono::steady_clock::now();
  auto now = begin;
  for (size_t i = 0; i < count_max && now - begin < time_max; ++i) {
    const auto start = now;
    peer.call<crowd_echo>(static_cast<int64_t>(i));
    now = std::chrono::steady_clock::now();
    latencies.add(now - start);
  }
  return latencies.percentile(0.5);
}

// From the death of the last worker until all who wait for its answer have heard of it.
double milliseconds_to_hear_of_death(WorkerCrowd& crowd) {
  Worker& worker = crowd.worker();
  const int victim = worker.world_size() - 1;
  std::vector<Future<void>> waiting;
  for (int rank = 0; rank < victim; ++rank) {
    waiting.push_back(worker.peer(rank).with_timeout(kForever).async<wait_for_death>(victim));
  }
  while (worker.peer(victim).call<waiting_count>() < waiting.size()) usleep(1000);
  const auto start = std::chrono::steady_clock::now();
  crowd.kill(victim);
  for (Future<void>& one : waiting) one.get();
  return milliseconds_since(start);
}

// Takes a result: what, unit, value, digits.
using Tell = std::function<void(const char*, const char*, double, int)>;

void measure_crowd(const Settings& settings, int size, const Tell& tell) {
  WorkerCrowd crowd(size, kWatchMemory);
  tell("time to join", "ms", crowd.start() * 1e3, 1);
  Worker& worker = crowd.worker();
  tell("connections of a worker that has only joined", "connections", static_cast<double>(worker.stats().connections),
       0);
  if (size > 1) {
    tell("call, p50, the others idle", "us",
         call_p50_us(worker.peer(1), settings.scaled(5000), calls_time_max(settings)), 1);
    tell("call, all call their next at once: time per call", "us", us_per_call_of_all(worker, calls_time_max(settings)),
         1);
    double connections = 0, join_bytes = 0;
    for (int rank = 1; rank < size; ++rank) {
      const MemberCost cost = worker.peer(rank).call<member_cost>();
      connections += static_cast<double>(cost.connections) / (size - 1);
      join_bytes += static_cast<double>(cost.join_bytes) / (size - 1);
    }
    tell("memory per worker that has joined", "KiB", join_bytes / 1024, 0);
    tell("connections of a worker that speaks with three others", "connections", connections, 1);
  }
  if (size > 4) {  // enough new links to divide by
    tell("memory per link, one end", "KiB", worker.peer(1).call<bytes_per_new_link>() / 1024, 1);
  }
  if (size > 1) {
    tell("death, told by the launcher: until all have heard", "ms", milliseconds_to_hear_of_death(crowd), 1);
  }
  tell("time to shut down together", "ms", crowd.shutdown() * 1e3, 1);
}

// Each crowd comes from a process that never had one before: what others left in the heap would count as its own.
void measure_crowd_apart(const Settings& settings, int size, Growth& growth) {
  int results[2];
  if (pipe(results) != 0) throw std::runtime_error("pipe failed");
  Child child([&] {
    FILE* const out = fdopen(results[1], "w");
    measure_crowd(settings, size, [&](const char* what, const char* unit, double value, int digits) {
      fmt::print(out, "{}\t{}\t{}\t{}\n", what, unit, value, digits);
    });
    fclose(out);
  });
  close(results[1]);
  FILE* const in = fdopen(results[0], "r");
  char what[128], unit[32];
  double value = 0;
  int digits = 0;
  while (fscanf(in, " %127[^\t]\t%31[^\t]\t%lf\t%d", what, unit, &value, &digits) == 4) {
    growth.add(what, unit, static_cast<size_t>(size), value, digits);
  }
  fclose(in);
  if (!child.wait()) throw std::runtime_error(fmt::format("a crowd of {} workers could not be measured", size));
}

}  // namespace

void run_growth_processes(const Settings& settings, Report& report) {
  Growth growth("workers");
  const std::vector<int> sizes = settings.quick ? std::vector<int>{1, 4, 16, 64} : std::vector<int>{1, 4, 16, 64, 256};
  for (size_t round = 0; round < (settings.quick ? 1 : 3); ++round) {
    for (const int size : sizes) measure_crowd_apart(settings, size, growth);
  }
  growth.tell(report);
}

}  // namespace holdfast::bench
