// Backwards: contexts and distributed backward passes of one worker. Joins the table of contexts, the passes that were
// started here and the parts in passes with the messages, losses and the end of the job. docs/autograd.md is its
// description.
//
// The methods under "any thread" take the driver's lock themselves; all others are protocol code, under that lock.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <holdfast/backward/contexts.h>
#include <holdfast/backward/graph.h>
#include <holdfast/backward/messages.h>
#include <holdfast/backward/part.h>
#include <holdfast/backward/root_pass.h>
#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/node.h>
#include <holdfast/rpc/protocol.h>
#include <holdfast/rpc/run_history.h>

namespace holdfast {

struct PassOptions {
  PassMode mode = PassMode::smart;
  uint64_t options = 0;                // handed to every graph: PassInfo::options
  Duration timeout = Duration::max();  // then the pass fails with Timeout
};

// What a worker holds; all zero when every context has ended.
struct BackwardCounts {
  size_t contexts = 0;
  size_t passes = 0;             // started here
  size_t parts = 0;              // in passes of anybody
  size_t sends_outstanding = 0;  // marked here, or with a gradient that has not been run
  friend bool operator==(const BackwardCounts&, const BackwardCounts&) = default;
};

class Backwards final : public Protocol, private ContextPost {
 public:
  Backwards(Node& node, Host& host);
  static std::unique_ptr<Protocol> make(Node& node, Host& host);
  static Backwards& of(Host& host);

  // ---- contexts: any thread

  // A new one. Throws Shutdown.
  std::shared_ptr<ContextData> create_context(const MakeContext& make);
  // Null: not here, or it has ended.
  std::shared_ptr<ContextData> find_context(const ContextId& id);
  // A message from `from` carries this context. Null: it has ended.
  std::shared_ptr<ContextData> enter_context(const ContextId& id, const WorkerPtr& creator, const WorkerId& from,
                                             const MakeContext& make);
  // A message that carries the context is about to be sent there. Call it before that message is.
  void will_send(const ContextId& id, const WorkerPtr& to);
  // On the creator only: it ends, here and wherever it has come.
  void end_context(const ContextId& id);

  // ---- passes: any thread

  // Makes the graph of the root's own part, with the roots. Called as the methods of PassGraph are.
  using BeginPass = Part::Begin;
  using PassDone = RootPass::Done;
  // Starts a pass here. `done` is called exactly once, outside any lock; quick, must not block. Returns the pass, or
  // an id with counter 0 if it could not be started: `done` is called then, too.
  PassId start_pass(const ContextId& context, const PassOptions& options, BeginPass begin, PassDone done);
  // Fails a pass that was started here, if it has not ended.
  void cancel(const PassId& pass, Failure why = {.code = Code::cancelled, .message = "the pass was cancelled"});

  RunHistory run_history;  // of the parts of passes here

  BackwardCounts counts();
  // To other workers, since the start: of passes, and of contexts that end.
  uint64_t messages_sent();

  // ---- protocol code

  Contexts& contexts() { return contexts_; }

  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  void on_worker_lost(Step& step, const WorkerInfo& worker, uint64_t loss) override;
  void on_time(Step& step) override;
  Time next_wakeup() const override;
  std::span<const KindName> kinds() const override { return kBackwardKinds; }
  bool idle() const override { return roots_.empty() && parts_.empty(); }
  std::string describe() const override;
  void stop(Step& step) override;

 private:
  using PartPtr = std::shared_ptr<Part>;

  // ContextPost
  void send_to(Step& step, const WorkerPtr& to, Message message) override;
  void send_to(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message);

  // Messages: backwards_messages.cc
  Status on_cleanup(Step& step, const WorkerPtr& from, const Message& message);
  Status on_mark(Step& step, const WorkerPtr& from, const Message& message);
  Status on_gradient(Step& step, const WorkerPtr& from, Message& message);
  Status on_report(Step& step, const WorkerPtr& from, const Message& message);
  Status on_marked(Step& step, const WorkerPtr& from, const Message& message);
  Status on_error(Step& step, const WorkerPtr& from, const Message& message);
  Status on_end(Step& step, const WorkerPtr& from, const Message& message);
  void send_error(Step& step, const WorkerPtr& root, const PassId& pass, const Failure& failure);
  // The part that a MARK or a gradient is for. Null: there is none, and nothing is to be done.
  PartPtr part_for(Step& step, const PassHeader& header);
  // Null: the pass has ended, or never was; the sender has been told.
  RootPass* root_for(Step& step, const WorkerPtr& from, const PassId& pass);

  // Work: backwards.cc
  void schedule(Step& step, const PartPtr& part);
  void post_run(Step& step, const Context& context);
  // Outside the lock: the next work of that context.
  void run_next(const ContextId& id);
  void settle(Step& step, const PartPtr& part, PartOutcome& outcome);
  // If it has not left yet. False: the part has failed, or the pass has ended.
  bool send_leaving(Step& step, Part& part, LeavingMessage& leaving);
  // SMART: to who sent what was reached, if its gradient does not leave now, which says the same.
  void send_marks(Step& step, const Part& part, const PartOutcome& outcome);
  // SMART: what the root is to be told now; false: nothing.
  bool find_status(Part& part, const PartOutcome& outcome, Report& report) const;
  void report(Step& step, const Part& part, Report report);
  // SMART: nobody marks any more, and the part has waited for that.
  void resume(Step& step, const PartPtr& part);
  void fail_part(Step& step, Part& part, Failure failure);
  void end_part(Step& step, const PassId& id);

  void receive_report(Step& step, RootPass& root, const WorkerPtr& from, const Report& report);
  // SMART: tells a part that nobody marks any more.
  void send_marked(Step& step, const PassId& pass, const WorkerPtr& to);
  // Takes a pass to its next phase, or to its end.
  void advance(Step& step, RootPass& root);
  void end_pass(Step& step, const PassId& id, Status status);
  // The context is no longer in the table: everything in it ends.
  void drop(Step& step, std::unique_ptr<Context> context, const Failure& why);

  Node& node_;
  Host& host_;
  const uint64_t frame_bytes_max_;
  Contexts contexts_{*this};
  // Started here: from start_pass until `done`.
  std::map<PassId, std::unique_ptr<RootPass>> roots_;
  // From start_pass, or the first MARK or gradient, until the pass ends here.
  std::map<PassId, PartPtr> parts_;
  std::set<std::pair<Time, PassId>> deadlines_;  // of roots_
  Time look_again_at_ = kNever;                  // in shutdown: this worker may have fallen quiet outside any event
  uint64_t messages_sent_ = 0;
  bool stopped_ = false;
};

namespace backward_detail {
// Every worker of a program that includes this has it.
inline const size_t kProtocolIndex = RegisteredProtocol<Backwards>::index();
}  // namespace backward_detail

}  // namespace holdfast
