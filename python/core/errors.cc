#include "errors.h"

#include <map>
#include <string>

namespace holdfast::python {

namespace {

struct ErrorClass {
  Code code;
  const char* name;
};

constexpr ErrorClass kClasses[] = {
    {Code::invalid_argument, "InvalidArgument"},
    {Code::no_such_function, "NoSuchFunction"},
    {Code::timeout, "Timeout"},
    {Code::worker_lost, "WorkerLost"},
    {Code::cancelled, "Cancelled"},
    {Code::remote_error, "RemoteError"},
    {Code::corrupt, "Corrupt"},
    {Code::overloaded, "Overloaded"},
    {Code::shutdown, "Shutdown"},
    {Code::rref_deleted, "RRefDeleted"},
    {Code::unavailable, "Unavailable"},
    {Code::fault_injected, "FaultInjected"},
};

// Never freed: exceptions may be made until the interpreter ends.
std::map<Code, PyObject*>& classes() {
  static auto* map = new std::map<Code, PyObject*>;
  return *map;
}

// The words that programs written for torch look for.
std::string text_of(const Failure& failure) {
  if (failure.code == Code::timeout) return "RPC ran for more than set timeout: " + failure.message;
  if (failure.message.find("Options::device_maps") != std::string::npos) {
    return failure.message + " (in Python: `set_device_map` on `TensorPipeRpcBackendOptions`)";
  }
  return failure.message;
}

}  // namespace

void bind_errors(py::module_& module) {
  PyObject* base =
      PyErr_NewExceptionWithDoc("holdfast.Error", "What went wrong in Holdfast.", PyExc_RuntimeError, nullptr);
  module.attr("Error") = py::reinterpret_borrow<py::object>(base);
  for (const ErrorClass& entry : kClasses) {
    PyObject* type = PyErr_NewException((std::string("holdfast.") + entry.name).c_str(), base, nullptr);
    classes()[entry.code] = type;
    module.attr(entry.name) = py::reinterpret_borrow<py::object>(type);
  }
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const Error& error) {
      py::object exception = exception_of(error.failure());
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    }
  });
}

py::object exception_of(const Failure& failure) {
  py::handle type(classes().at(failure.code));
  py::object exception = type(text_of(failure));
  exception.attr("worker") = failure.worker;
  exception.attr("remote_type") = failure.type;
  exception.attr("maybe_executed") = failure.maybe_executed;
  return exception;
}

}  // namespace holdfast::python
