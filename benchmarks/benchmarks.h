// The benchmarks that there are.
#pragma once

#include "harness.h"

namespace holdfast::bench {

void run_rpc(const Settings& settings, Report& report);
void run_rref(const Settings& settings, Report& report);
void run_growth(const Settings& settings, Report& report);
// In torch/, built only with libtorch.
void run_peers(const Settings& settings, Report& report);
void run_tensor(const Settings& settings, Report& report);
void run_autograd(const Settings& settings, Report& report);

}  // namespace holdfast::bench
