// Future<T> and Promise<T>: a value that comes later, and the right to supply it. T may be void or
// move-only. Completion happens once: the first set_value, set_failure, set_exception or cancel wins.
//
// A Future is a handle: copies share one state, and any thread may use its own copy. A Promise belongs to
// one producer at a time. Continuations (then, co_await in a Task) run on the Promise's executor, or
// without one on the thread that completes the future, inside set_value() - or, in a long chain of such,
// soon after it, on the same thread. If the executor was stopped the futures made by then() fail with
// Cancelled and the function is destroyed without running.
#pragma once

#include <holdfast/base/ambient.h>
#include <holdfast/base/future_state.h>

#include <functional>
#include <optional>

namespace holdfast {

namespace future_detail {
template <class T, class F>
class ThenState;
}  // namespace future_detail

template <class T>
class Future {
 public:
  using Value = T;

  Future() = default;
  explicit Future(StateRef<FutureState<T>> state) : state_(std::move(state)) {}

  // False for a default-constructed or moved-from one; everything else then throws InvalidArgument.
  bool valid() const { return static_cast<bool>(state_); }
  bool ready() const { return state()->ready(); }
  // Ready, without a value.
  bool failed() const { return state()->failed(); }
  // What went wrong, described; throws InvalidArgument if it has not failed.
  Failure failure() const {
    if (!failed()) throw_not_failed();
    return state_->failure();
  }

  void wait() const { state()->wait(); }
  // True: it is ready.
  bool wait_for(Duration timeout) const { return wait_until(after(steady_now(), timeout)); }
  bool wait_until(Time until) const { return state()->wait_until(until); }

  // Waits, and returns the value or throws. A T that can be copied is copied, so get() may be called again;
  // one that cannot is moved out, and the second get() throws InvalidArgument.
  T get() const& { return unwrap(state()->get()); }
  // On the last handle of all there is nobody left who could ask again: moves.
  T get() && {
    state()->wait();
    return state_->unique() ? take() : get();
  }
  // Waits, and moves the value out even if it could be copied. Only if no other copy is to read it: their
  // get() throws InvalidArgument, and running meanwhile it is a data race.
  T take() const {
    state()->wait();
    if (state_->failed()) state_->throw_problem();
    return unwrap(state_->take());
  }

  // A future for what f makes of this one. f is called with the value - and if this future fails so does
  // the result, without a call - or, if f takes a Future<T>, always. f returns U, void or Future<U>; the
  // result is a Future<U>. What f throws fails the result. f sees the Ambient that is current now. To
  // cancel the result cancels this future too, or what f returned.
  template <class F>
  auto then(F&& f) const {
    return future_detail::ThenState<T, std::decay_t<F>>::attach(state(), std::forward<F>(f));
  }

  // If not complete: completes with Cancelled, and tells the producer. True: it was this call that did it.
  bool cancel() const { return StateRef<FutureState<T>>(state())->cancel(); }

  const StateRef<FutureState<T>>& state() const {
    if (!state_) throw_empty_future();
    return state_;
  }

 private:
  static T unwrap(typename FutureState<T>::Stored stored) {
    if constexpr (!std::is_void_v<T>) return stored;
  }

  StateRef<FutureState<T>> state_;
};

template <class T>
class Promise {
 public:
  // Continuations are posted on the executor; nullptr: they run on the completing thread.
  explicit Promise(Executor* executor = nullptr)
      : state_(StateRef<FutureState<T>>::adopt(new FutureState<T>(executor))) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&& other) noexcept {
    if (this != &other) {
      drop();
      state_ = std::move(other.state_);
    }
    return *this;
  }
  // If nothing was set, the future fails with Cancelled.
  ~Promise() { drop(); }

  bool valid() const { return static_cast<bool>(state_); }
  // Complete, perhaps because somebody cancelled it: no need to work on.
  bool ready() const { return state()->ready(); }
  Future<T> future() const { return Future<T>(state()); }

  // True: this call completed it. False: it was complete before, and nothing happened. Each holds its own
  // reference: those that wake may destroy this promise.
  template <class V = T>
  requires(!std::is_void_v<T> && std::is_constructible_v<T, V>) bool set_value(V&& value) {
    return StateRef<FutureState<T>>(state())->set_value(std::forward<V>(value));
  }
  bool set_value() requires std::is_void_v<T> { return StateRef<FutureState<T>>(state())->set_value(); }
  bool set_failure(Failure failure) { return StateRef<FutureState<T>>(state())->fail(std::move(failure)); }
  // get() throws the original again.
  bool set_exception(std::exception_ptr exception) {
    return StateRef<FutureState<T>>(state())->fail(std::move(exception));
  }

  // See FutureStateBase::on_cancel.
  void on_cancel(Closure hook) { StateRef<FutureState<T>>(state())->on_cancel(std::move(hook)); }
  // Before the first future() is handed out.
  void set_helper(std::shared_ptr<WaitHelper> helper) { state()->set_helper(std::move(helper)); }

 private:
  const StateRef<FutureState<T>>& state() const {
    if (!state_) throw_empty_future();
    return state_;
  }
  void drop() noexcept {
    StateRef<FutureState<T>> state = std::move(state_);
    if (state && !state->ready()) {
      state->fail(Failure{.code = Code::cancelled, .message = "the promise was dropped"});
    }
  }

  StateRef<FutureState<T>> state_;
};

