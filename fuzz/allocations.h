// Allocations: counts the memory that is taken from the heap while one of them lives, by way of AddressSanitizer's
// hooks: to see that no length in a peer's bytes makes a decoder take what was never sent. One at a time, one thread.
#pragma once

#include <cstddef>

namespace holdfast::fuzz {

class Allocations {
 public:
  Allocations();
  ~Allocations();
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  // The most that was held at one time, of what was taken since the beginning.
  size_t peak_bytes() const;
};

}  // namespace holdfast::fuzz
