#include "worker.h"

#include <holdfast/base/blocking.h>
#include <holdfast/rref/debug_info.h>
#include <holdfast/tensor/device.h>
#include <holdfast/tensor/device_map.h>

#include "calls.h"
#include "delivery.h"

namespace holdfast::python {

namespace {

using Strings = std::vector<std::string>;

// Throws InvalidArgument if there is none.
int find_rank(const WorkerHandle& handle, const std::string& name) { return handle.worker().peer(name).rank(); }

std::vector<std::pair<std::string, int>> all_workers(const WorkerHandle& handle) {
  Worker& worker = handle.worker();
  std::vector<std::pair<std::string, int>> workers;
  for (int rank = 0; rank < worker.world_size(); ++rank) {
    try {
      workers.emplace_back(worker.peer(rank).name(), rank);
    } catch (const Error&) {
      // Lost, or not there yet.
    }
  }
  return workers;
}

py::dict counts(const WorkerHandle& handle) {
  DebugInfo info;
  WorkerStats stats;
  {
    py::gil_scoped_release release;
    info = handle.worker().debug_info();
    stats = handle.worker().stats();
  }
  size_t pending_owners = 0;
  size_t shared_owners = 0;  // a value that only this worker knows is nobody else's concern
  for (const DebugInfo::OwnedObject& object : info.owned) {
    if (object.state != "ready" && object.state != "failed") ++pending_owners;
    if (!object.holders.empty() || !object.made_by.starts_with("own()")) ++shared_owners;
  }
  py::dict result;
  result["owners"] = shared_owners;
  result["owners_pending"] = pending_owners;
  result["forks"] = info.forks;
  result["pending_children"] = info.pending_children;
  result["pending_users"] = info.pending_users;
  result["users"] = info.used.size();
  result["calls_made"] = stats.calls_made;
  result["calls_served"] = stats.calls_served;
  result["threads"] = stats.threads;
  const ServeStats served = serve_stats();
  result["calls_suspended"] = served.suspended;
  result["gil_wait_us"] = served.gil_wait_us;
  result["text"] = info.text();
  result["owned_text"] = info.owned_text();
  return result;
}

// How many devices of each type this process has, by the type's name.
std::map<std::string, uint32_t> device_counts() {
  std::map<std::string, uint32_t> counts;
  for (const auto& [number, count] : device_facts(Options()).counts) {
    counts[c10::DeviceTypeName(*device_type_of(number), true)] = count;
  }
  return counts;
}

// For Python code that waits: while it does, the worker's other calls get another thread.
class Blocking {
 public:
  void enter() { scope_.emplace(); }
  void leave() { scope_.reset(); }

