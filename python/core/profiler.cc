// torch's autograd profiler across calls: the callee records what a call does, and the caller adds that to its own
// record. All of it for the profiler of old (torch.autograd.profiler_legacy), whose state belongs to a thread.
#include <ATen/ThreadLocalState.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_legacy.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <optional>
#include <string>

#include "worker.h"

namespace holdfast::python {

namespace {

namespace profiler = torch::autograd::profiler;
using Events = profiler::thread_event_lists;

py::bytes bytes_of(const c10::IValue& value) {
  const std::vector<char> data = torch::jit::pickle(value);
  return {data.data(), data.size()};
}

c10::IValue value_of(const py::bytes& bytes) {
  const std::string data = bytes;
  return torch::jit::unpickle(data.data(), data.size());
}

// What this thread has set for torch: for Python code that runs for it on another thread.
class ThreadState {
 public:
  void enter() { guard_.emplace(state_); }
  void leave() { guard_.reset(); }

 private:
  const at::ThreadLocalState state_;
  std::optional<at::ThreadLocalStateGuard> guard_;
};

Events take_events(bool whole_thread) {
  return profiler::disableProfilerLegacy(profiler::ProfilerDisableOptions(whole_thread, /*shouldConsolidate=*/true));
}

// The record of one call, on the callee. begin(), then the function, then either end() or, if the function goes on
// elsewhere, leave() now and end_elsewhere() when it is through.
class Recording {
 public:
  explicit Recording(const py::bytes& config) {
    profiler::enableProfilerLegacy(profiler::ProfilerConfig::fromIValue(value_of(config)));
  }
  Events end() { return take_events(true); }
  void leave() {
    state_.emplace();
    profiler::disableProfilerLegacy(profiler::ProfilerDisableOptions(true, /*shouldConsolidate=*/false));
  }
  Events end_elsewhere() {
    at::ThreadLocalStateGuard guard(*state_);
    return take_events(false);
  }

 private:
  std::optional<at::ThreadLocalState> state_;
};

py::bytes pack_events(const Events& lists) {
  c10::impl::GenericList values(c10::AnyType::get());
  for (const auto& list : lists) {
    for (const profiler::LegacyEvent& event : list) values.push_back(event.toIValue());
  }
  return bytes_of(values);
}

// To this thread's record: what happened in a call, under the call's own name.
void add_events(const py::bytes& packed, const std::string& prefix) {
  const c10::IValue values = value_of(packed);
  std::vector<profiler::LegacyEvent> events;
  for (const c10::IValue& value : values.toListRef()) {
    events.push_back(profiler::LegacyEvent::fromIValue(value));
    events.back().setName(at::StringView(prefix + events.back().name()));
  }
  profiler::addEventList(std::move(events));
}

}  // namespace

void bind_profiler(py::module_& module) {
  py::class_<ThreadState>(module, "ThreadState")
      .def(py::init<>())
      .def("__enter__", &ThreadState::enter)
      .def("__exit__", [](ThreadState& state, const py::args&) { state.leave(); });
  py::class_<Recording>(module, "Recording")
      .def(py::init<const py::bytes&>())
      .def("end", &Recording::end)
      .def("leave", &Recording::leave)
      .def("end_elsewhere", &Recording::end_elsewhere);
  module.def("profiler_config", [] { return bytes_of(profiler::getProfilerConfig().toIValue()); });
  module.def("profiler_config_of", [](const profiler::ProfilerConfig& config) { return bytes_of(config.toIValue()); });
  module.def("pack_events", &pack_events);
  module.def("add_events", &add_events);
  module.def("set_profiler_node_id", &at::RecordFunction::setDefaultNodeId);
}

}  // namespace holdfast::python
