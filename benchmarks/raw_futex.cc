#include "raw_futex.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>

namespace holdfast::bench {

namespace {

constexpr size_t kMessageBytes = 64;
// Between rounds nobody spins: others are measured then.
constexpr int kLooksMax = 20000;

}  // namespace

struct RawFutexEcho::Direction {
  alignas(128) std::atomic<uint32_t> full = 0;
  alignas(128) std::atomic<uint32_t> asleep = 0;  // the one who waits for it to be full
  alignas(128) std::array<uint8_t, kMessageBytes> bytes = {};
};

RawFutexEcho::RawFutexEcho(bool spins)
    : spins_(spins),
      there_(static_cast<Direction*>(
          mmap(nullptr, 2 * sizeof(Direction), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))),
      back_(there_ + 1) {
  if (there_ == MAP_FAILED) throw std::runtime_error("cannot map shared memory");
  new (there_) Direction;
  new (back_) Direction;
}

RawFutexEcho::~RawFutexEcho() { munmap(there_, 2 * sizeof(Direction)); }

void RawFutexEcho::give(Direction& direction, const void* bytes) const {
  std::memcpy(direction.bytes.data(), bytes, kMessageBytes);
  // In this order, and `asleep` before `full` on the other side: so one of them notices.
  direction.full.store(1);
  if (direction.asleep.exchange(0) == 0) return;
  syscall(SYS_futex, &direction.full, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void RawFutexEcho::take(Direction& direction, void* bytes) const {
  int looks = spins_ ? kLooksMax : 0;
  while (direction.full.load(std::memory_order_acquire) == 0) {
    if (looks-- > 0) {
      __builtin_ia32_pause();
    } else {
      direction.asleep.store(1);
      syscall(SYS_futex, &direction.full, FUTEX_WAIT, 0, nullptr, nullptr, 0);
    }
  }
  std::memcpy(bytes, direction.bytes.data(), kMessageBytes);
  direction.full.store(0, std::memory_order_release);
}

void RawFutexEcho::serve() const {
  std::array<uint8_t, kMessageBytes> buffer{};
  for (;;) {
    take(*there_, buffer.data());
    give(*back_, buffer.data());
  }
}

void RawFutexEcho::ping_pong(size_t count, Latencies& latencies) const {
  std::array<uint8_t, kMessageBytes> buffer{};
  for (size_t i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    give(*there_, buffer.data());
    take(*back_, buffer.data());
    latencies.add(std::chrono::steady_clock::now() - start);
  }
}

}  // namespace holdfast::bench