 private:
  std::optional<BlockingScope> scope_;
};

// What the environment says; if it says nothing, the secret in that file, unless its name is empty.
Security job_security(const std::string& secret_file) {
  Security security = Security::from_env().take();
  if (security.mode == SecurityMode::automatic && !is_protected(security) && !secret_file.empty()) {
    security.secret = read_secret_file(secret_file).take();
  }
  return security;
}

// Runs a server for the workers of a job until nobody needs it any more.
std::unique_ptr<CoordinatorServer> make_coordinator(int world_size, int start_at, const std::string& bind,
                                                    double lease_s, const std::string& secret_file) {
  CoordinatorOptions options;
  options.world_size = static_cast<uint32_t>(world_size);
  options.start_at = static_cast<uint32_t>(start_at);
  options.lease = duration_of(lease_s);
  ListenOptions listen;
  listen.bind = bind;
  return std::make_unique<CoordinatorServer>(options, listen,
                                             TcpOptions{.tls = make_tls(job_security(secret_file)).take()});
}

std::unique_ptr<WorkerHandle> make_worker(const std::string& name, int rank, int world_size,
                                          const std::string& coordinator, const std::string& secret_file,
                                          int handler_threads, double timeout_s, double join_timeout_s,
                                          const Strings& messages_to_fail, int num_fail_sends,
                                          const std::map<std::string, double>& messages_to_delay,
                                          const std::map<std::string, std::map<std::string, std::string>>& device_maps,
                                          const Strings& devices, py::object on_held, bool open) {
  // No coordinator: a launcher has said in the environment where it is, and who this is.
  Options options = coordinator.empty() ? Options::from_env() : Options::habits_from_env();
  if (!coordinator.empty()) {
    options.rank = rank;
    options.world_size = world_size;
    options.coordinator = coordinator;
    options.security = job_security(secret_file);
  }
  if (!name.empty()) options.name = name;
  options.handler_threads = handler_threads;
  options.timeout = duration_of(timeout_s);
  options.join_timeout = duration_of(join_timeout_s);
  options.allowed_operators = {"aten::*"};  // who may call Python functions here may call all of these
  if (!messages_to_fail.empty()) {
    options.faults.messages_to_fail = messages_to_fail;
    options.faults.num_fail_sends = static_cast<uint32_t>(num_fail_sends);
  }
  for (const auto& [kind, delay_s] : messages_to_delay) options.faults.messages_to_delay[kind] = duration_of(delay_s);
  options.device_maps = device_maps;
  options.devices = devices;
  if (!on_held.is_none()) {
    options.on_held_at_shutdown = [held = Held(std::move(on_held))](const std::string& text) {
      if (!interpreter_runs()) return;
      py::gil_scoped_acquire gil;
      held.get()(text);
    };
  }
  py::gil_scoped_release release;
  return std::make_unique<WorkerHandle>(std::move(options), open);
}

}  // namespace

Duration duration_of(double timeout_s) {
  if (timeout_s <= 0 || timeout_s > 1e9) return kForever;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(timeout_s));
}

WorkerHandle::WorkerHandle(Options options, bool open) : worker_(std::make_shared<Worker>(std::move(options))) {
  if (open) return;  // others may come at any time
  // All of them now: calls to one that is lost later shall say that.
  for (int rank = 0; rank < worker_->world_size(); ++rank) {
    try {
      peers_.try_emplace(rank, worker_->peer(rank));
    } catch (const InvalidArgument&) {
      // It has gone already.
    }
  }
}

std::shared_ptr<Worker> WorkerHandle::shared() const {
  std::lock_guard lock(mutex_);
  if (!worker_) throw_failure({.code = Code::shutdown, .message = "this worker has been shut down"});
  return worker_;
}

Worker& WorkerHandle::worker() const { return *shared(); }

Peer WorkerHandle::peer(int rank, double timeout_s) const {
  {
    std::lock_guard lock(mutex_);
    if (auto found = peers_.find(rank); found != peers_.end())
      return found->second.with_timeout(duration_of(timeout_s));
  }
  Peer peer = shared()->peer(rank);
  std::lock_guard lock(mutex_);
  return peers_.try_emplace(rank, peer).first->second.with_timeout(duration_of(timeout_s));
}

py::object WorkerHandle::call(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
                              double timeout_s) const {
  const Packed call = pack_call(function, args, kwargs);
  Packed result;
  {
    py::gil_scoped_release release;
    result = peer(rank, timeout_s).call<python_call>(call);
  }
  return result_from(result);
}

void WorkerHandle::call_async(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
                              double timeout_s, const py::object& future, py::object convert) const {
  const Packed call = pack_call(function, args, kwargs);
  Delivery delivery(torch_future(future), std::move(convert));
  py::gil_scoped_release release;
  deliver_to(peer(rank, timeout_s).async<python_call>(call), std::move(delivery));
}

Ref WorkerHandle::remote(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
                         double timeout_s) const {
  const Packed call = pack_call(function, args, kwargs);
  py::gil_scoped_release release;
  return {peer(rank, timeout_s).remote<python_remote>(call)};
}

