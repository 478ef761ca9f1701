// The parts of ./bench growth, one for each thing that there is more and more of.
#pragma once

#include "growth.h"
#include "harness.h"

namespace holdfast::bench {

void run_growth_pair(const Settings& settings, Report& report);
void run_growth_processes(const Settings& settings, Report& report);
void run_growth_simulated(const Settings& settings, Report& report);

}  // namespace holdfast::bench
