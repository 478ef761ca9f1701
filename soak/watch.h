// What a worker holds at one moment, and whether it grows: for the soak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <holdfast/holdfast.h>

namespace soak {

struct Sample {
  uint64_t heap_bytes = 0;      // in use, after freed memory was given back
  uint64_t resident_bytes = 0;  // what the system counts
  uint64_t descriptors = 0;
  uint64_t threads = 0;
  uint64_t tables = 0;  // objects, forks, references, calls, contexts, passes: those of the soak's own work
  std::string held;     // the same for people; empty if there is nothing
  uint64_t faults = 0;  // made so far
  HOLDFAST_FIELDS(Sample, heap_bytes, resident_bytes, descriptors, threads, tables, held, faults)
};

// Of this process and its worker.
Sample sample(holdfast::Worker& worker);

// The straight line through the points (i, values[i]) that lies nearest to them, in values per step.
double slope(const std::vector<double>& values);

}  // namespace soak
