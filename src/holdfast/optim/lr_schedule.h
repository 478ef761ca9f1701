// LrSchedule: learning rates that change as training goes on. It takes the rates that an optimizer has when the
// schedule is made, of each group and owner, and after the n-th step() sets each to rate * factor(n).
//
//   hf::optim::LrSchedule schedule(optimizer, hf::optim::step_decay(30, 0.1));
//   for (...) { ...; optimizer.step(context); schedule.step(); }
//
// Used by the thread that uses the optimizer, which must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <holdfast/optim/any_optimizer.h>

namespace holdfast::optim {

using LrFactor = std::function<double(int64_t step)>;

// Times gamma after every so many steps.
LrFactor step_decay(int64_t every, double gamma);
// Times gamma after every step.
LrFactor exponential_decay(double gamma);
// Half a cosine from 1 to `last`, and from then on `last`.
LrFactor cosine_decay(int64_t steps, double last = 0);
// Grows evenly to 1 over so many steps, the first of them being 1 / steps; then as `then`, counted from there.
LrFactor warm_up(int64_t steps, LrFactor then = nullptr);

class LrSchedule {
 public:
  // Sets the rates for step 0.
  LrSchedule(AnyOptimizer& optimizer, LrFactor factor);

  void step() { set_steps(steps_ + 1); }
  int64_t steps() const { return steps_; }
  // As if step() had been called so often: to continue a job.
  void set_steps(int64_t steps);

 private:
  struct Rates {
    double lr = 0;
    std::map<std::string, double> of_owners;  // those that differ
  };
  AnyOptimizer& optimizer_;
  const LrFactor factor_;
  std::vector<Rates> rates_;  // of each group, at the beginning
  int64_t steps_ = 0;
};

}  // namespace holdfast::optim
