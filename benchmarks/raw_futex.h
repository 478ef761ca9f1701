// The floor of shared memory: 64 bytes there and back through a page that two processes have mapped, by threads that
// sleep in futex() while they wait, or that look again and again for a while before they do.
#pragma once

#include <cstddef>

#include "harness.h"

namespace holdfast::bench {

class RawFutexEcho {
 public:
  explicit RawFutexEcho(bool spins);
  ~RawFutexEcho();
  RawFutexEcho(const RawFutexEcho&) = delete;
  RawFutexEcho& operator=(const RawFutexEcho&) = delete;
  // In the child.
  void serve() const;
  // In the parent.
  void ping_pong(size_t count, Latencies& latencies) const;

 private:
  struct Direction;
  void give(Direction& direction, const void* bytes) const;
  void take(Direction& direction, void* bytes) const;

  const bool spins_;
  Direction* const there_;
  Direction* const back_;
};

}  // namespace holdfast::bench
