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

// What a handler, or finish, has given.
struct Ended {
  Outcome outcome;
  py::object value;
};
Ended ended_from(const py::object& answer) {
  const auto pair = answer.cast<py::tuple>();
  return {static_cast<Outcome>(pair[0].cast<int>()), pair[1]};
}

// The result of a handler: there now, or when the torch future is done. `convert` makes the result of an Ended.
template <class T, class Convert>
Future<T> result_of(const Ended& ended, Convert convert) {
  if (ended.outcome != Outcome::later) return make_ready_future(convert(ended));
  auto promise = std::make_shared<Promise<T>>();
  Future<T> future = promise->future();
  ++suspended_count;
  ended.value.attr("add_done_callback")(py::cpp_function([promise, convert](const py::object& done) {
    --suspended_count;
    try {
      promise->set_value(convert(ended_from(handlers().finish.get()(done))));
    } catch (py::error_already_set& error) {
      promise->set_failure({.code = Code::remote_error, .message = error.what(), .worker = {}, .type = "Python"});
    }
  }));
  return future;
}

Ended run(const Packed& call) {
  if (!call.is_plain()) {
    const py::tuple parts = parts_of(call);
    return ended_from(handlers().run.get()(parts[0], parts[1], parts[2]));
  }
  if (!call.plain.isTuple() || call.plain.toTupleRef().elements().size() != 3) {
    throw_failure({.code = Code::invalid_argument, .message = "a call of a Python function has three parts"});
  }
  const auto& parts = call.plain.toTupleRef().elements();
  return ended_from(handlers().run_named.get()(object_of(parts[0]), object_of(parts[1]), object_of(parts[2])));
}

template <class T, class Convert>
Future<T> serve(const Packed& call, Convert convert) {
  check_interpreter();
  AmbientScope scope(without_deadline());
  TimedGil gil;
  try {
    return result_of<T>(run(call), convert);
  } catch (py::error_already_set& error) {
    throw_python_error(error);
  }
}

// The function's module and name, if that is how the callee finds it too: as pickle has it. Attributes say that there
// is something special about it.
std::optional<std::pair<c10::IValue, c10::IValue>> name_of_function(PyObject* object) {
  if (!PyFunction_Check(object)) return std::nullopt;
  const auto* function = reinterpret_cast<PyFunctionObject*>(object);
  if (function->func_dict != nullptr && PyDict_GET_SIZE(function->func_dict) != 0) return std::nullopt;
  if (function->func_module == nullptr || !PyUnicode_CheckExact(function->func_module)) return std::nullopt;
  PyObject* module = PyDict_GetItem(PyImport_GetModuleDict(), function->func_module);
  if (module == nullptr || !PyModule_Check(module)) return std::nullopt;
  if (PyDict_GetItem(PyModule_GetDict(module), function->func_qualname) != object) return std::nullopt;
  std::optional<c10::IValue> module_name = plain_value(function->func_module);
  std::optional<c10::IValue> name = plain_value(function->func_qualname);
  if (!module_name || !name) return std::nullopt;
  return std::pair(std::move(*module_name), std::move(*name));
}

std::optional<c10::IValue> plain_call(const py::object& function, const py::object& args, const py::object& kwargs) {
  if (!PyTuple_CheckExact(args.ptr()) || PyObject_IsTrue(kwargs.ptr()) != 0) return std::nullopt;
  std::optional<c10::IValue> arguments = plain_value(args);
  if (!arguments) return std::nullopt;
  auto name = name_of_function(function.ptr());
  if (!name) return std::nullopt;
  return c10::ivalue::Tuple::create({std::move(name->first), std::move(name->second), std::move(*arguments)});
}

}  // namespace

void set_handlers(Handlers new_handlers) { handlers() = std::move(new_handlers); }

ServeStats serve_stats() {
  const uint64_t count = gil_wait_count;
  return {.suspended = suspended_count,
          .gil_wait_us = count == 0 ? 0.0 : static_cast<double>(gil_wait_ns) / 1e3 / static_cast<double>(count)};
}

Packed pack_call(const py::object& function, const py::object& args, const py::object& kwargs) {
  if (auto plain = plain_call(function, args, kwargs)) return {.plain = std::move(*plain), .bytes = {}};
  return packed_from(handlers().pack_call.get()(function, args, kwargs).cast<py::tuple>());
}

Packed pack_result(const py::object& value, bool failed) {
  if (auto plain = plain_value(value)) return {.plain = std::move(*plain), .bytes = {}};
  return packed_from(handlers().pack.get()(value, failed).cast<py::tuple>());
}

py::object result_from(const Packed& packed) {
  if (packed.is_plain()) return object_of(packed.plain);
  const py::tuple parts = parts_of(packed);
  return handlers().unpack.get()(parts[0], parts[1], parts[2]);
}

Future<Packed> python_call(const Packed& call) {
  return serve<Packed>(call,
                       [](const Ended& ended) { return pack_result(ended.value, ended.outcome == Outcome::failed); });
}

Future<PyValue> python_remote(const Packed& call) {
  return serve<PyValue>(call, [](const Ended& ended) {
    return PyValue{.object = Held(ended.value), .failed = ended.outcome == Outcome::failed};
  });
}

Packed python_fetch(const PyValue& value) {
  check_interpreter();
  Gil gil;
  try {
    return pack_result(value.object.get(), value.failed);
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
