// One seed makes one world of backward passes: workers that build random toy graphs (backward_toy.h) by sending values
// to each other in several contexts, and then run passes over them, in both modes, several at once; while connections
// are cut, networks partitioned, frames lost, repeated and reordered, workers die and are replaced, passes are
// cancelled and contexts end. Checked: each pass completes exactly once; if it succeeds every leaf on every worker has
// what the reference says; if it fails there is a reason for it; and at the end nothing is left anywhere.
//
// Any thread may run a world; several may run at the same time, on a thread each.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <holdfast/sim/rref_world.h>

namespace holdfast::sim {

struct BackwardReport {
  uint64_t seed = 0;
  uint64_t trace_hash = 0;
  uint64_t messages = 0;
  uint64_t contexts = 0;
  uint64_t passes = 0;
  // Of passes: how they ended.
  uint64_t fast_succeeded = 0;
  uint64_t smart_succeeded = 0;
  uint64_t remote_succeeded = 0;  // of these: with more than one worker
  uint64_t starved = 0;
  uint64_t threw = 0;
  uint64_t lost = 0;
  uint64_t cancelled = 0;
  uint64_t refused_contexts = 0;  // messages that carried a context which had ended
  uint64_t deaths = 0;
  std::vector<std::string> violations;

  void add(const BackwardReport& other);  // all but seed and hash
};

BackwardReport run_backward_world(uint64_t seed, const TraceLine& trace = nullptr);

}  // namespace holdfast::sim
