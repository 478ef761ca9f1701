// ContextState: what one worker has of one context: its sends, and its gradients. Shared by the table of contexts, the
// flows that run in the context (Ambient::flow), its passes, and the Contexts and ContextRefs of the user, which may
// outlive the Worker; destroyed outside locks. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include <holdfast/autograd/functions.h>
#include <holdfast/autograd/gradients.h>
#include <holdfast/autograd/run_queue.h>
#include <holdfast/backward/backwards.h>

namespace holdfast::autograd {

class ContextState final : public ContextData, public std::enable_shared_from_this<ContextState> {
 public:
  ContextState(Host& host, ContextId id, WorkerPtr creator)
      : host(host), id(id), creator(std::move(creator)), host_kept_(host.share()) {}
  static MakeContext maker(Host& host, const WorkerPtr& creator);
  // The context that the current flow runs in; null: none.
  static std::shared_ptr<ContextState> current();

  std::shared_ptr<PassGraph> begin_pass(const PassInfo& pass) override;
  void post(Closure run) override;
  // A pass of this context that was started here has ended.
  void on_pass_ended() { runs_.nudge(); }

  // Somebody will get a message of this context.
  void will_send(const WorkerPtr& to);
  SendNumber add_send(std::shared_ptr<SendFunction> send);
  // Throws InvalidArgument if there is none of that number.
  std::shared_ptr<SendFunction> send(SendNumber number) const;
  std::vector<SendNumber> all_sends() const;
  std::vector<std::shared_ptr<SendFunction>> send_functions() const;  // in no order
  size_t send_count() const;
  size_t recv_count() const;
  void add_recv(const std::shared_ptr<RecvFunction>& recv);
  // For people who look at the graph: those that are still part of one; the ranks that messages from here went to.
  std::vector<std::shared_ptr<RecvFunction>> recvs() const;
  std::set<uint32_t> reached_ranks() const;

  Host& host;
  const ContextId id;
  const WorkerPtr creator;
  GradientMap gradients;

  // While it lives, its thread does what is posted, if no other does; in until(), which it should call soon.
  class RunsHere {
   public:
    explicit RunsHere(ContextState& context) : context_(context), entered_(context.runs_.enter()) {}
    ~RunsHere();
    RunsHere(const RunsHere&) = delete;
    RunsHere& operator=(const RunsHere&) = delete;
    // Until that pass of the context has ended, or not at all.
    void until(FutureStateBase& pass);

   private:
    ContextState& context_;
    const bool entered_;
  };

 private:
  // The host's table of contexts holds this in turn, until it stops.
  const std::shared_ptr<Host> host_kept_;

  // The worker whose answer a pass that begins here waits for, most likely; null: none.
  WorkerPtr likely_next() const;

  RunQueue runs_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<SendFunction>> sends_;
  uint64_t last_send_ = 0;
  // The graph owns them: a strong pointer would keep it, and through it this.
  std::vector<std::weak_ptr<RecvFunction>> recvs_;
  std::set<WorkerId> reached_;  // by messages from here
};

}  // namespace holdfast::autograd
