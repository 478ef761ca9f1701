// A small seeded generator (SplitMix64). The same seed gives the same numbers on every machine, which
// std::uniform_int_distribution does not promise.
#pragma once

#include <cstdint>

namespace holdfast {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  // 0 to bound - 1; bound > 0.
  uint64_t below(uint64_t bound) { return static_cast<uint64_t>((static_cast<__uint128_t>(next()) * bound) >> 64); }
  // From low to high, both included.
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }
  // A generator of its own, so that two parts of a program do not disturb each other's numbers.
  Random split() { return Random(next()); }

 private:
  uint64_t state_;
};

// A seed from the system, for production.
uint64_t random_seed();

}  // namespace holdfast
