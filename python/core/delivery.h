// How the result of a call reaches Python: deliver(value, None), or deliver(None, exception), once, on whatever thread
// it arrives; also if the worker stops first.
#pragma once

#include <utility>

#include <holdfast/base/future.h>

#include "errors.h"
#include "gil.h"

namespace holdfast::python {

class Delivery {
 public:
  explicit Delivery(Held function) : function_(std::move(function)) {}
  Delivery(Delivery&&) = default;
  // The executor was stopped before the result came.
  ~Delivery() {
    if (function_) fail({.code = Code::shutdown, .message = "the worker was shut down before the result came"});
  }

  void fail(const Failure& failure) {
    if (!interpreter_runs()) return;
    Gil gil;
    call(py::none(), exception_of(failure));
  }
  // `make`: the value, made with the GIL.
  template <class Make>
  void succeed(Make&& make) {
    if (!interpreter_runs()) return;
    Gil gil;
    py::object value;
    try {
      value = make();
    } catch (const Error& error) {
      return call(py::none(), exception_of(error.failure()));
    }
    call(value, py::none());
  }

 private:
  // Nobody is there to take what it raises but the one who looks at stderr.
  void call(const py::object& value, const py::object& exception) {
    Held function = std::exchange(function_, Held());
    try {
      function.get()(value, exception);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("a result of a remote call");
    }
  }

  Held function_;
};

// `convert` makes the Python value of the result.
template <class T, class Convert>
void deliver_to(const Future<T>& future, Held deliver, Convert convert) {
  future.then([delivery = Delivery(std::move(deliver)), convert = std::move(convert)](Future<T> done) mutable {
    if (done.failed()) return delivery.fail(done.failure());
    if constexpr (std::is_void_v<T>) {
      delivery.succeed([&]() -> py::object { return convert(); });
    } else {
      delivery.succeed([&]() -> py::object { return convert(done.take()); });
    }
  });
}

}  // namespace holdfast::python
