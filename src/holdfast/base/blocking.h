// Tells whoever runs the current thread that it is about to block, so that an Executor can let another
// thread work meanwhile. Everything in the library that may block a thread opens a BlockingScope.
#pragma once

#include <cstdint>

namespace holdfast {

// Owned by whoever runs the thread (an Executor) and outlives it. Both calls come on the blocking thread,
// strictly in turns.
class BlockingObserver {
 public:
  virtual void on_block() = 0;
  virtual void on_unblock() = 0;

 protected:
  ~BlockingObserver() = default;
};

// The current thread's observer; nullptr on threads that nobody watches.
BlockingObserver*& blocking_observer();

// How often this thread has blocked so far: whether a piece of work blocked is seen by asking before and after.
uint64_t blocking_count();

// Scopes nest; only the outermost one tells the observer.
class BlockingScope {
 public:
  BlockingScope();
  ~BlockingScope();
  BlockingScope(const BlockingScope&) = delete;
  BlockingScope& operator=(const BlockingScope&) = delete;

 private:
  BlockingObserver* told_ = nullptr;
};

}  // namespace holdfast
