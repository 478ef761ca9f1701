#include <holdfast/optim/lr_schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <holdfast/base/error.h>

namespace holdfast::optim {

namespace {

void check_positive(int64_t steps) {
  if (steps < 1) {
    throw_failure({.code = Code::invalid_argument, .message = "a schedule's number of steps must be at least 1"});
  }
}

}  // namespace

LrFactor step_decay(int64_t every, double gamma) {
  check_positive(every);
  return [=](int64_t step) { return std::pow(gamma, static_cast<double>(step / every)); };
}

LrFactor exponential_decay(double gamma) { return step_decay(1, gamma); }

LrFactor cosine_decay(int64_t steps, double last) {
  check_positive(steps);
  return [=](int64_t step) {
    const double part = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return last + (1 - last) * (1 + std::cos(std::numbers::pi * part)) / 2;
  };
}

LrFactor warm_up(int64_t steps, LrFactor then) {
  check_positive(steps);
  return [steps, then = std::move(then)](int64_t step) {
    if (step < steps) return static_cast<double>(step + 1) / static_cast<double>(steps);
    return then ? then(step - steps) : 1.0;
  };
}

LrSchedule::LrSchedule(AnyOptimizer& optimizer, LrFactor factor) : optimizer_(optimizer), factor_(std::move(factor)) {
  for (size_t group = 0; group < optimizer.group_count(); ++group) {
    Rates& rates = rates_.emplace_back();
    rates.lr = optimizer.lr(group);
    for (const std::string& owner : optimizer.owners()) {
      const double own = optimizer.lr(group, owner);
      if (own != rates.lr) rates.of_owners[owner] = own;
    }
  }
  set_steps(0);
}

void LrSchedule::set_steps(int64_t steps) {
  steps_ = steps;
  const double factor = factor_(steps);
  for (size_t group = 0; group < rates_.size(); ++group) {
    optimizer_.set_lr(group, rates_[group].lr * factor);
    for (const auto& [owner, lr] : rates_[group].of_owners) optimizer_.set_lr(group, owner, lr * factor);
  }
}

}  // namespace holdfast::optim
