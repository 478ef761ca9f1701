#include <holdfast/base/future_state.h>

#include <holdfast/base/blocking.h>
#include <holdfast/base/executor.h>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <deque>
#include <thread>

namespace holdfast {

namespace {

// Marks, never dereferenced.
Continuation* const kClosed = reinterpret_cast<Continuation*>(uintptr_t{1});
Interrupt* const kBusy = reinterpret_cast<Interrupt*>(uintptr_t{1});

// A futex and not a condition variable: a quarter of the size of every future, no lock, and its timeout
// is on the same clock as steady_now().
void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, Time until) {
  timespec timeout{};
  timespec* timeout_or_null = nullptr;
  if (until != kNever) {
    const int64_t ns = until.time_since_epoch().count() > 0 ? until.time_since_epoch().count() : 0;
    timeout.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    timeout_or_null = &timeout;
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, expected, timeout_or_null, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// A continuation on its way through a queue: if the queue drops it, it is abandoned, not forgotten.
class Posted {
 public:
  explicit Posted(Continuation* continuation) : continuation_(continuation) {}
  Posted(Posted&& other) noexcept : continuation_(std::exchange(other.continuation_, nullptr)) {}
  Posted& operator=(Posted&&) = delete;
  ~Posted() {
    if (continuation_ != nullptr) continuation_->abandon();
  }
  void operator()() { std::exchange(continuation_, nullptr)->run(); }

 private:
  Continuation* continuation_;
};

// Continuations without an executor run inside complete(), and may complete the next future, and so on.
// Beyond a depth they are put off until the outermost one returns, so that a chain of any length fits on
// the stack. A thread that is about to wait runs them first: it might wait for one of them.
struct InlineRuns {
  static constexpr int kDepthMax = 32;
  int depth = 0;
  std::deque<Closure> put_off;

  void run_put_off() {
    while (!put_off.empty()) {
      Closure next = std::move(put_off.front());
      put_off.pop_front();
      next();
    }
  }
};

InlineRuns& inline_runs() {
  static thread_local InlineRuns runs;
  return runs;
}

template <class Run, class Defer>
void run_bounded(Run&& run, Defer&& make_closure) {
  InlineRuns& runs = inline_runs();
  if (runs.depth >= InlineRuns::kDepthMax) {
    runs.put_off.push_back(make_closure());
    return;
  }
  ++runs.depth;
  run();
  if (runs.depth == 1) runs.run_put_off();
  --runs.depth;
}

void run_hook(Closure& hook) {
  try {
    hook();
  } catch (...) {
    log_escaped_exception("an on_cancel hook");
  }
  hook.reset();
}

}  // namespace

void throw_value_taken() {
  throw_failure({.code = Code::invalid_argument, .message = "the future's value was already taken out of it"});
}

void throw_empty_future() {
  throw_failure({.code = Code::invalid_argument, .message = "this future or promise is empty"});
}

void throw_not_failed() {
  throw_failure({.code = Code::invalid_argument, .message = "failure() of a future that has not failed"});
}

Failure FutureStateBase::failure() const {
  if (!problem_->exception) return problem_->failure;
  try {
    std::rethrow_exception(problem_->exception);
  } catch (...) {
    return describe_current_exception();
  }
}

void FutureStateBase::throw_problem() const {
  if (problem_->exception) std::rethrow_exception(problem_->exception);
  throw_failure(problem_->failure);
}

bool FutureStateBase::wait_until(Time until) {
  if (ready()) return true;
  inline_runs().run_put_off();
  if (ready()) return true;
  BlockingScope blocking;
  if (helper_) helper_->help(*this, until);
  return sleep_until(until);
}

bool FutureStateBase::sleep_until(Time until) {
  uint32_t status = status_.load(std::memory_order_acquire);
  while ((status & kReady) == 0) {
    if (until != kNever && steady_now() >= until) return false;
    if ((status & kWaiters) == 0) {
      status = status_.fetch_or(kWaiters, std::memory_order_acq_rel) | kWaiters;
      continue;
    }
    futex_wait(status_, status, until);
    status = status_.load(std::memory_order_acquire);
  }
  return true;
}

bool FutureStateBase::fail(Failure failure) {
  if (!claim()) return false;
  problem_ = std::make_shared<const Problem>(Problem{.failure = std::move(failure), .exception = nullptr});
  publish(kFailed);
  return true;
}

bool FutureStateBase::fail(std::exception_ptr exception) {
  if (!claim()) return false;
  publish_exception(std::move(exception));
  return true;
}

bool FutureStateBase::fail(ProblemPtr problem) {
  if (!claim()) return false;
  problem_ = std::move(problem);
  publish(kFailed);
  return true;
}

bool FutureStateBase::cancel() {
  if (!claim()) return false;
  problem_ = std::make_shared<const Problem>(
      Problem{.failure = {.code = Code::cancelled, .message = "cancelled by the caller"}, .exception = nullptr});
  publish(kFailed | kCancelled);
  return true;
}

void FutureStateBase::publish_exception(std::exception_ptr exception) {
  problem_ = std::make_shared<const Problem>(Problem{.failure = {}, .exception = std::move(exception)});
  publish(kFailed);
}

void FutureStateBase::publish(uint32_t bits) {
  const uint32_t before = status_.fetch_or(kReady | bits, std::memory_order_acq_rel);
  if ((before & kWaiters) != 0) futex_wake_all(status_);
  if ((before & kInterrupt) != 0) fire_interrupt();
  if ((before & kHook) != 0) end_hook((bits & kCancelled) != 0);
  run_continuations();
}

void FutureStateBase::fire_interrupt() {
  Interrupt* interrupt = interrupt_.exchange(kBusy, std::memory_order_acq_rel);
  if (interrupt != nullptr) interrupt->interrupt();
  interrupt_.store(nullptr, std::memory_order_release);
}

bool FutureStateBase::set_interrupt(Interrupt* interrupt) {
  Interrupt* none = nullptr;
  if (!interrupt_.compare_exchange_strong(none, interrupt, std::memory_order_acq_rel)) return false;
  if ((status_.fetch_or(kInterrupt, std::memory_order_acq_rel) & kReady) == 0) return true;
  clear_interrupt();
  return false;
}

void FutureStateBase::clear_interrupt() {
  Interrupt* seen = interrupt_.load(std::memory_order_acquire);
  if (seen != kBusy && interrupt_.compare_exchange_strong(seen, nullptr, std::memory_order_acq_rel)) return;
  while (interrupt_.load(std::memory_order_acquire) == kBusy) std::this_thread::yield();
}

void FutureStateBase::on_cancel(Closure hook) {
  const uint32_t before = status_.fetch_and(~uint32_t{kHook}, std::memory_order_acq_rel);
  // Not ready and the bit gone: hook_ is ours, and whoever completes will leave it alone. Ready: the old
  // hook belongs to whoever completed, who may be running it just now; hook_ must not be touched.
  if ((before & kReady) != 0) {
    if ((before & kCancelled) != 0) run_hook(hook);
    return;
  }
  hook_ = std::move(hook);
  const uint32_t after = status_.fetch_or(kHook, std::memory_order_acq_rel);
  if ((after & kReady) != 0) end_hook((after & kCancelled) != 0);
}

void FutureStateBase::end_hook(bool cancelled) {
  Closure hook = std::move(hook_);
  if (!cancelled) return;
  run_bounded(
      [&] { run_hook(hook); },
      [&] {
        // The hook may rely on the state being there while it runs.
        return Closure([self = StateRef<FutureStateBase>(this), hook = std::move(hook)]() mutable { run_hook(hook); });
      });
}

bool FutureStateBase::try_add(Continuation* continuation) {
  Continuation* head = continuations_.load(std::memory_order_acquire);
  do {
    if (head == kClosed) return false;
    continuation->next_ = head;
  } while (
      !continuations_.compare_exchange_weak(head, continuation, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

void FutureStateBase::add(Continuation* continuation) {
  if (!try_add(continuation)) dispatch(continuation, executor_);
}

void FutureStateBase::run_continuations() {
  Continuation* newest = continuations_.exchange(kClosed, std::memory_order_acq_rel);
  Continuation* oldest = nullptr;  // run them in the order in which they were added
  while (newest != nullptr) {
    Continuation* next = std::exchange(newest->next_, oldest);
    oldest = std::exchange(newest, next);
  }
  while (oldest != nullptr) {
    Continuation* continuation = std::exchange(oldest, oldest->next_);
    dispatch(continuation, executor_);
  }
}

void FutureStateBase::dispatch(Continuation* continuation, Executor* executor) {
  if (executor == nullptr || continuation->always_inline) {
    run_bounded([&] { continuation->run(); }, [&] { return Closure(Posted(continuation)); });
    return;
  }
  try {
    Closure posted(Posted{continuation});
    // On a thread of the executor it goes on with what that thread did. What comes from outside, from the network say,
    // may be the beginning of long work.
    executor->post_all({&posted, 1}, executor->on_executor_thread() ? Executor::Turn::begun : Executor::Turn::fresh);
  } catch (const Error&) {
    log_escaped_exception("posting a continuation");  // it was abandoned with the closure
  }
}

}  // namespace holdfast
