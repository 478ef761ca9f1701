// Cores of this machine, as the scheduler's masks.
#pragma once

#include <sched.h>

#include <optional>

namespace holdfast {

struct Cores {
  cpu_set_t all;     // that this thread may use
  cpu_set_t others;  // without the one it is on
};
// Nothing if there are no others.
std::optional<Cores> find_cores();

}  // namespace holdfast
