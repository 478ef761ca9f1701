#include <holdfast/transport/spin_policy.h>

#include <sched.h>

#include <algorithm>

namespace holdfast {

namespace {

// Most answers come sooner, so most spins give no turn away.
constexpr Duration kYieldEvery = std::chrono::microseconds(4);

}  // namespace

Duration SpinPolicy::begin(Time now) {
  began_ = now;
  spun_ = false;
  if (average_ > kWorthwhile || now < paused_until_) return Duration::zero();
  if (skip_ > 0) {
    --skip_;
    return Duration::zero();
  }
  spun_ = true;
  return std::max(kSpinMin, 2 * average_);
}

void SpinPolicy::end(Time now, bool slept) {
  const Duration took = now - began_;
  average_ += (std::min(took, kWaitMax) - average_) / 4;
  if (!spun_) return;
  failures_ = slept || took > kGain ? std::min(failures_ + 1, kFailuresMax) : 0;
  skip_ = failures_ == 0 ? 0 : (uint32_t{1} << failures_) - 2;
}

bool SpinPolicy::go_on_after_yield(Time now, Duration took) {
  if (took <= kYieldMax) {
    ++quick_yields_;
    return true;
  }
  pause_ = quick_yields_ >= kQuickYields ? kPauseMin : std::min(2 * pause_, kPauseMax);
  quick_yields_ = 0;
  paused_until_ = now + pause_;
  return false;
}

Spin::Spin(SpinPolicy* policy, Time until) : policy_(policy) {
  if (policy_ == nullptr) return;
  const Time now = steady_now();
  const Duration spin = policy_->begin(now);
  if (spin == Duration::zero() || until <= now) return;
  spin_until_ = std::min(until, now + spin);
  yield_at_ = now + kYieldEvery;
  slept_ = false;
}

Spin::~Spin() {
  if (policy_ != nullptr) policy_->end(steady_now(), slept_);
}

bool Spin::again() {
  if (slept_) return false;
  Time now = steady_now();
  if (now >= yield_at_) {
    ::sched_yield();
    const Time back = steady_now();
    slept_ = !policy_->go_on_after_yield(back, back - now);
    now = back;
    yield_at_ = now + kYieldEvery;
  }
  slept_ = slept_ || now >= spin_until_;
  return !slept_;
}

}  // namespace holdfast
