// WorkerHandle: the Worker of this process, as the Python package uses it. Calls go by rank; everything that may
// block runs without the GIL.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/rpc/worker.h>

#include "values.h"

namespace holdfast::python {

class WorkerHandle {
 public:
  // open: workers may join later, and ranks are only known by asking.
  WorkerHandle(Options options, bool open);
  // Without the GIL where it waits for threads, which may need it to end.
  ~WorkerHandle() { stop(); }
  WorkerHandle(const WorkerHandle&) = delete;
  WorkerHandle& operator=(const WorkerHandle&) = delete;

  // Throws Shutdown after stop().
  Worker& worker() const;
  // With that timeout in seconds; 0: none.
  Peer peer(int rank, double timeout_s) const;

  // function(*args, **kwargs) there; with the GIL.
  py::object call(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
                  double timeout_s) const;
  // Completes the torch future with the result, or with what convert(result) gives, if that is not None.
  void call_async(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
                  double timeout_s, const py::object& future, py::object convert) const;
  Ref remote(int rank, const py::object& function, const py::object& args, const py::object& kwargs,
             double timeout_s) const;
  Ref own(py::object value) const;
  // A reference to something on that worker whose creation is not even tried.
  Ref never_made(int rank, const std::string& why) const;

  // Both end it for good; stop() without waiting for others.
  void shutdown(double timeout_s);
  void stop();
  bool running() const { return worker_ != nullptr; }

 private:
  std::shared_ptr<Worker> shared() const;

  mutable std::mutex mutex_;  // guards both
  std::shared_ptr<Worker> worker_;
  mutable std::unordered_map<int, Peer> peers_;
};

Duration duration_of(double timeout_s);

}  // namespace holdfast::python
