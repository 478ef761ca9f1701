// Executor: threads that run closures. At most `threads` of them run at a time, but one that blocks (is
// inside a BlockingScope) does not count: another runs in its place. So work that waits for other work of
// the same executor gets on, to any depth up to threads_max, even with threads = 1. Threads are started when
// first needed; those that are surplus after an unblocking park until the next one blocks, since handlers
// that make nested calls block all the time, and starting a thread for each would cost more than the call.
// Those that nobody has needed for a while end.
//
// Owned by a Worker or a test; it must outlive every Promise made with it and every then() on their
// futures. post(), stats() and on_executor_thread() may be called from any thread.
#pragma once

#include <holdfast/base/blocking.h>
#include <holdfast/base/closure.h>
#include <holdfast/base/time.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace holdfast {

struct ExecutorOptions {
  size_t threads = 1;
  size_t threads_max = 4096;                     // the blocked ones included
  Duration idle_max = std::chrono::seconds(10);  // then a parked thread ends, unless it is one of the last `threads`
  std::string name = "holdfast";
};

struct ExecutorStats {
  size_t threads = 0;  // alive
  size_t blocked = 0;  // of those: inside a BlockingScope
  size_t idle = 0;     // of those: parked, waiting for work
  size_t queued = 0;   // closures that no thread has taken yet
};

class Executor final : private BlockingObserver {
 public:
  explicit Executor(ExecutorOptions options);
  // Calls stop().
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the closure later on one of the threads, never inside this call. Closures start in the order in
  // which they were posted (of each Turn). What a closure throws is written to stderr and dropped. After stop() the
  // closure is destroyed without running. Throws Unavailable (and destroys the closure) if there is no
  // thread and none can be started.
  void post(Closure work) { post_all({&work, 1}); }
  // The same for several: they wake one thread, and that the next one if it finds more than it takes. What is not to
  // run stays where it is, for the caller to destroy.
  // What goes on with something that was begun comes before what begins something: otherwise a result that is there
  // would have to wait for all that is still to be computed. (But not for ever: each seventeenth is a fresh one.)
  enum class Turn { fresh, begun };
  void post_all(std::span<Closure> work, Turn turn = Turn::fresh);

  // Lets running closures end, destroys those that have not started, joins all threads. May be called
  // again, but not from one of its own threads. Waits for ever if a running closure never ends.
  void stop();

  bool on_executor_thread() const;
  ExecutorStats stats() const;

 private:
  struct Runner;
  static constexpr uint32_t kBegunInARowMax = 16;

  void on_block() override;
  void on_unblock() override;
  void run(Runner& self);
  // Parks until there is work for this runner. False: its thread ends.
  bool next_work(std::unique_lock<std::mutex>& lock, Runner& self, Closure& work);
  // Parks until it is awake. False: nobody needed it for long.
  bool park(std::unique_lock<std::mutex>& lock, Runner& self);
  Runner* add_runner();
  bool no_work() const { return begun_.empty() && fresh_.empty(); }
  void start_runner();

  const ExecutorOptions options_;

  std::mutex join_mutex_;  // one stop() at a time joins; never taken with mutex_ held

  mutable std::mutex mutex_;  // guards all below
  std::deque<Closure> begun_, fresh_;
  uint32_t begun_in_a_row_ = 0;  // taken since the last fresh one
  // Grows only: who wakes one touches it without the lock. Those whose thread has ended are used again.
  std::vector<std::unique_ptr<Runner>> runners_;
  std::vector<Runner*> idle_;  // parked, the last one first to wake: its cache is warm
  Runner* coming_ = nullptr;   // was woken or started, and has not looked for work yet
  size_t running_ = 0;         // neither parked nor blocked
  size_t blocked_ = 0;
  bool stopping_ = false;
  // Of the last runner that ended before stop(). It joins the one that ended before it, so none is left over.
  std::thread last_ended_;
};

// Writes the exception that is being handled to stderr. For places where nobody can receive it.
void log_escaped_exception(const char* where) noexcept;

}  // namespace holdfast
