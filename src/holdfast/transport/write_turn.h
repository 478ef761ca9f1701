// WriteTurn: decides which thread writes to a connection, without making any thread wait.
//
// Many threads may want to write at once; one has the turn. Whoever comes meanwhile leaves a note and goes
// away, and the holder goes round again before it lets go: so nothing that was there to be collected when
// take() was called is left behind. Closing works the same way: after it nobody gets the turn again, and
// either the closer or the last holder is told that it was the last.
#pragma once

#include <atomic>
#include <cstdint>

namespace holdfast {

class WriteTurn {
 public:
  enum class After { finished, again, closed };

  // True: the caller has the turn and must end it with done(). False: the holder will go round again, or
  // the turn is closed.
  bool take() {
    uint8_t state = state_.load();
    for (;;) {
      if ((state & (kClosing | kClosed)) != 0) return false;
      const bool free = state == 0;
      const uint8_t next = free ? kBusy : static_cast<uint8_t>(state | kAgain);
      if (state_.compare_exchange_weak(state, next)) return free;
    }
  }

  // again: the caller still has the turn and must write once more. closed: close() was called meanwhile,
  // and it is the caller who must finish what close() began.
  After done() {
    uint8_t state = state_.load();
    for (;;) {
      const bool closing = (state & kClosing) != 0;
      const bool again = (state & kAgain) != 0;
      const uint8_t next = closing ? kClosed : again ? kBusy : uint8_t{0};
      if (state_.compare_exchange_weak(state, next))
        return closing ? After::closed : again ? After::again : After::finished;
    }
  }

  // True: closed, nobody writes now or later. False: somebody still writes; its done() answers closed.
  bool close() {
    uint8_t state = state_.load();
    for (;;) {
      if ((state & kClosed) != 0) return true;
      const bool free = state == 0;
      const uint8_t next = free ? kClosed : static_cast<uint8_t>(state | kClosing);
      if (state_.compare_exchange_weak(state, next)) return free;
    }
  }

 private:
  static constexpr uint8_t kBusy = 1, kAgain = 2, kClosing = 4, kClosed = 8;
  std::atomic<uint8_t> state_ = 0;
};

}  // namespace holdfast
