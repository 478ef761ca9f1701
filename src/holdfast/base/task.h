// Task<T>: a coroutine. Lazy: it runs when it is awaited by another Task or given to start(). Inside one,
// co_await takes a Future<U> or a Task<U> (an rvalue), and returns the U or throws what went wrong, as
// itself. A Task that awaits a Future holds no thread; it goes on where that future's continuations run:
// on its executor, or without one on the completing thread. Every step sees the Ambient that was current
// where it was suspended, the first one that of start().
//
// A Task belongs to one thread at a time. If an executor on which it should go on was stopped, it is
// destroyed where it stands (its locals' destructors run) and its future fails with Cancelled.
//
// How steps follow each other: a step that awaits another Task, or ends, names the coroutine that is next
// and returns to the loop in resume_flow(), which resumes that. So neither loops nor deep nests of tasks
// grow the stack; the language's own symmetric transfer does the same only where the compiler turns it
// into a tail call, which g++ does not without optimisation or with sanitizers.
#pragma once

#include <holdfast/base/future.h>

#include <coroutine>

namespace holdfast {

template <class T>
class Task;

namespace task_detail {

// What started a nest of tasks, and gets its result.
class TaskRoot {
 public:
  // The outermost coroutine has ended.
  virtual void finish() noexcept = 0;
  // It can never go on.
  virtual void abandon_task() noexcept = 0;

 protected:
  ~TaskRoot() = default;
};

// Resumes the coroutine, then each one that is named next, until none is.
void resume_flow(std::coroutine_handle<> first);
// Only from await_suspend, on the thread that runs resume_flow().
void resume_next(std::coroutine_handle<> next);
void finish_next(TaskRoot* root);

[[noreturn]] void throw_empty_task();

struct PromiseBase;

struct FinalAwaiter {
  bool await_ready() const noexcept { return false; }
  template <class P>
  void await_suspend(std::coroutine_handle<P> handle) const noexcept {
    if (handle.promise().awaited_by) {
      resume_next(handle.promise().awaited_by);
    } else {
      finish_next(handle.promise().root);
    }
  }
  void await_resume() const noexcept {}
};

template <class U>
class TaskAwaiter {
 public:
  explicit TaskAwaiter(Task<U> task) : task_(std::move(task)) {}
  bool await_ready() const noexcept { return false; }
  template <class P>
  void await_suspend(std::coroutine_handle<P> handle) {
    auto inner = task_.handle_;
    inner.promise().awaited_by = handle;
    inner.promise().root = handle.promise().root;
    resume_next(inner);
  }
  U await_resume() { return task_.handle_.promise().take(); }

 private:
  Task<U> task_;
};

template <class U>
class FutureAwaiter final : public Continuation {
 public:
  explicit FutureAwaiter(Future<U> future) : future_(std::move(future)) {}
  FutureAwaiter(const FutureAwaiter&) = delete;
  FutureAwaiter& operator=(const FutureAwaiter&) = delete;

  bool await_ready() const { return future_.ready(); }
  template <class P>
  bool await_suspend(std::coroutine_handle<P> handle) {
    handle_ = handle;
    root_ = handle.promise().root;
    ambient_ = captured_ambient();
    // Once added, another thread may resume the coroutine and so destroy this object, even before
    // try_add() returns; hence the state is kept by a reference of its own.
    const StateRef<FutureState<U>> state = future_.state();
    return state->try_add(this);
  }
  U await_resume() { return std::move(future_).get(); }

  void run() noexcept override {
    AmbientScope scope(std::move(ambient_));
    resume_flow(handle_);
  }
  void abandon() noexcept override { root_->abandon_task(); }

 private:
  Future<U> future_;
  std::coroutine_handle<> handle_;
  TaskRoot* root_ = nullptr;
  Ambient ambient_;
};

struct PromiseBase {
  std::coroutine_handle<> awaited_by;  // empty: the outermost
  TaskRoot* root = nullptr;
  std::exception_ptr exception;

  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { exception = std::current_exception(); }