template <class V>
Future<std::decay_t<V>> make_ready_future(V&& value) {
  using T = std::decay_t<V>;
  auto state = StateRef<FutureState<T>>::adopt(new FutureState<T>(nullptr));
  state->set_value(std::forward<V>(value));
  return Future<T>(std::move(state));
}

inline Future<void> make_ready_future() {
  auto state = StateRef<FutureState<void>>::adopt(new FutureState<void>(nullptr));
  state->set_value();
  return Future<void>(std::move(state));
}

template <class T>
Future<T> make_failed_future(Failure failure) {
  auto state = StateRef<FutureState<T>>::adopt(new FutureState<T>(nullptr));
  state->fail(std::move(failure));
  return Future<T>(std::move(state));
}

namespace future_detail {

template <class R>
struct Flatten {
  using Type = R;
  static constexpr bool is_future = false;
};
template <class U>
struct Flatten<Future<U>> {
  using Type = U;
  static constexpr bool is_future = true;
};

// How then(f) calls f: with the value if it can, else with the future. (The value first, so that a
// generic lambda gets the value.)
template <class F, class T>
struct Call {
  static constexpr bool by_reference = Copyable<T>::value && std::is_invocable_v<F, const T&>;
  static constexpr bool by_value = !by_reference && std::is_invocable_v<F, T>;
  static constexpr bool with_value = by_reference || by_value;

  static decltype(auto) call(F&& f, FutureState<T>& source) {
    if constexpr (by_reference) {
      return std::invoke(std::forward<F>(f), source.value());
    } else if constexpr (by_value) {
      return std::invoke(std::forward<F>(f), source.read());
    } else {
      return std::invoke(std::forward<F>(f), Future<T>(StateRef<FutureState<T>>(&source)));
    }
  }
};
template <class F>
struct Call<F, void> {
  static constexpr bool with_value = std::is_invocable_v<F>;

  static decltype(auto) call(F&& f, FutureState<void>& source) {
    if constexpr (with_value) {
      return std::invoke(std::forward<F>(f));
    } else {
      return std::invoke(std::forward<F>(f), Future<void>(StateRef<FutureState<void>>(&source)));
    }
  }
};

template <class F, class T>
using CallResult = std::decay_t<decltype(Call<F, T>::call(std::declval<F>(), std::declval<FutureState<T>&>()))>;

// Completes `target` like the state it is added to. The target's cancel() must reach that state by itself.
template <class U>
class Forward final : public Continuation {
 public:
  Forward(StateRef<FutureState<U>> source, StateRef<FutureState<U>> target)
      : source_(std::move(source)), target_(std::move(target)) {
    always_inline = true;
  }
  void run() noexcept override {
    target_->complete_like(*source_);
    delete this;
  }
  void abandon() noexcept override { run(); }

 private:
  StateRef<FutureState<U>> source_;
  StateRef<FutureState<U>> target_;
};

// The state of a future made by then(): it is the continuation of its source too, so that then() costs
// one allocation. While it waits the source's list holds one reference to it.
template <class T, class F>
class ThenState final : public FutureState<typename Flatten<CallResult<F, T>>::Type>, private Continuation {
 public:
  using R = CallResult<F, T>;
  using U = typename Flatten<R>::Type;

  template <class G>
  ThenState(StateRef<FutureState<T>> source, G&& function)
      : FutureState<U>(source->executor()),
        source_(std::move(source)),
        ambient_(captured_ambient()),
        function_(std::forward<G>(function)) {
    this->set_helper(source_->helper());
  }

  static Future<U> attach(StateRef<FutureState<T>> source, auto&& function) {
    FutureState<T>* from = source.get();  // alive: the caller's future holds it
    auto self =
        StateRef<ThenState>::adopt(new ThenState(std::move(source), std::forward<decltype(function)>(function)));
    Future<U> result{StateRef<FutureState<U>>(self)};
    self->on_cancel([source = self->source_] { source->cancel(); });
    from->add(self.release());
    return result;
  }

 private:
  void run() noexcept override {
    auto self = StateRef<ThenState>::adopt(this);
    AmbientScope scope(std::move(ambient_));
    if (Call<F, T>::with_value && (source_->failed() || this->ready())) {
      end();
      if (source_->failed()) this->fail(source_->problem());
    } else {
      call();
    }
    source_ = {};
  }

  void abandon() noexcept override {
    auto self = StateRef<ThenState>::adopt(this);
    end();
    source_ = {};
    this->fail(Failure{.code = Code::cancelled, .message = "the executor was stopped"});
  }

  // The function goes before the result comes: who waits for the result may rely on the captures being gone.
  void end() { function_.reset(); }

  void call() {
    try {
      if constexpr (std::is_void_v<R>) {
        Call<F, T>::call(std::move(*function_), *source_);
        end();
        this->set_value();
      } else {
        R result = Call<F, T>::call(std::move(*function_), *source_);
        end();
        if constexpr (Flatten<R>::is_future) {
          flatten(std::move(result));
        } else {
          this->set_value(std::move(result));
        }
      }
    } catch (...) {
      end();
      this->fail(std::current_exception());
    }
  }

  void flatten(Future<U> inner) {
    const StateRef<FutureState<U>>& state = inner.state();
    if (state->ready()) {
      this->complete_like(*state);
      return;
    }
    this->on_cancel([state] { state->cancel(); });
    state->add(new Forward<U>(state, StateRef<FutureState<U>>(this)));
  }

  StateRef<FutureState<T>> source_;
  Ambient ambient_;
  std::optional<F> function_;
};

}  // namespace future_detail

}  // namespace holdfast
