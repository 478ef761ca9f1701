// What the layer above gives to the protocol of backward passes: its data of a context, and its graph of a pass. In
// production libtorch's graph is behind it, in the simulator a toy.
//
// Threads: each method says. None is ever called under the driver's lock, and nothing here is destroyed under it.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <holdfast/backward/ids.h>
#include <holdfast/base/bytes.h>
#include <holdfast/base/closure.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/wire/message.h>

namespace holdfast {

// The gradients for one send, as the layer above has written them. Attachments travel without being copied.
struct Gradient {
  Bytes body;
  std::vector<Attachment> attachments;
};

// See docs/autograd.md. The numbers travel on the wire.
enum class PassMode : uint8_t { fast = 0, smart = 1 };

// One pass, as each worker that has a part in it knows it.
struct PassInfo {
  PassId id;
  WorkerPtr root;
  PassMode mode = PassMode::smart;
  uint64_t options = 0;  // the caller's: only the layer above understands them
  // True once the pass has ended here, by an error elsewhere perhaps: a long run may as well stop.
  std::shared_ptr<const std::atomic<bool>> ended;
};

// A send on some worker: what a recv here is the counterpart of.
struct RemoteSend {
  WorkerPtr worker;
  SendNumber send;
};

struct WalkFrom {
  bool roots = false;      // on the root, the first time
  bool all_sends = false;  // FAST: every send that is recorded in the context here
  std::vector<SendNumber> sends;
};

struct ArrivedGradient {
  WorkerPtr from;
  SendNumber send;  // of this worker
  Gradient gradient;
};

struct LeavingGradient {
  WorkerPtr to;
  SendNumber send;  // of that worker
  Gradient gradient;
};

struct RunResult {
  std::vector<LeavingGradient> gradients;  // those that have not left before
  // Some functions have all their gradients so far, and could run if it were known that nobody marks any more.
  bool held = false;
  // Functions reached by the walk that have not run, sends without a gradient among them; and the names of a few.
  uint64_t waiting = 0;
  std::string waiting_names;
};

// What one worker does in one pass. At most one call at a time for all passes of a context on this worker. An exception
// fails the pass, with the worker it came from. Destroyed when the pass has ended here, however it did, and no call
// runs.
class PassGraph {
 public:
  using Leave = std::function<void(LeavingGradient)>;

  virtual ~PassGraph() = default;
  // Walks on from there, each function once in the pass, and counts dependencies. Returns the recvs newly reached.
  // A send that is not recorded: throws. Without all_sends, the first walk also looks which functions the other sends
  // that are recorded here lead to: until those are walked from, what such a function waits for is not certain.
  virtual std::vector<RemoteSend> walk(const WalkFrom& from) = 0;
  // Executes all functions that are ready now. `roots`: this begins at the roots. `settled`: there will be no more
  // walks, so what functions wait for is certain. What it has done must be visible to others on this worker when it
  // returns: the root may complete the pass at once. One gradient for each recv executed: in the result, or before that
  // to `leave`, if there is more to be executed. The worker that waits for it can begin meanwhile.
  virtual RunResult run(bool roots, std::vector<ArrivedGradient> arrived, bool settled, const Leave& leave) = 0;
};

// The layer above's data of one context on one worker.
class ContextData {
 public:
  virtual ~ContextData() = default;
  // The first time that a pass started elsewhere needs this worker. Called as the methods of PassGraph are.
  virtual std::shared_ptr<PassGraph> begin_pass(const PassInfo& pass) = 0;
  // Any thread. Runs `run` later, on a thread that may compute for long: never at once, inside this call.
  virtual void post(Closure run) = 0;
};

}  // namespace holdfast
