// Delivery: how the result of a call reaches Python: it completes a torch future, once, on whatever thread the result
// arrives; also if the worker stops first. That needs no GIL, unless the call has failed: a pickled result is unpickled
// when somebody asks the future for it. So results that come do not take the GIL away from whoever starts more calls.
#pragma once

#include <memory>
#include <utility>

#include <holdfast/base/future.h>

#include "calls.h"
#include "errors.h"
#include "futures.h"
#include "gil.h"

namespace holdfast::python {

class Delivery {
 public:
  // With the GIL. `convert`, a Python function or None, makes of the result what the future is completed with.
  explicit Delivery(TorchFuture future, py::object convert = py::none()) : future_(std::move(future)) {
    if (!convert.is_none()) convert_ = Held(std::move(convert));
  }
  Delivery(Delivery&&) = default;
  // The executor was stopped before the result came.
  ~Delivery() {
    if (future_) fail({.code = Code::shutdown, .message = "the worker was shut down before the result came"});
  }

  void fail(const Failure& failure) {
    complete([&] { return raised_later(exception_of(failure)); });
  }
  void succeed() { succeed(c10::IValue()); }
  void succeed(c10::IValue value) {
    if (!convert_) return complete_with(std::move(value));
    complete([&] { return value_of_object(convert_.get()(object_of(value))); });
  }
  void succeed(Packed packed) {
    if (packed.is_plain()) return succeed(std::move(packed.plain));
    if (!packed.failed && !convert_) {
      const auto shared = std::make_shared<const Packed>(std::move(packed));
      return complete_with(late_object([shared] { return result_from(*shared); }));
    }
    complete([&] {
      py::object value = result_from(packed);
      return value_of_object(convert_ ? convert_.get()(value) : std::move(value));
    });
  }

 private:
  // `make`, with the GIL: the value, or the problem. What it throws is one too. The future is completed without the
  // GIL: that runs callbacks.
  template <class Make>
  void complete(Make&& make) {
    if (!interpreter_runs()) return forget();
    c10::IValue value;
    std::exception_ptr problem;
    {
      Gil gil;
      try {
        assign(make(), value, problem);
      } catch (py::error_already_set& error) {
        problem = raised_later(error.value());
      } catch (const Error& error) {
        problem = raised_later(exception_of(error.failure()));
      }
      convert_ = Held();
    }
    const TorchFuture future = std::exchange(future_, {});
    if (problem) {
      future->setError(std::move(problem));
    } else {
      future->markCompleted(std::move(value));
    }
  }
  void complete_with(c10::IValue value) {
    if (!interpreter_runs()) return forget();
    keep_thread_state();  // for callbacks in Python
    std::exchange(future_, {})->markCompleted(std::move(value));
  }
  static void assign(c10::IValue made, c10::IValue& value, std::exception_ptr&) { value = std::move(made); }
  static void assign(std::exception_ptr made, c10::IValue&, std::exception_ptr& problem) { problem = std::move(made); }
  // It may hold Python objects, which nobody can let go any more.
  void forget() { (void)future_.release(); }

  TorchFuture future_;
  Held convert_;
};

template <class T>
void deliver_to(const Future<T>& future, Delivery delivery) {
  future.then([delivery = std::move(delivery)](Future<T> done) mutable {
    if (done.failed()) return delivery.fail(done.failure());
    if constexpr (std::is_void_v<T>) {
      delivery.succeed();
    } else {
      delivery.succeed(done.take());
    }
  });
}

}  // namespace holdfast::python
