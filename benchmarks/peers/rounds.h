// What a peer's program of C++ does: serves in a child process, and here measures on request. ./bench starts it and
// asks (see ../peer_process.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace holdfast::bench {

class Rounds {
 public:
  virtual ~Rounds() = default;
  // `bytes` there and back, one call after the other: the median, in microseconds.
  virtual double latency_us(size_t bytes, size_t count) = 0;
  // `bytes` there and back, `in_flight` calls at a time.
  virtual double calls_per_second(size_t bytes, size_t count, size_t in_flight) = 0;
  // `bytes` one way, `in_flight` at a time.
  virtual double gigabytes_per_second(size_t bytes, size_t count, size_t in_flight) = 0;
};

// Forks a child that runs `serve`, which calls what it is given with the port it listens on and goes on to serve for
// ever; answers that port. To be called before this process has threads. The child ends with this process.
uint16_t start_server(const std::function<void(const std::function<void(uint16_t)>&)>& serve);

// Says "ready" and answers requests until its input ends.
int answer(Rounds& rounds);

// The median of what `once` takes, `count` times, in microseconds.
double median_us(size_t count, const std::function<void()>& once);
double seconds_of(const std::function<void()>& work);

}  // namespace holdfast::bench
