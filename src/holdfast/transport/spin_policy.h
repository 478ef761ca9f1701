// SpinPolicy: whether a thread that is about to wait should first ask again and again for a short while ("spin")
// instead of sleeping in the kernel at once. To be woken costs more than most replies take; but a thread that spins
// uses a core that somebody else may need, perhaps the very one it waits for. So it learns, from its own waits:
// - Spins in a row that were in vain make it leave out more and more of the next ones.
// - During a spin the thread gives its turn away now and then. If somebody else needs the core for long, again and
//   again, it goes to another core; if others need that as well, it does not spin for a while.
// - But if it was the one that is waited for who had that turn, the two share a core while another may be idle:
//   schedulers put a thread that is woken beside the one that wakes it. Then one of them goes to another core.
// What happens again and again happens half as often each time.
//
// Each thread that waits, or each connection that one thread at a time waits for, has one. Not synchronised. It does no
// waiting itself and reads no clock: times and outcomes go in. Spin, below, is the loop around it.
#pragma once

#include <cstdint>

#include <holdfast/base/time.h>

namespace holdfast {

class SpinPolicy {
 public:
  // Longer than it takes to wake a thread: where both sides sleep, each of them waits until the other one is awake. Who
  // did not spin for so long would never find out how short the waits are between two that do not sleep.
  static constexpr Duration kSpin = std::chrono::microseconds(200);
  // Who gets its turn back later than this was not alone on its core.
  static constexpr Duration kAlone = std::chrono::microseconds(2);
  // And later than this: others need the core.
  static constexpr Duration kYieldMax = std::chrono::microseconds(20);
  static constexpr Duration kPauseMin = std::chrono::milliseconds(1);
  static constexpr Duration kPauseMax = std::chrono::milliseconds(256);
  // A move costs little, and two that share a core beside an idle one lose half of their speed.
  static constexpr Duration kStayMax = std::chrono::milliseconds(4);
  // A turn may come back late for other reasons, and who moves then may move to where the other one is.
  static constexpr uint32_t kSharedInARow = 3;

  // A wait begins: for how long to spin first. Zero: sleep at once.
  Duration begin(Time now);
  // It has ended. `slept`: the spin, if there was one, was in vain.
  void end(bool slept);
  // During a spin a turn was given away and came back, and what is waited for has not happened.
  enum class AfterYield { go_on, move, sleep };
  AfterYield after_yield(Time now, Duration took);
  // A wait has ended. `last_yield`: what is waited for happened while a turn was given away for so long; zero: it did
  // not. True: again and again, so the one that is waited for runs on the same core.
  bool shares_core(Duration last_yield);
  // There is a reason to go to another core. True: do.
  bool may_move(Time now);

 private:
  // Pauses that become longer as long as each comes soon after the one before.
  class Backoff {
   public:
    explicit Backoff(Duration max) : max_(max) {}
    bool over(Time now) const { return now >= until_; }
    void start(Time now);

   private:
    Duration max_;
    Duration length_ = kPauseMin;
    Time until_ = Time::min();
  };

  // A yield that takes long is an accident, unless there was another one before, and less than so many short ones
  // since.
  static constexpr uint32_t kStrain = 8;
  static constexpr uint32_t kFailuresMax = 6;

  bool spun_ = false;
  uint32_t failures_ = 0;  // spins in a row that were in vain
  uint32_t skip_ = 0;      // so many more waits are slept through for that
  uint32_t strain_ = 0;    // from yields that took long; more than kStrain: not an accident
  uint32_t shared_ = 0;    // waits in a row that say that a core is shared
  Backoff pause_{kPauseMax};
  Backoff stay_{kStayMax};  // after a move
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
  // A null policy: never spins. `moves`: the thread leaves a core that it shares with the one that it waits for. Of two
  // that wait for each other only one may, or they meet again on the next one. (A core that others need for long
  // anybody leaves.)
  Spin(SpinPolicy* policy, Time until, bool moves);
  ~Spin();
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  bool again();

 private:
  SpinPolicy* const policy_;
  const bool moves_;
  Time spin_until_ = Time::min();
  Time yield_at_ = kNever;
  Duration yield_took_{};  // the last one; zero once it is known that what this waits for did not happen meanwhile
  bool slept_ = true;
};

}  // namespace holdfast
