// HandClock: how far time may go on for a worker that the tests' HandWorker drives. Nobody answers its heartbeats, so
// after a lease (10 s) it would count as lost, and nothing that is said to it would matter any more.
#pragma once

#include <algorithm>

#include <holdfast/base/time.h>

#include "input.h"

namespace holdfast::fuzz {

class HandClock {
 public:
  // The time to go on by, as the input says.
  Duration take(Input& in) {
    const Duration time = std::min<Duration>(std::chrono::milliseconds(1) * (1 << in.below(14)), left_);
    left_ -= time;
    return time;
  }

 private:
  Duration left_ = std::chrono::seconds(8);
};

}  // namespace holdfast::fuzz
