// RunQueue: the runs of one context's backward passes, for a thread that waits for such a pass and does them itself. So
// nobody has to be woken for them, and the thread that waits is not idle. When no thread waits, runs go to the worker's
// executor.
//
// Part of a ContextState. Any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include <holdfast/base/future.h>
#include <holdfast/link/step.h>

namespace holdfast::autograd {

class RunQueue {
 public:
  // False: no thread waits here.
  bool offer(const std::shared_ptr<Work>& run);
  // A pass has ended: the thread that waits looks whether it is its own.
  void nudge();

  // The calling thread will do what is offered. False: another one does already.
  bool enter();
  // Only on the thread that entered. Does what is offered until `pass` has ended. While there is nothing to do it helps
  // as `helper` says, which may be null.
  void run_until_ready(FutureStateBase& pass, const std::shared_ptr<WaitHelper>& helper);
  // Returns what was offered and not done.
  std::deque<std::shared_ptr<Work>> leave();

 private:
  // The next run. Null: there is none, and the promise is kept, to be completed when there is something to do.
  std::shared_ptr<Work> next_or_wait(Promise<void> something_to_do);

  std::mutex mutex_;
  bool has_waiter_ = false;
  std::deque<std::shared_ptr<Work>> runs_;
  std::optional<Promise<void>> something_to_do_;  // of a thread that sleeps
};

}  // namespace holdfast::autograd
