// What the workers of the soak do to each other: random calls, large values, references and backward passes, each of
// which checks its own result. Every call that counts carries a number, and its callee writes down that it ran.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <holdfast/holdfast.h>

namespace soak {

// What one worker did to another in one round, as each of the two saw it.
using Counts = std::map<uint32_t, uint64_t>;  // by the other's rank

struct Done {
  Counts made;  // calls that have returned, by callee
  uint64_t calls = 0;
  uint64_t references = 0;
  uint64_t passes = 0;
  uint64_t bytes = 0;
  std::string wrong;  // empty: everything was as it must be
  HOLDFAST_FIELDS(Done, made, calls, references, passes, bytes, wrong)
};

// Runs on every worker: random work with all others for that long, from several threads. `only`: of this kind ("calls",
// "large", "references", "passes"); empty: of all.
Done work(uint64_t seed, int64_t milliseconds, std::string only);
// How many counted calls of each caller have run here since it was last asked; those that ran twice are in `doubled`.
struct Ran {
  Counts of;  // by caller
  uint64_t doubled = 0;
  HOLDFAST_FIELDS(Ran, of, doubled)
};
Ran take_ran();

}  // namespace soak
