// The benchmarks that there are.
#pragma once

#include "harness.h"

namespace holdfast::bench {

void run_rpc(const Settings& settings);
void run_rref(const Settings& settings);
// In torch/, built only with libtorch.
void run_peers(const Settings& settings);
void run_tensor(const Settings& settings);
void run_autograd(const Settings& settings);

}  // namespace holdfast::bench
