#include "calls.h"

#include <atomic>
#include <optional>

#include <holdfast/base/ambient.h>
#include <holdfast/base/time.h>

#include "gil.h"

namespace holdfast::python {

namespace {

// Of the program, like its functions: there is one interpreter. Never freed, for threads may outlive it.
Handlers& handlers() {
  static auto* handlers = new Handlers;
  return *handlers;
}

std::atomic<uint64_t> suspended_count{0};
std::atomic<uint64_t> gil_wait_count{0};
std::atomic<uint64_t> gil_wait_ns{0};

// Takes the GIL, and notes how long that took.
class TimedGil {
 public:
  TimedGil() {
    gil_.emplace();
    ++gil_wait_count;
    gil_wait_ns += static_cast<uint64_t>((steady_now() - began_).count());
  }

 private:
  const Time began_ = steady_now();
  std::optional<Gil> gil_;
};

// A Python function runs as it would by itself: the calls that it makes have their own timeouts only.
Ambient without_deadline() {
  Ambient ambient = current_ambient();
  ambient.deadline = kNever;
  ambient.cancelled = nullptr;
  return ambient;
}

void check_interpreter() {
  if (!interpreter_runs()) throw_failure({.code = Code::shutdown, .message = "the interpreter is ending"});
}

// Once the GIL is held: what a Python function raised becomes a C++ exception that needs none.
[[noreturn]] void throw_python_error(py::error_already_set& error) {
  throw_failure({.code = Code::remote_error, .message = error.what(), .worker = {}, .type = "Python"});
}

PyValue value_from(const py::tuple& parts) {
  return {.object = Held(parts[1].cast<py::object>()), .failed = parts[0].cast<bool>()};
}

// The result of a handler: there now, or when the torch future is done.
template <class T, class Convert>
Future<T> result_of(py::object answer, const Held& finish, Convert convert) {
  if (py::isinstance<py::tuple>(answer)) return make_ready_future(convert(answer.cast<py::tuple>()));
  auto promise = std::make_shared<Promise<T>>();
  Future<T> future = promise->future();
  ++suspended_count;
  answer.attr("add_done_callback")(py::cpp_function([promise, finish, convert](const py::object& done) {
    --suspended_count;
    try {
      promise->set_value(convert(finish.get()(done).template cast<py::tuple>()));
    } catch (py::error_already_set& error) {
      promise->set_failure({.code = Code::remote_error, .message = error.what(), .worker = {}, .type = "Python"});
    }
  }));
  return future;
}

template <class T, class Convert>
Future<T> serve(const Pickled& call, const Held& handler, const Held& finish, Convert convert) {
  check_interpreter();
  AmbientScope scope(without_deadline());
  TimedGil gil;
  try {
    py::tuple parts = to_python(call);
    return result_of<T>(handler.get()(parts[0], parts[1], parts[2]), finish, convert);
  } catch (py::error_already_set& error) {
    throw_python_error(error);
  }
}

}  // namespace

void set_handlers(Handlers new_handlers) { handlers() = std::move(new_handlers); }

ServeStats serve_stats() {
  const uint64_t count = gil_wait_count;
  return {.suspended = suspended_count,
          .gil_wait_us = count == 0 ? 0.0 : static_cast<double>(gil_wait_ns) / 1e3 / static_cast<double>(count)};
}

Future<Pickled> python_call(const Pickled& call) {
  return serve<Pickled>(call, handlers().run, handlers().finish_run, pickled_from);
}

Future<PyValue> python_remote(const Pickled& call) {
  return serve<PyValue>(call, handlers().keep, handlers().finish_keep, value_from);
}

Pickled python_fetch(const PyValue& value) {
  check_interpreter();
  Gil gil;
  try {
    return pickled_from(handlers().pack.get()(value.object.get(), value.failed).cast<py::tuple>());
  } catch (py::error_already_set& error) {
    throw_python_error(error);
  }
}

void python_wait(const PyValue&) {}

}  // namespace holdfast::python

HOLDFAST_EXPORT_AS(holdfast::python::python_call, "holdfast.python.call");
HOLDFAST_EXPORT_AS(holdfast::python::python_remote, "holdfast.python.remote");
HOLDFAST_EXPORT_METHOD(holdfast::python::python_fetch);
HOLDFAST_EXPORT_METHOD(holdfast::python::python_wait);