  template <class U>
  FutureAwaiter<U> await_transform(Future<U> future) {
    return FutureAwaiter<U>(std::move(future));
  }
  template <class U>
  TaskAwaiter<U> await_transform(Task<U> task) {
    if (!task.valid()) throw_empty_task();
    return TaskAwaiter<U>(std::move(task));
  }
};

template <class T>
struct Promise : PromiseBase {
  std::optional<T> value;

  Task<T> get_return_object();
  template <class V = T>
  requires std::is_constructible_v<T, V>
  void return_value(V&& returned) { value.emplace(std::forward<V>(returned)); }
  T take() {
    if (exception) std::rethrow_exception(std::exchange(exception, nullptr));
    return std::move(*value);
  }
};

template <>
struct Promise<void> : PromiseBase {
  Task<void> get_return_object();
  void return_void() noexcept {}
  void take() {
    if (exception) std::rethrow_exception(std::exchange(exception, nullptr));
  }
};

template <class T>
class TaskState;

}  // namespace task_detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using Value = T;
  using promise_type = task_detail::Promise<T>;

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  bool valid() const { return static_cast<bool>(handle_); }

 private:
  friend promise_type;
  template <class U>
  friend class task_detail::TaskAwaiter;
  template <class U>
  friend class task_detail::TaskState;

  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

namespace task_detail {

template <class T>
Task<T> Promise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<Promise<T>>::from_promise(*this));
}
inline Task<void> Promise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<Promise<void>>::from_promise(*this));
}

// The state of the future that start() returns. While the task runs it holds one reference to itself.
template <class T>
class TaskState final : public FutureState<T>, private TaskRoot, private Continuation {
 public:
  TaskState(Task<T> task, Executor* executor)
      : FutureState<T>(executor), task_(std::move(task)), ambient_(captured_ambient()) {
    // A flag of its own: to cancel this task is not to cancel the flow that started it.
    ambient_.cancelled = std::make_shared<std::atomic<bool>>(false);
    this->on_cancel([flag = ambient_.cancelled] { flag->store(true); });
    task_.handle_.promise().root = this;
  }

  // Takes over the caller's reference.
  void launch() {
    if (this->executor() != nullptr) {
      FutureStateBase::dispatch(this, this->executor());
    } else {
      run();
    }
  }

 private:
  void run() noexcept override {
    AmbientScope scope(std::move(ambient_));
    resume_flow(task_.handle_);
  }
  void abandon() noexcept override { abandon_task(); }

  void finish() noexcept override {
    auto self = StateRef<TaskState>::adopt(this);
    Promise<T>& promise = task_.handle_.promise();
    // The frame goes before the result comes, like the function of then().
    if (promise.exception) {
      std::exception_ptr exception = std::exchange(promise.exception, nullptr);
      task_ = Task<T>();
      this->fail(std::move(exception));
    } else if constexpr (std::is_void_v<T>) {
      task_ = Task<T>();
      this->set_value();
    } else {
      T value = std::move(*promise.value);
      task_ = Task<T>();
      this->set_value(std::move(value));
    }
  }

  void abandon_task() noexcept override {
    auto self = StateRef<TaskState>::adopt(this);
    task_ = Task<T>();
    this->fail(Failure{.code = Code::cancelled, .message = "the executor was stopped"});
  }

  Task<T> task_;
  Ambient ambient_;  // until the first step
};

}  // namespace task_detail

// Runs the task. Without an executor its first step runs inside this call; with one it is posted there, and
// so are the continuations of the future. To cancel the future sets current_ambient().cancelled inside the
// task, which goes on until it looks at that; its result is then dropped.
template <class T>
Future<T> start(Task<T> task, Executor* executor = nullptr) {
  if (!task.valid()) task_detail::throw_empty_task();
  auto state = StateRef<task_detail::TaskState<T>>::adopt(new task_detail::TaskState<T>(std::move(task), executor));
  Future<T> result{StateRef<FutureState<T>>(state)};
  state.release()->launch();
  return result;
}

}  // namespace holdfast