Ref WorkerHandle::own(py::object value) const {
  PyValue kept{.object = Held(std::move(value))};
  py::gil_scoped_release release;
  return {shared()->own(std::move(kept), "python", 0)};
}

Ref WorkerHandle::never_made(int rank, const std::string& why) const {
  py::gil_scoped_release release;
  const auto state = shared()->host().peer_state(std::make_shared<const WorkerInfo>(peer(rank, 0).info()));
  return {PyRRef(rref_detail::never_sent(state, {.code = Code::fault_injected, .message = why}), kForever)};
}

void WorkerHandle::shutdown(double timeout_s) {
  py::gil_scoped_release release;
  const Duration timeout = duration_of(timeout_s);
  try {
    shared()->shutdown(timeout);
  } catch (...) {
    stop();
    throw;
  }
  stop();
}

void WorkerHandle::stop() {
  std::shared_ptr<Worker> worker;
  {
    std::lock_guard lock(mutex_);
    worker = std::move(worker_);
    peers_.clear();
  }
  if (!worker) return;
  if (PyGILState_Check() != 0) {
    py::gil_scoped_release release;
    worker.reset();
  } else {
    worker.reset();
  }
}

void bind_worker(py::module_& module) {
  module.def("device_counts", &device_counts);
  module.def("is_protected", [](const std::string& secret_file) { return is_protected(job_security(secret_file)); });
  py::class_<CoordinatorServer>(module, "Coordinator")
      .def(py::init(&make_coordinator), py::arg("world_size"), py::arg("start_at"), py::arg("bind"), py::arg("lease_s"),
           py::arg("secret_file"))
      .def_property_readonly("address", &CoordinatorServer::address)
      .def(
          "wait_until_empty",
          [](CoordinatorServer& server, double timeout_s) { return server.wait_until_empty(duration_of(timeout_s)); },
          py::call_guard<py::gil_scoped_release>());

  py::class_<Blocking>(module, "Blocking")
      .def(py::init<>())
      .def("__enter__", &Blocking::enter)
      .def("__exit__", [](Blocking& blocking, const py::args&) { blocking.leave(); });

  py::class_<WorkerHandle>(module, "Worker")
      .def(py::init(&make_worker), py::arg("name"), py::arg("rank"), py::arg("world_size"), py::arg("coordinator"),
           py::arg("secret_file"), py::arg("handler_threads"), py::arg("timeout_s"), py::arg("join_timeout_s"),
           py::arg("messages_to_fail"), py::arg("num_fail_sends"), py::arg("messages_to_delay"), py::arg("device_maps"),
           py::arg("devices"), py::arg("on_held"), py::arg("open"))
      .def_property_readonly("name", [](const WorkerHandle& handle) { return handle.worker().name(); })
      .def_property_readonly("rank", [](const WorkerHandle& handle) { return handle.worker().rank(); })
      .def_property_readonly("running", &WorkerHandle::running)
      .def("find_rank", &find_rank, py::call_guard<py::gil_scoped_release>())
      .def("workers", &all_workers, py::call_guard<py::gil_scoped_release>())
      .def("call", &WorkerHandle::call)
      .def("call_async", &WorkerHandle::call_async)
      .def("remote", &WorkerHandle::remote)
      .def("own", &WorkerHandle::own)
      .def("never_made", &WorkerHandle::never_made)
      .def("shutdown", &WorkerHandle::shutdown)
      .def("stop", &WorkerHandle::stop)
      .def("counts", &counts);

  module.def("set_handlers", [](py::object run, py::object run_named, py::object finish, py::object pack_call,
                                py::object pack, py::object unpack) {
    set_handlers({.run = Held(std::move(run)),
                  .run_named = Held(std::move(run_named)),
                  .finish = Held(std::move(finish)),
                  .pack_call = Held(std::move(pack_call)),
                  .pack = Held(std::move(pack)),
                  .unpack = Held(std::move(unpack))});
  });
  module.def("allow_plain", &allow_plain);
}

}  // namespace holdfast::python
