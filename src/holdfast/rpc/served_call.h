// ServedCall: one call that this worker serves, from its arrival until its reply. Shared by the table of
// served calls (which cancels it), the thread that runs it, and whatever an asynchronous handler leaves
// behind. It responds exactly once; if everybody lets go of it without responding, it responds with an error.
#pragma once

#include <atomic>
#include <memory>

#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/rpc/function.h>
#include <holdfast/rpc/messages.h>

namespace holdfast {

class Executor;

// The worker that a call runs on, as the call sees it: in production the Runtime, in a simulation its
// driver. Outlives every ServedCall.
class CallHost {
 public:
  virtual ~CallHost() = default;
  virtual Time now() = 0;
  // Where continuations of asynchronous handlers run; null: on the thread that completes.
  virtual Executor* executor() = 0;
  // What handlers get as hf::current_worker().
  virtual void* worker() = 0;
  // This thread runs quick handlers itself, at once.
  virtual bool runs_quick_work_now() { return false; }
  // The handler is about to run: its caller may send more. False: too late, or cancelled; do not run.
  virtual bool begin(ServedCall& call) = 0;
  virtual void respond(ServedCall& call, MessagePtr reply) = 0;
};

class ServedCall final : public Work, public std::enable_shared_from_this<ServedCall> {
 public:
  ServedCall(CallHost& host, const Function& function, WorkerPtr caller, CallId id, Time deadline, Message message,
             size_t arguments_at);
  ~ServedCall() override;

  // Runs the function on this thread. What it throws becomes the reply.
  void run() override;
  bool quick() const override { return function.history.quick(); }

  // The arguments, encoded.
  ByteView arguments() const { return ByteView(message.body).subspan(arguments_at_); }
  // Both: the first response counts, later ones are dropped.
  void respond(std::shared_ptr<Message> reply);
  void respond(Failure failure);
  // For what the function threw, whatever it was: it becomes a RemoteError for the caller.
  void respond_with_current_exception();

  CallHost& host;
  const Function& function;
  const WorkerPtr caller;
  const CallId id;
  const Time deadline;
  const Message message;
  // The caller has cancelled, timed out or died. Protocol code: what follows from it goes into the Step.
  void cancel(Step& step);
  // What to do then: for asynchronous handlers, which do not look at the flag. Once at most.
  void on_cancel(Closure hook);
  std::atomic<bool> cancelled{false};
  // Guarded by the host's lock: the caller's window has been given back.
  bool credited = false;

 private:
  std::unique_ptr<Closure> take_hook() { return std::unique_ptr<Closure>(hook_.exchange(nullptr)); }

  const size_t arguments_at_;  // behind the header, in the message's body
  std::atomic<bool> responded_{false};
  std::atomic<Closure*> hook_{nullptr};  // ours; set by the handler's thread, taken by whoever cancels
};

}  // namespace holdfast
