// ./bench growth, its part between two workers: calls that are under way at the same time, and references that live at
// the same time.
#include <holdfast/holdfast.h>

#include <unistd.h>

#include <deque>

#include "growth_parts.h"
#include "process_use.h"
#include "worker_pair.h"

namespace holdfast::bench {

namespace {

int64_t pair_echo(int64_t n) { return n; }

struct OwnerCost {
  uint64_t heap_bytes = 0;
  uint64_t objects = 0;
  HOLDFAST_FIELDS(OwnerCost, heap_bytes, objects)
};
OwnerCost owner_cost() { return {.heap_bytes = heap_bytes(), .objects = current_worker().debug_info().owned.size()}; }

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// At most so many calls, and no more than are needed to have so many in flight once the time is over.
double us_per_call(const Peer& peer, size_t in_flight, size_t count_max, std::chrono::milliseconds time_max) {
  std::deque<Future<int64_t>> waiting;
  const auto start = std::chrono::steady_clock::now();
  size_t count = 0;
  while (count < 2 * in_flight || (count < count_max && std::chrono::steady_clock::now() - start < time_max)) {
    if (waiting.size() == in_flight) {
      waiting.front().wait();
      waiting.pop_front();
    }
    waiting.push_back(peer.async<pair_echo>(static_cast<int64_t>(count++)));
  }
  for (const auto& future : waiting) future.wait();
  return microseconds_since(start) / static_cast<double>(count);
}

void until_owner_has(const Peer& owner, uint64_t objects) {
  while (owner.call<owner_cost>().objects != objects) usleep(1000);
}

void measure_live_references(const Settings& settings, const Peer& owner, size_t count, Growth& growth) {
  const auto each = [&](double all) { return all / static_cast<double>(count); };
  const uint64_t owner_before = owner.call<owner_cost>().heap_bytes;
  std::vector<RRef<int64_t>> held;
  held.reserve(count);
  const uint64_t here_before = heap_bytes();
  auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) held.push_back(owner.remote<pair_echo>(static_cast<int64_t>(i)));
  until_owner_has(owner, count);
  growth.add("time to make one", "us", count, each(microseconds_since(start)), 2);
  growth.add("memory of one, its owner's", "bytes", count,
             each(static_cast<double>(owner.call<owner_cost>().heap_bytes) - static_cast<double>(owner_before)), 0);
  growth.add("memory of one, its user's", "bytes", count,
             each(static_cast<double>(heap_bytes()) - static_cast<double>(here_before)), 0);
  growth.add("time per call while they live", "us", count, us_per_call(owner, 1, 1000, calls_time_max(settings)), 1);
  start = std::chrono::steady_clock::now();
  held.clear();
  until_owner_has(owner, 0);
  growth.add("time to drop one", "us", count, each(microseconds_since(start)), 2);
}

}  // namespace

void run_growth_pair(const Settings& settings, Report& report) {
  WorkerPair pair;
  pair.start();
  const Peer peer = pair.peer();
  us_per_call(peer, 128, 2000, calls_time_max(settings));  // warms up
  Growth calls("calls in flight"), references("live references");
  for (size_t round = 0; round < settings.rounds(); ++round) {
    for (const size_t in_flight : {1, 8, 64, 512, 4096, 32768}) {
      calls.add("time per call", "us", in_flight,
                us_per_call(peer, in_flight, settings.scaled(50000), calls_time_max(settings)), 2);
    }
    for (const size_t count : {1000, 10000, 100000}) {
      if (count < 100000 || !settings.quick) measure_live_references(settings, peer, count, references);
    }
  }
  calls.tell(report);
  references.tell(report);
  pair.worker().shutdown(kForever);
}

}  // namespace holdfast::bench
