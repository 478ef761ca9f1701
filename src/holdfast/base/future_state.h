// FutureState<T>: what a Promise and its Futures share. Users see future.h; this header is for producers
// and for those who wait in special ways (WaitHelper, Interrupt).
//
// One allocation per future, counted by itself (StateRef). Any thread may call anything here unless it
// says otherwise. There is no lock: `status_` is one word of bits, each set at most once (kHook excepted),
// and whoever sets a bit learns from the old value which others came before. Completion takes two steps:
// claim() decides who completes, publish() makes the result visible; after that the state never changes.
#pragma once

#include <holdfast/base/closure.h>
#include <holdfast/base/error.h>
#include <holdfast/base/time.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

namespace holdfast {

class Executor;
class FutureStateBase;

// Makes progress on a thread that waits for a future: it polls a socket, say. The producer sets it before
// it hands out the future; futures made from that one (then, when_all, when_any) inherit it. The state
// keeps it alive.
class WaitHelper {
 public:
  virtual ~WaitHelper() = default;
  // Returns when the state is ready, when `until` has passed, or when it cannot help; the waiting thread
  // then sleeps for the rest. May run on several threads at once, for different states or the same.
  virtual void help(FutureStateBase& state, Time until) = 0;
};

// Wakes a helping thread that is stuck in poll(2) or the like. interrupt() comes on the completing
// thread: it must be quick and must touch neither the state nor any promise.
class Interrupt {
 public:
  virtual void interrupt() noexcept = 0;

 protected:
  ~Interrupt() = default;
};

// Something to run once when a state has completed. It owns itself: exactly one of run() and abandon() is
// called, and whatever keeps the object alive is released in there.
class Continuation {
 public:
  virtual void run() noexcept = 0;
  // Instead of run(), if the state's executor was stopped.
  virtual void abandon() noexcept = 0;

  // True: short library code, which always runs on the completing thread, whatever the executor.
  bool always_inline = false;

 protected:
  ~Continuation() = default;

 private:
  friend class FutureStateBase;
  Continuation* next_ = nullptr;
};

// Why a future failed. Shared along a chain of futures, never changed.
struct Problem {
  Failure failure;               // empty if there is an exception
  std::exception_ptr exception;  // what a local function threw: get() throws it again, as itself
};
using ProblemPtr = std::shared_ptr<const Problem>;

class FutureStateBase {
 public:
  FutureStateBase(const FutureStateBase&) = delete;
  FutureStateBase& operator=(const FutureStateBase&) = delete;

  bool ready() const { return (status_.load(std::memory_order_acquire) & kReady) != 0; }
  bool failed() const { return (status_.load(std::memory_order_acquire) & kFailed) != 0; }
  // Only of a failed state.
  const ProblemPtr& problem() const { return problem_; }
  Failure failure() const;
  [[noreturn]] void throw_problem() const;

  void wait() { wait_until(kNever); }
  // True: ready. False: the time has passed.
  bool wait_until(Time until);

  // These return false, and do nothing, if the state was complete or claimed.
  bool fail(Failure failure);
  bool fail(std::exception_ptr exception);
  bool fail(ProblemPtr problem);
  bool cancel();

  // The producer's hook, run once by cancel() on the cancelling thread. If the state has been cancelled
  // already it runs at once; if it completes otherwise it is destroyed unrun. It takes the place of an
  // earlier one. One thread at a time.
  void on_cancel(Closure hook);

  // A thread in WaitHelper::help() registers what wakes it. False: nothing was registered, because the
  // state is ready or another thread already helps: return from help(). After clear_interrupt() returns
  // no call to the interrupt is running or will come.
  bool set_interrupt(Interrupt* interrupt);
  void clear_interrupt();

  // False: the state is ready, nothing was added. The continuation is not touched after it was added, so
  // it may be gone when this returns.
  bool try_add(Continuation* continuation);
  // Adds it, or if the state is ready dispatches it at once.
  void add(Continuation* continuation);
  // Runs it: posted on the executor if there is one, else here.
  static void dispatch(Continuation* continuation, Executor* executor);

  Executor* executor() const { return executor_; }
  const std::shared_ptr<WaitHelper>& helper() const { return helper_; }
  // Only before the first future is handed out.
  void set_helper(std::shared_ptr<WaitHelper> helper) { helper_ = std::move(helper); }

  void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop_reference() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  // The caller's reference is the only one, so nobody else can read the value.
  bool unique() const { return references_.load(std::memory_order_acquire) == 1; }

 protected:
  enum Bits : uint32_t {
    kClaimed = 1,
    kReady = 2,
    kValue = 4,       // ready, with a value
    kFailed = 8,      // ready, with problem_
    kCancelled = 16,  // failed, by cancel()
    kWaiters = 32,    // somebody sleeps on status_
    kInterrupt = 64,  // somebody has set interrupt_
    kHook = 128,      // hook_ is set, and belongs to whoever completes
    kTaken = 256,     // the value was moved out
  };

  // Starts with one reference, which belongs to the first StateRef.
  explicit FutureStateBase(Executor* executor) : executor_(executor) {}
  virtual ~FutureStateBase() = default;

