// RunHistory: learns from past runs whether a function is short and does not block. Such functions run on the thread
// that read the request, which saves two thread switches.
//
// A run on a busy machine may look long because the thread lost its core meanwhile, so one that is a little too long
// counts against a function without making all that is known of it void. One that blocks or takes very long does.
//
// Any thread. Runs at the same time may count as one.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include <holdfast/base/time.h>

namespace holdfast {

class RunHistory {
 public:
  static constexpr Duration kShort = std::chrono::microseconds(100);
  static constexpr Duration kVeryLong = std::chrono::milliseconds(1);
  static constexpr int kShortRunsNeeded = 3;

  bool quick() const { return score_.load(std::memory_order_relaxed) >= kShortRunsNeeded; }

  void add(Duration took, bool blocked) {
    const int score = score_.load(std::memory_order_relaxed);
    if (blocked || took > kVeryLong) {
      set(score, 0);
    } else if (took > kShort) {
      set(score, std::max(score - kPenalty, 0));
    } else {
      set(score, std::min(score + 1, kScoreMax));
    }
  }

 private:
  static constexpr int kPenalty = 2;  // so a function must be short two times out of three
  static constexpr int kScoreMax = 2 * kShortRunsNeeded;

  void set(int before, int score) {
    if (score != before) score_.store(score, std::memory_order_relaxed);
  }

  std::atomic<int> score_{0};
};

}  // namespace holdfast
