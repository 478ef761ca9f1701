// SpinPolicy: whether a thread that is about to wait should first ask again and again for a short while ("spin")
// instead of sleeping in the kernel at once. To be woken costs more than most replies take; but a thread that spins
// uses a core that somebody else may need, perhaps the very one it waits for. So it learns, from its own waits:
// - it spins only while waits are short on the average, and for twice that average;
// - spins in a row that were in vain, or longer than what they save, make it leave out more and more of the next ones;
// - during a spin the thread gives its turn away now and then. If it does not get it back at once, somebody else needed
//   the core: it does not spin for a while, and for twice as long if that happens again and again.
//
// Each thread that waits, or each connection that one thread at a time waits for, has one. Not synchronised. It does no
// waiting itself and reads no clock: times and outcomes go in. Spin, below, is the loop around it.
#pragma once

#include <cstdint>

#include <holdfast/base/time.h>

namespace holdfast {

class SpinPolicy {
 public:
  // Waits that last longer than this on the average are slept through. That is a lot longer than most spins: while both
  // sides sleep, each of them waits for the other one to wake up. Who would not spin for so long would never find out
  // how short the waits are between two that do not sleep.
  static constexpr Duration kWorthwhile = std::chrono::microseconds(150);
  // A spin that was longer has cost more than it has saved.
  static constexpr Duration kGain = std::chrono::microseconds(60);
  static constexpr Duration kSpinMin = std::chrono::microseconds(20);
  // A longer wait counts as one of this length: so that a few short ones outweigh it.
  static constexpr Duration kWaitMax = 4 * kWorthwhile;
  // Who gets its turn back later than this was not alone on its core.
  static constexpr Duration kYieldMax = std::chrono::microseconds(20);
  static constexpr Duration kPauseMin = std::chrono::milliseconds(1);
  static constexpr Duration kPauseMax = std::chrono::milliseconds(256);

  // A wait begins: for how long to spin first. Zero: sleep at once.
  Duration begin(Time now);
  // It has ended. `slept`: the spin, if there was one, was in vain.
  void end(Time now, bool slept);
  // During a spin a turn was given away and came back. True: go on.
  bool go_on_after_yield(Time now, Duration took);

 private:
  // With so many quick ones before it, a yield that takes long is an accident.
  static constexpr uint32_t kQuickYields = 32;
  static constexpr uint32_t kFailuresMax = 11;

  Time began_ = Time::min();
  bool spun_ = false;
  Duration average_ = kWaitMax;
  uint32_t failures_ = 0;                 // spins in a row that did not pay
  uint32_t skip_ = 0;                     // so many more waits are slept through for that
  uint32_t quick_yields_ = kQuickYields;  // since the last one that took long
  Duration pause_ = kPauseMin;
  Time paused_until_ = Time::min();
};

// Asks up to 16 times, which takes a fraction of a microsecond: for questions that cost less than looking at the clock.
template <class Question>
bool ask_for_a_moment(Question&& question) {
  for (int i = 0; i < 16; ++i) {
    if (question()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
  return false;
}

// One wait. After each time that it asked in vain, the thread calls again(): true means to ask once more, false to
// sleep. It gives its turn away now and then. Ends when it goes out of scope.
class Spin {
 public:
  // A null policy: never spins.
  Spin(SpinPolicy* policy, Time until);
  ~Spin();
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  bool again();

 private:
  SpinPolicy* const policy_;
  Time spin_until_ = Time::min();
  Time yield_at_ = kNever;
  bool slept_ = true;
};

}  // namespace holdfast
