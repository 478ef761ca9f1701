// ServedCall: one call that this worker serves, from its arrival until its reply. Shared by the table of
// served calls (which cancels it), the thread that runs it, and whatever an asynchronous handler leaves
// behind. It responds exactly once; if everybody lets go of it without responding, it responds with an error.
#pragma once

#include <atomic>
#include <memory>

#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/cargo.h>
#include <holdfast/rpc/function.h>
#include <holdfast/rpc/messages.h>

namespace holdfast {

// A result that stays where it was made.
struct KeptValue {
  std::shared_ptr<void> object;
  const std::type_info* type = nullptr;
  bool trivial = false;  // destroying it runs no code of the user's
};

// Takes the result of a call that stays where it ran, instead of a reply: REMOTE_CALL. Any thread, outside locks.
class Keeper {
 public:
  virtual ~Keeper() = default;
  virtual void keep(KeptValue value) = 0;
  // `function`: its name; empty if there is none of the kind that was called.
  virtual void fail(const std::string& function, Failure failure) = 0;
};

class ServedCall final : public Work, public std::enable_shared_from_this<ServedCall> {
 public:
  ServedCall(CallHost& host, const Function& function, WorkerPtr caller, CallId id, Time deadline, Message&& message,
             size_t arguments_at, std::shared_ptr<Keeper> keeper = nullptr);
  ~ServedCall() override;

  // Runs the function on this thread. What it throws becomes the reply.
  void run() override;
  bool quick() const override { return function.history.quick(); }

  // The arguments, encoded.
  ByteView arguments() const { return ByteView(message.body).subspan(arguments_at_); }
  // All three: the first response counts, later ones are dropped.
  void respond(std::shared_ptr<Message> reply);
  void respond(Failure failure);
  void keep(KeptValue value);
  // Its result stays here: nobody waits for a reply, and the caller's death does not make it useless.
  bool kept() const { return keeper_ != nullptr; }
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
  // What to do then: for asynchronous handlers, which do not look at the flag. The last one counts.
  void on_cancel(Closure hook);
  std::atomic<bool> cancelled{false};
  // Guarded by the host's lock: the caller's window has been given back.
  bool credited = false;

 private:
  std::unique_ptr<Closure> take_hook() { return std::unique_ptr<Closure>(hook_.exchange(nullptr)); }

  const std::shared_ptr<Keeper> keeper_;  // null: the caller wants a reply
  const size_t arguments_at_;             // behind the header, in the message's body
  std::atomic<bool> responded_{false};
  std::atomic<Closure*> hook_{nullptr};  // ours; set by the handler's thread, taken by whoever cancels
};

}  // namespace holdfast
