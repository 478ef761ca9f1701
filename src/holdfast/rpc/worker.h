// Worker: this process's place in a job. Its constructor joins and blocks until all are there; then it calls
// others (Peer) and serves their calls, until shutdown() or its destructor. Calls of others may come, and handlers run,
// a little before the constructor returns.
//
// Any thread may use it. Several may live in one process. Not movable: handlers get at it by address.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include <holdfast/base/ambient.h>
#include <holdfast/rpc/options.h>
#include <holdfast/rpc/peer.h>

namespace holdfast {

class Runtime;
struct DebugInfo;

// Counts of what a worker holds, for tests and for people who look.
struct WorkerStats {
  size_t connections = 0;
  size_t shared_memory = 0;  // of these; the others use TCP
  size_t links = 0;
  size_t calls_made = 0;    // under way
  size_t calls_served = 0;  // under way
  size_t threads = 0;       // that run handlers
  uint64_t faults = 0;      // made so far: Options::faults
};

class Worker {
 public:
  // Throws: InvalidArgument (name or rank taken, wrong world size), Timeout (says who is missing), Unavailable
  // (port in use, address not ours).
  explicit Worker(Options options);
  // Without shutdown(): leaves at once; others see this worker as lost, its own calls fail with Shutdown.
  // Waits for handlers that are running.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const WorkerInfo& info() const;
  const std::string& name() const { return info().name; }
  int rank() const { return static_cast<int>(info().rank.value); }
  int world_size() const;
  const Options& options() const;

  // Throws InvalidArgument for a worker that is not in the job, with the names of those who are.
  Peer peer(std::string_view name);
  Peer peer(int rank);
  Peer peer(const WorkerInfo& worker);
  // Calls to oneself take the same path as calls to others.
  Peer self();

  // Makes a value of this worker's that others can refer to. Defined in rref/rref.h. The place, for people, is the
  // caller's (std::source_location, which clang 14 does not have).
  template <class T>
  RRef<T> own(T value, const char* file = __builtin_FILE(), int line = __builtin_LINE());

  // TorchScript that others may call here: source text, which has more than one line, or the path of a file with source
  // or with a saved module. A module is called by `name`, or else by its file's name without the ending. Throws
  // InvalidArgument with the compiler's words. Defined in tensor/script.cc: for programs that use libtorch.
  void load_script(const std::string& path_or_source, const std::string& name = {});

  // The graceful end: waits until every worker has called shutdown and no call is under way anywhere, then
  // leaves. Throws Timeout, saying what it waited for, after having left all the same. Again: does nothing.
  void shutdown();
  void shutdown(Duration timeout);

  WorkerStats stats() const;
  // What is owned, referred to and under way here: rref/debug_info.h, where it is also defined.
  DebugInfo debug_info();

  // For the layers above.
  Host& host();

 private:
  std::shared_ptr<Runtime> runtime_;
};

// In a handler, and in the continuations and coroutines that it starts: the worker that it runs on. Throws
// InvalidArgument elsewhere.
Worker& current_worker();
// In a handler: nobody waits for its result any more (timeout, cancellation, the caller died).
bool cancelled();
// In a handler: when its caller stops waiting; kNever without a limit. Calls that it makes end no later.
inline Time current_deadline() { return current_ambient().deadline; }

}  // namespace holdfast
