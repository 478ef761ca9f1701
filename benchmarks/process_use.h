// What a process takes, for benchmarks that measure the growth of it.
#pragma once

#include <cstdint>

namespace holdfast::bench {

// Allocated and not freed, in all arenas.
uint64_t heap_bytes();
// Pages that this process alone has, and its part of memory that it shares with other workers. Without what a child has
// in common with the process that forked it.
uint64_t own_memory_bytes();
// Of all threads of this process so far.
double cpu_seconds();

}  // namespace holdfast::bench
