// Contexts of distributed autograd for Python, which knows them by one number: the creator's rank in the upper 16 bits,
// its counter below.
#include <torch/csrc/autograd/python_cpp_function.h>

#include <set>

#include <holdfast/autograd/context.h>
#include <holdfast/autograd/context_state.h>

#include "worker.h"

namespace holdfast::python {

namespace {

constexpr int kRankShift = 48;

int64_t number_of(const ContextId& id) {
  return static_cast<int64_t>((uint64_t{id.creator.rank.value} << kRankShift) | id.counter);
}

[[noreturn]] void no_such_context(int64_t number) {
  throw_failure({.code = Code::invalid_argument,
                 .message = "Could not find autograd context with id: " + std::to_string(number)});
}

std::shared_ptr<autograd::ContextState> find_state(const WorkerHandle& handle, int64_t number) {
  Worker& worker = handle.worker();
  const auto rank = static_cast<int>(number >> kRankShift);
  std::shared_ptr<ContextData> found;
  if (rank >= 0 && rank < worker.world_size()) {
    const ContextId id{.creator = worker.peer(rank).info().id(),
                       .counter = static_cast<uint64_t>(number) & ((uint64_t{1} << kRankShift) - 1)};
    found = Backwards::of(worker.host()).find_context(id);
  }
  if (!found) no_such_context(number);
  return std::static_pointer_cast<autograd::ContextState>(found);
}

// The context of a `with` block: current on its thread from here to close().
class OpenContext {
 public:
  explicit OpenContext(const WorkerHandle& handle) : context_(std::make_unique<autograd::Context>(handle.worker())) {}
  int64_t id() const { return number_of(context_->id()); }
  void close() { context_.reset(); }

 private:
  std::unique_ptr<autograd::Context> context_;
};

void backward(const WorkerHandle& handle, int64_t number, const std::vector<at::Tensor>& roots, bool retain_graph) {
  autograd::ContextRef(find_state(handle, number))
      .backward(roots, {.mode = autograd::Mode::smart, .retain_graph = retain_graph});
}

std::vector<std::pair<at::Tensor, at::Tensor>> gradients(const WorkerHandle& handle, int64_t number) {
  return autograd::ContextRef(find_state(handle, number)).gradients();
}

py::object function_object(const std::shared_ptr<torch::autograd::Node>& node) {
  return py::reinterpret_steal<py::object>(torch::autograd::functionToPyObject(node));
}

py::dict send_functions(const WorkerHandle& handle, int64_t number) {
  const auto state = find_state(handle, number);
  py::dict functions;
  std::vector<SendNumber> sends = state->all_sends();
  std::sort(sends.begin(), sends.end());
  for (SendNumber send : sends) functions[py::int_(send.value)] = function_object(state->send(send));
  return functions;
}

py::dict recv_functions(const WorkerHandle& handle, int64_t number) {
  py::dict functions;
  size_t count = 0;
  for (const auto& recv : find_state(handle, number)->recvs()) functions[py::int_(++count)] = function_object(recv);
  return functions;
}

std::set<uint32_t> known_workers(const WorkerHandle& handle, int64_t number) {
  return find_state(handle, number)->reached_ranks();
}

py::object current_context() {
  if (!autograd::has_current_context()) return py::none();
  return py::int_(number_of(autograd::current_context().id()));
}

}  // namespace

void bind_autograd(py::module_& module) {
  py::class_<OpenContext>(module, "OpenContext")
      .def(py::init<const WorkerHandle&>(), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("id", &OpenContext::id)
      .def("close", &OpenContext::close, py::call_guard<py::gil_scoped_release>());

  module.def("backward", &backward, py::arg("worker"), py::arg("context_id"), py::arg("roots"),
             py::arg("retain_graph") = false, py::call_guard<py::gil_scoped_release>());
  module.def("gradients", &gradients);
  module.def("current_context", &current_context);
  module.def("has_context", [](const WorkerHandle& handle, int64_t number) { find_state(handle, number); });
  module.def("send_functions", &send_functions);
  module.def("recv_functions", &recv_functions);
  module.def("known_workers", &known_workers);
  // Contexts that have come here; passes that this worker has a part in.
  module.def("autograd_counts", [](const WorkerHandle& handle) {
    const BackwardCounts counts = Backwards::of(handle.worker().host()).counts();
    return std::make_pair(counts.contexts, std::max(counts.passes, counts.parts));
  });
  module.def("set_function_form", [](const std::string& send_name, const std::string& recv_name, bool hooks_apart) {
    autograd::function_form() = {.send_name = send_name, .recv_name = recv_name, .hooks_apart = hooks_apart};
  });
}

}  // namespace holdfast::python
