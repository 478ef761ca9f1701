// Mutex: a lock for short sections on the path of every call. It differs from std::mutex in one thing: where nobody
// else holds it, to take it and to give it back is one instruction each, in place of a function each. A small call
// takes about twenty such locks, nearly all of them free (docs/performance.md, "Where the time goes").
//
// Any thread. For std::lock_guard, std::unique_lock and std::condition_variable_any. Not recursive, not fair.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace holdfast {

// Who must sleep says so first, by kAwaited, and only the kernel's look at the word, which is one with falling asleep,
// decides whether it sleeps. So who gives the lock back either sees kAwaited and wakes one, or has set kFree before
// that look. The one that was woken takes the lock as kAwaited again: there may be more of them.
class InlineMutex {
 public:
  InlineMutex() = default;
  InlineMutex(const InlineMutex&) = delete;
  InlineMutex& operator=(const InlineMutex&) = delete;

  void lock() {
    if (!try_lock()) lock_slowly();
  }
  bool try_lock() {
    uint32_t state = kFree;
    return state_.compare_exchange_strong(state, kHeld, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kAwaited) wake_one();
  }

 private:
  static constexpr uint32_t kFree = 0, kHeld = 1, kAwaited = 2;  // kAwaited: held, and somebody may sleep

  void lock_slowly();
  // Uses the word's address only: the mutex may be gone, if the next one who held it destroyed it.
  void wake_one();

  std::atomic<uint32_t> state_ = kFree;
};

// ThreadSanitizer knows std::mutex, and finds locks that are taken in two orders. g++ says it with the first, clang
// with the second.
#if defined(__SANITIZE_THREAD__)
using Mutex = std::mutex;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
using Mutex = std::mutex;
#else
using Mutex = InlineMutex;
#endif
#else
using Mutex = InlineMutex;
#endif

}  // namespace holdfast
