#include "watch.h"

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>

#include <fmt/format.h>

#ifdef HOLDFAST_WITH_TORCH
#include <holdfast/autograd/context.h>
#endif

namespace soak {

namespace {

uint64_t entries(const char* directory) {
  DIR* open = opendir(directory);
  if (open == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = readdir(open)) count += entry->d_name[0] != '.';
  closedir(open);
  return count;
}

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

Sample sample(holdfast::Worker& worker) {
  malloc_trim(0);
  Sample result;
  const struct mallinfo2 heap = mallinfo2();
  result.heap_bytes = heap.uordblks + heap.hblkhd;
  result.resident_bytes = resident_bytes();
  result.descriptors = entries("/proc/self/fd") - 1;  // the one that reads the list
  result.threads = entries("/proc/self/task");
  result.faults = worker.stats().faults;
  const holdfast::DebugInfo references = worker.debug_info();
  result.tables = references.owned.size() + references.used.size() + references.forks + references.pending_children +
                  references.pending_users + references.quarantined;
  if (result.tables > 0) result.held = references.text();
#ifdef HOLDFAST_WITH_TORCH
  const holdfast::autograd::DebugInfo passes = holdfast::autograd::debug_info(worker);
  const uint64_t of_passes = passes.contexts + passes.sends + passes.recvs + passes.passes;
  result.tables += of_passes;
  if (of_passes > 0) {
    result.held += fmt::format("{} contexts, {} sends, {} recvs, {} passes\n", passes.contexts, passes.sends,
                               passes.recvs, passes.passes);
  }
#endif
  return result;
}

double slope(const std::vector<double>& values) {
  const double n = static_cast<double>(values.size());
  double sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double x = static_cast<double>(i);
    sum_x += x;
    sum_y += values[i];
    sum_xx += x * x;
    sum_xy += x * values[i];
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  return spread == 0 ? 0 : (n * sum_xy - sum_x * sum_y) / spread;
}

}  // namespace soak
