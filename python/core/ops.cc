// Operators of torch on another worker: the callee runs them in C++, without Python and its GIL. For arguments that are
// tensors and numbers; all others go the way of Python functions.
#include <atomic>
#include <optional>

#include <holdfast/tensor/operators.h>

#include "delivery.h"
#include "worker.h"

namespace holdfast::python {

namespace {

// Called with a function that runs an operator for somebody: it may look at what happens. Null: nobody looks.
std::atomic<bool> observed{false};
Held& observer() {
  static auto* held = new Held;
  return *held;
}

// What a worker serves.
c10::IValue python_operator(const std::string& name, const CallArguments& arguments) {
  if (!observed) return run_operator(name, arguments);
  c10::IValue result;
  py::gil_scoped_acquire gil;
  const auto run = [&] {
    py::gil_scoped_release release;
    result = run_operator(name, arguments);
  };
  observer().get()(py::cpp_function(run));
  return result;
}

std::optional<CallArguments> simple_arguments(const py::tuple& args, const py::dict& kwargs) {
  if (args.empty()) return std::nullopt;
  CallArguments arguments;
  for (py::handle arg : args) {
    std::optional<c10::IValue> value = simple_value(arg);
    if (!value) return std::nullopt;
    arguments.positional.push_back(std::move(*value));
  }
  for (const auto& [name, arg] : kwargs) {
    std::optional<c10::IValue> value = simple_value(arg);
    if (!value) return std::nullopt;
    arguments.keyword.emplace_back(name.cast<std::string>(), std::move(*value));
  }
  return arguments;
}

py::object not_simple() { return py::reinterpret_borrow<py::object>(Py_NotImplemented); }

py::object call_op(const WorkerHandle& handle, int rank, const std::string& name, const py::tuple& args,
                   const py::dict& kwargs, double timeout_s) {
  std::optional<CallArguments> arguments = simple_arguments(args, kwargs);
  if (!arguments) return not_simple();
  c10::IValue result;
  {
    py::gil_scoped_release release;
    result = handle.peer(rank, timeout_s).call<python_operator>(name, *arguments);
    arguments.reset();
  }
  return object_of(result);
}

// False: the arguments are not simple, and nothing was done.
bool call_op_async(const WorkerHandle& handle, int rank, const std::string& name, const py::tuple& args,
                   const py::dict& kwargs, double timeout_s, const py::object& future, py::object convert) {
  std::optional<CallArguments> arguments = simple_arguments(args, kwargs);
  if (!arguments) return false;
  Delivery delivery(torch_future(future), std::move(convert));
  py::gil_scoped_release release;
  deliver_to(handle.peer(rank, timeout_s).async<python_operator>(name, *arguments), std::move(delivery));
  arguments.reset();
  return true;
}

}  // namespace

void bind_ops(py::module_& module) {
  module.def("call_op", &call_op);
  module.def("set_operator_observer", [](py::object function) {
    observed = !function.is_none();
    observer() = Held(std::move(function));
  });
  module.def("call_op_async", &call_op_async);
}

}  // namespace holdfast::python
