// Time as the protocol code sees it: a point on a steady clock that is passed in with every event.
// Only drivers (the production Worker, the tools) call steady_now(); in the simulator time is made up.
#pragma once

#include <chrono>
#include <cstdint>

namespace holdfast {

using Duration = std::chrono::nanoseconds;

struct Clock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
};

using Time = Clock::time_point;
inline constexpr Time kNever = Time::max();

// The real monotonic clock. Protocol code never calls it.
inline Time steady_now() {
  return Time(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
}

// `now + wait`, without overflow: a wait of Duration::max() means for ever.
inline Time after(Time now, Duration wait) { return wait >= kNever - now ? kNever : now + wait; }

}  // namespace holdfast
