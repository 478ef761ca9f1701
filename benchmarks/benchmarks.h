// The benchmarks that there are.
#pragma once

#include "harness.h"

namespace holdfast::bench {

void run_rpc(const Settings& settings);
void run_rref(const Settings& settings);

}  // namespace holdfast::bench
