#include <holdfast/transport/spin_policy.h>

#include <sched.h>

#include <algorithm>
#include <optional>

#include <holdfast/transport/other_cores.h>

namespace holdfast {

namespace {

// Most answers come sooner, so most spins give no turn away.
constexpr Duration kYieldEvery = std::chrono::microseconds(4);

// Lets the scheduler choose another core for this thread, of those that it may use, which are the same afterwards.
void leave_core() {
  const std::optional<Cores> cores = find_cores();
  if (!cores || ::sched_setaffinity(0, sizeof(cores->others), &cores->others) != 0) return;
  ::sched_setaffinity(0, sizeof(cores->all), &cores->all);
}

}  // namespace

void SpinPolicy::Backoff::start(Time now) {
  length_ = now >= until_ + 16 * length_ ? kPauseMin : std::min(2 * length_, max_);
  until_ = now + length_;
}

Duration SpinPolicy::begin(Time now) {
  spun_ = false;
  if (!pause_.over(now)) return Duration::zero();
  if (skip_ > 0) {
    --skip_;
    return Duration::zero();
  }
  spun_ = true;
  return kSpin;
}

void SpinPolicy::end(bool slept) {
  if (!spun_) return;
  failures_ = slept ? std::min(failures_ + 1, kFailuresMax) : 0;
  skip_ = failures_ == 0 ? 0 : (uint32_t{1} << failures_) - 2;
}

SpinPolicy::AfterYield SpinPolicy::after_yield(Time now, Duration took) {
  if (took <= kYieldMax) {
    if (strain_ > 0) --strain_;
    return AfterYield::go_on;
  }
  strain_ = std::min(strain_ + kStrain, 2 * kStrain);
  if (strain_ <= kStrain) return AfterYield::go_on;
  if (may_move(now)) return AfterYield::move;
  pause_.start(now);
  return AfterYield::sleep;
}

bool SpinPolicy::shares_core(Duration last_yield) {
  shared_ = last_yield > kAlone ? shared_ + 1 : 0;
  return shared_ >= kSharedInARow;
}

bool SpinPolicy::may_move(Time now) {
  if (!stay_.over(now)) return false;
  stay_.start(now);
  return true;
}

Spin::Spin(SpinPolicy* policy, Time until, bool moves) : policy_(policy), moves_(moves) {
  if (policy_ == nullptr) return;
  const Time now = steady_now();
  const Duration spin = policy_->begin(now);
  if (spin == Duration::zero() || until <= now) return;
  spin_until_ = std::min(until, now + spin);
  yield_at_ = now + kYieldEvery;
  slept_ = false;
}

Spin::~Spin() {
  if (policy_ == nullptr) return;
  policy_->end(slept_);
  const Duration last_yield = slept_ ? Duration::zero() : yield_took_;
  if (moves_ && policy_->shares_core(last_yield) && policy_->may_move(steady_now())) leave_core();
}

bool Spin::again() {
  if (slept_) return false;
  Time now = steady_now();
  if (yield_took_ != Duration::zero()) {
    const SpinPolicy::AfterYield next = policy_->after_yield(now, yield_took_);
    slept_ = next == SpinPolicy::AfterYield::sleep;
    if (next == SpinPolicy::AfterYield::move) leave_core();
    yield_took_ = Duration::zero();
  }
  if (!slept_ && now >= yield_at_) {
    ::sched_yield();
    const Time back = steady_now();
    yield_took_ = back - now;
    yield_at_ = back + kYieldEvery;
    now = back;
  }
  slept_ = slept_ || now >= spin_until_;
  return !slept_;
}

}  // namespace holdfast
