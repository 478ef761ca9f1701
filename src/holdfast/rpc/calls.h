// Calls: the calls that this worker makes and the calls that it serves. Protocol code, guarded by the
// driver's lock: no I/O, no user code; it answers with Steps.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/base/timer_queue.h>
#include <holdfast/rpc/served_call.h>

namespace holdfast {

// How Calls reaches other workers: over links, or to itself. Implemented by Node.
class Post {
 public:
  virtual ~Post() = default;
  // The message's number on its link; 0: that worker is lost.
  virtual uint64_t send(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message, bool windowed) = 0;
  virtual bool maybe_sent(const WorkerId& to, uint64_t number) const = 0;
  virtual void grant_credit(Step& step, const WorkerId& from, uint64_t bytes) = 0;
};

// When a caller began to wait, perhaps for room on the link first, and until when it waits.
struct Term {
  Time begun;
  Time deadline;
};

class Calls {
 public:
  Calls(Post& post, CallHost& host) : post_(post), host_(host) {}

  // Starts a call. `message` comes from write_call_header and the arguments. The completion gets the whole
  // REPLY, or the failure. Returns the call's id, or 0 if it failed at once (the completion runs all the same).
  CallId start(Step& step, WorkerPtr to, const Function& function, std::shared_ptr<Message> message, Term term,
               Completion completion);
  // Starts a call whose result stays there: there is nothing to wait for. False: that worker is lost.
  bool start_kept(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message, Time deadline);
  // Forgets a call without completing it, and tells the callee. Unknown ids (completed meanwhile) are ignored.
  void cancel(Step& step, CallId call);

  // With a keeper, that gets the result and no reply is sent.
  Status on_call(Step& step, const WorkerPtr& from, Message&& message, std::shared_ptr<Keeper> keeper = nullptr);
  Status on_reply(Step& step, const WorkerInfo& from, Message&& message);
  Status on_cancel(Step& step, const WorkerInfo& from, const Message& message);

  // See CallHost::begin.
  bool begin(Step& step, ServedCall& call);
  void respond(Step& step, ServedCall& call, std::shared_ptr<Message> reply);

  // That worker is gone: its calls are cancelled, calls to it fail.
  void on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason);
  // Every call under way fails: this worker is shut down or declared lost.
  void fail_all(Step& step, const Failure& why);
  // After this, calls that arrive are answered with Shutdown.
  void refuse_new(std::string reason) { refusing_ = std::move(reason); }

  void on_time(Step& step);
  Time next_wakeup() const { return timers_.next(); }

  size_t made_count() const { return made_count_; }
  size_t served_count() const { return served_.size(); }
  bool idle() const { return made_count_ == 0 && served_.empty(); }
  // Counts calls made and served: unchanged means that nothing happened.
  uint64_t activity() const { return activity_; }
  // "scale(f64) -> f64 on worker1, ..." for messages about what is still under way.
  std::string describe_made() const;
  std::string describe_served() const;

 private:
  // A call that this worker has made. A slot is used again; its generation tells the calls apart.
  struct Made {
    uint32_t generation = 0;
    bool active = false;
    uint32_t timer = kNoTimer;
    WorkerPtr to;
    const Function* function = nullptr;
    uint64_t number = 0;  // on the link
    Term term{};
    Completion completion;
  };
  static constexpr uint32_t kNoTimer = UINT32_MAX;

  struct ServedKey {
    WorkerId caller;
    CallId call;
    auto operator<=>(const ServedKey&) const = default;
  };
  struct ServedKeyHash {
    size_t operator()(const ServedKey& key) const {
      return std::hash<WorkerId>()(key.caller) * 0x9e3779b97f4a7c15 ^ std::hash<CallId>()(key.call);
    }
  };

  Made* find(CallId call);
  // Takes the call out of the table.
  Completion remove(CallId call);
  void fail(Step& step, CallId call, Failure failure);
  Failure lost_failure(const Made& made, const std::string& reason) const;
  Failure translate(const Made& made, Failure failure) const;
  // Cancels and forgets the calls of that caller; of everybody if none is given.
  void cancel_served(Step& step, const std::optional<WorkerId>& caller);

  Post& post_;
  CallHost& host_;
  std::vector<Made> made_;
  std::vector<uint32_t> free_slots_;
  size_t made_count_ = 0;
  TimerQueue<CallId> timers_;
  // From arrival until the reply (which a call makes at the latest in its destructor: so the pointers are good),
  // until it turns out too late to begin, or until the caller's death.
  std::unordered_map<ServedKey, ServedCall*, ServedKeyHash> served_;
  uint64_t activity_ = 0;
  uint64_t kept_calls_ = 0;  // started here
  std::string refusing_;
};

}  // namespace holdfast
