// ./bench growth: what a call, a reference, a link and a worker cost as there are more and more of them, each with the
// exponent of its growth.
#include "benchmarks.h"
#include "growth_parts.h"

namespace holdfast::bench {

void run_growth(const Settings& settings, Report& report) {
  run_growth_processes(settings, report);  // first: its children have in common with this process what that has
  run_growth_pair(settings, report);
  run_growth_simulated(settings, report);
}

}  // namespace holdfast::bench
