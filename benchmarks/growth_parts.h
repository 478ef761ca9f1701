// The parts of ./bench growth, one for each thing that there is more and more of.
#pragma once

#include <chrono>

#include "growth.h"
#include "harness.h"

namespace holdfast::bench {

// A call may take a thousand times as long where others use the cores: work that is made of calls ends early then.
inline std::chrono::milliseconds calls_time_max(const Settings& settings) {
  return std::chrono::milliseconds(settings.quick ? 300 : 1000);
}

void run_growth_pair(const Settings& settings, Report& report);
void run_growth_processes(const Settings& settings, Report& report);
void run_growth_simulated(const Settings& settings, Report& report);

}  // namespace holdfast::bench
