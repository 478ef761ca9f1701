#include "process_use.h"

#include <malloc.h>
#include <time.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace holdfast::bench {

uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t own_memory_bytes() {
  std::ifstream file("/proc/self/smaps_rollup");
  if (!file) throw std::runtime_error("cannot read /proc/self/smaps_rollup");
  uint64_t kib = 0;
  std::string word;
  while (file >> word) {
    if (word != "Private_Dirty:" && word != "Pss_Shmem:") continue;
    uint64_t part = 0;
    file >> part;
    kib += part;
  }
  return kib * 1024;
}

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

}  // namespace holdfast::bench
