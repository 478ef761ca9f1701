// The worker that calls run on, as seen from a call (CallHost) and from whoever makes calls or holds references
// (Host). In production both are the Runtime, in a simulation its driver. Any thread, unless a method says otherwise.
#pragma once

#include <memory>
#include <string>

#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>

namespace holdfast {

class Executor;
class FutureStateBase;
class Node;
class Protocol;
class ServedCall;
struct Function;
struct Options;
namespace rpc_detail {
struct PeerState;
}

// Outlives every ServedCall.
class CallHost {
 public:
  virtual ~CallHost() = default;
  // This worker, once it has joined.
  virtual const WorkerPtr& self() const = 0;
  virtual Time now() = 0;
  // Where continuations of asynchronous handlers run; null: on the thread that completes.
  virtual Executor* executor() = 0;
  // What handlers get as hf::current_worker().
  virtual void* worker() = 0;
  // This thread runs quick handlers itself, at once.
  virtual bool runs_quick_work_now() { return false; }
  // The handler is about to run: its caller may send more. False: too late, or cancelled; do not run.
  virtual bool begin(ServedCall& call, Time now) = 0;
  // The call is over. No reply: its result stays here, and its caller does not wait for one.
  virtual void respond(ServedCall& call, std::shared_ptr<Message> reply) = 0;
};

class Host : public CallHost {
 public:
  // Keeps this alive, for those who hold on to it.
  virtual std::shared_ptr<Host> share() = 0;
  virtual const std::string& name() const = 0;
  // For calls without a timeout of their own.
  virtual Duration call_timeout() const = 0;
  // Null: this worker was made without any, in a simulation.
  virtual const Options* options_if_any() const { return nullptr; }
  virtual std::shared_ptr<const rpc_detail::PeerState> peer_state(WorkerPtr worker) = 0;
  // The protocol that was registered under this index: see rpc/protocol.h.
  virtual Protocol& protocol(size_t index) = 0;

  // Starts a call when there is room on the link. `state` gets a hook that cancels the call.
  virtual void start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                          Duration timeout, Completion completion, FutureStateBase& state) = 0;
  // The same for a call whose result stays there: it has no reply. `refused` runs if it could not be sent.
  using Refused = UniqueFunction<void(Failure)>;
  virtual void start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                               Duration timeout, Refused refused) = 0;

  // Runs `with_node` under the lock that guards the Node, then does what the Step says.
  template <class F>
  void step(F&& with_node) {
    run_step([](void* f, Step& step) { (*static_cast<std::remove_reference_t<F>*>(f))(step); }, &with_node);
  }

 protected:
  virtual void run_step(void (*run)(void*, Step&), void* argument) = 0;
};

}  // namespace holdfast
