// Part: what this worker does in one pass, its own or another's. Holds what has arrived until the graph takes it.
//
// Shared by Backwards' table and whoever works on it. Guarded by the driver's lock, but for `graph` and `begin`, which
// belong to the one run that is under way. Ends with the pass; if the root is lost, too.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_set>
#include <vector>

#include <holdfast/backward/graph.h>
#include <holdfast/backward/messages.h>
#include <holdfast/base/error.h>

namespace holdfast {

// What has arrived and is to be done.
struct PartWork {
  bool walk_roots = false;
  bool run_roots = false;
  bool resume = false;   // SMART: what was held may run
  bool settled = false;  // SMART: nobody marks any more; set when the work is taken
  std::vector<SendNumber> marks;
  std::vector<ArrivedGradient> gradients;

  bool walks() const { return walk_roots || !marks.empty(); }
  bool runs() const { return run_roots || resume || !gradients.empty(); }
  bool empty() const { return !walks() && !runs(); }
};

// The root's own start, in the account of a pass. Sends are counted from 1.
inline constexpr SendNumber kRootStart{0};

struct LeavingMessage {
  WorkerPtr to;
  SendNumber send;
  std::shared_ptr<Message> message;  // null: it has left already, during the run
};

// What came of it.
struct PartOutcome {
  bool walked = false;                // SMART: for a MARK or the roots
  std::vector<SendNumber> processed;  // marks (SMART) or gradients (FAST)
  std::vector<RemoteSend> reached;
  bool ran = false;
  bool held = false;  // RunResult::held
  std::vector<LeavingMessage> leaving;
  uint64_t waiting = 0;
  std::string waiting_names;
  std::optional<Failure> failure;
};

class Part {
 public:
  using Begin = UniqueFunction<std::shared_ptr<PassGraph>(const PassInfo& pass)>;

  // `begin` only on the root.
  Part(PassInfo pass, std::shared_ptr<std::atomic<bool>> ended_flag, std::shared_ptr<ContextData> data, Begin begin);

  const PassInfo& pass() const { return pass_; }
  PassHeader header() const;
  bool ended() const { return ended_->load(std::memory_order_relaxed); }
  void end() { ended_->store(true, std::memory_order_relaxed); }

  // Nothing, or what is wrong with it.
  std::optional<Failure> mark(const std::vector<SendNumber>& sends);
  std::optional<Failure> arrive(ArrivedGradient gradient);
  PartWork take_work();
  // SMART: every marked send has its gradient, and all work is done.
  bool complete() const { return roots_run_ && arrived_.size() == marked_.size() && inbox.empty(); }
  size_t outstanding() const { return marked_.size() - arrived_.size() + inbox.gradients.size(); }

  // Outside the lock, one at a time. `leave` may take a message, so that it leaves before the rest is done.
  using Leave = std::function<void(LeavingMessage& leaving)>;
  PartOutcome perform(PartWork work, const Leave& leave);
  void set_roots_run() { roots_run_ = true; }

  PartWork inbox;
  bool queued = false;  // in the context's list of those with work, or at work
  bool failed = false;  // it has told the root so: nothing more is done
  // SMART.
  bool settled = false;                     // nobody marks any more: every count is exact
  PartStatus status = PartStatus::working;  // what it has told the root last

 private:
  const PassInfo pass_;
  const std::shared_ptr<std::atomic<bool>> ended_;
  const std::shared_ptr<ContextData> data_;
  std::unordered_set<SendNumber> marked_;  // SMART
  std::unordered_set<SendNumber> arrived_;
  bool roots_run_;  // true where there are none
  // The run's own.
  Begin begin_;
  std::shared_ptr<PassGraph> graph_;
  bool walked_all_ = false;  // FAST
  bool held_ = false;        // by the last run
};

}  // namespace holdfast
