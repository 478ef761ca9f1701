#include <holdfast/base/mutex.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace holdfast {

void InlineMutex::lock_slowly() {
  while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
    syscall(SYS_futex, &state_, FUTEX_WAIT_PRIVATE, kAwaited, nullptr, nullptr, 0);
  }
}

void InlineMutex::wake_one() { syscall(SYS_futex, &state_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

}  // namespace holdfast