  // True: this thread completes the state, and must call publish() soon.
  bool claim() {
    return (status_.load(std::memory_order_relaxed) & kClaimed) == 0 &&
           (status_.fetch_or(kClaimed, std::memory_order_acq_rel) & kClaimed) == 0;
  }
  // The caller holds a reference meanwhile: those that wake may drop theirs.
  void publish(uint32_t bits);
  void publish_exception(std::exception_ptr exception);
  bool has(uint32_t bits) const { return (status_.load(std::memory_order_acquire) & bits) != 0; }
  bool mark_taken() { return (status_.fetch_or(kTaken, std::memory_order_acq_rel) & kTaken) == 0; }

 private:
  void fire_interrupt();
  void end_hook(bool cancelled);
  void run_continuations();
  bool sleep_until(Time until);

  std::atomic<uint32_t> references_{1};
  std::atomic<uint32_t> status_{0};
  std::atomic<Continuation*> continuations_{nullptr};  // the newest first; a mark once they have been run
  std::atomic<Interrupt*> interrupt_{nullptr};         // a mark while it is being called
  Executor* const executor_;
  std::shared_ptr<WaitHelper> helper_;
  ProblemPtr problem_;
  Closure hook_;
};

// A counted pointer to a state. `adopt` takes over a reference that was already counted.
template <class State>
class StateRef {
 public:
  StateRef() = default;
  explicit StateRef(State* state) : state_(state) {
    if (state_ != nullptr) state_->add_reference();
  }
  static StateRef adopt(State* state) {
    StateRef result;
    result.state_ = state;
    return result;
  }
  StateRef(const StateRef& other) : StateRef(other.state_) {}
  StateRef(StateRef&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  template <class Derived>
  requires std::is_convertible_v<Derived*, State*> StateRef(StateRef<Derived> other) : state_(other.release()) {}
  StateRef& operator=(StateRef other) noexcept {
    std::swap(state_, other.state_);
    return *this;
  }
  ~StateRef() {
    if (state_ != nullptr) state_->drop_reference();
  }

  State* get() const { return state_; }
  State* operator->() const { return state_; }
  State& operator*() const { return *state_; }
  explicit operator bool() const { return state_ != nullptr; }
  State* release() { return std::exchange(state_, nullptr); }

 private:
  State* state_ = nullptr;
};

// Whether T can be copied. std::is_copy_constructible believes so of a std::vector<std::unique_ptr<X>>, whose
// copy constructor is declared but does not compile; hence a look at what containers hold. A struct with
// such a member should delete its copy constructor, or specialise this.
template <class T>
struct Copyable : std::is_copy_constructible<T> {};
template <class T>
requires(std::is_copy_constructible_v<T> && !std::is_same_v<typename T::value_type, T>) struct Copyable<T>
    : Copyable<std::remove_cv_t<typename T::value_type>> {
};
template <class A, class B>
struct Copyable<std::pair<A, B>> : std::conjunction<Copyable<std::remove_cv_t<A>>, Copyable<std::remove_cv_t<B>>> {};
template <class... T>
struct Copyable<std::tuple<T...>> : std::conjunction<Copyable<T>...> {};

// Mistakes of the caller: each throws InvalidArgument.
[[noreturn]] void throw_value_taken();
[[noreturn]] void throw_empty_future();
[[noreturn]] void throw_not_failed();

template <class T>
class FutureState : public FutureStateBase {
  static_assert(!std::is_reference_v<T>, "a Future holds a value, not a reference");

 public:
  using Stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

  explicit FutureState(Executor* executor) : FutureStateBase(executor) {}
  ~FutureState() override {
    if (has(kValue)) stored_.~Stored();
  }

  // False if the state was complete or claimed. If the constructor throws the state fails with that.
  template <class... Args>
  bool set_value(Args&&... args) {
    return set_with([&]() -> Stored { return Stored(std::forward<Args>(args)...); });
  }
  // The same, with the value that make() returns. make() runs after claim(), so it must be short.
  template <class Make>
  bool set_with(Make&& make) {
    if (!claim()) return false;
    try {
      ::new (static_cast<void*>(&stored_)) Stored(make());
    } catch (...) {
      publish_exception(std::current_exception());
      return true;
    }
    publish(kValue);
    return true;
  }

  // Only of a ready state that has not failed.
  const Stored& value() const { return stored_; }
  // Moves the value out; the second time throws InvalidArgument.
  Stored take() {
    if (!mark_taken()) throw_value_taken();
    return std::move(stored_);
  }
  // A copy, or for what cannot be copied take().
  Stored read() {
    if constexpr (Copyable<Stored>::value) {
      if (has(kTaken)) throw_value_taken();
      return stored_;
    } else {
      return take();
    }
  }

  // Waits; then the value, or throws what went wrong.
  Stored get() {
    wait();
    if (failed()) throw_problem();
    return read();
  }

  // Completes like `source`, which is ready.
  bool complete_like(FutureState& source) {
    if (source.failed()) return fail(source.problem());
    return set_with([&]() -> Stored { return source.read(); });
  }

 private:
  union {
    Stored stored_;
  };
};

}  // namespace holdfast
