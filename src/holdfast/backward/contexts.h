// Contexts: the contexts that one worker knows, and which have ended. See docs/autograd.md, "Contexts".
//
// Protocol code, owned by Backwards, guarded by the driver's lock. If a creator is lost its contexts end.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/backward/graph.h>
#include <holdfast/backward/interval_set.h>
#include <holdfast/backward/messages.h>
#include <holdfast/link/step.h>

namespace holdfast {

class Node;
class Part;

// Only makes the object: it is called under the driver's lock.
using MakeContext = std::function<std::shared_ptr<ContextData>(const ContextId& id)>;

// How messages leave. Implemented by Backwards.
class ContextPost {
 public:
  virtual ~ContextPost() = default;
  virtual void send_to(Step& step, const WorkerPtr& to, Message message) = 0;
};

// One context on this worker.
struct Context {
  ContextId id;
  WorkerPtr creator;
  std::shared_ptr<ContextData> data;
  std::map<WorkerId, WorkerPtr> reached;         // on the creator: who may have a state of it
  uint64_t last_pass = 0;                        // started here
  std::map<WorkerId, IntervalSet> ended_passes;  // by root: late messages of theirs are dropped
  std::deque<std::shared_ptr<Part>> ready;       // parts with work to do
  bool running = false;                          // a run of some part is posted or under way
};

class Contexts {
 public:
  explicit Contexts(ContextPost& post) : post_(post) {}

  Context& create(const WorkerPtr& self, const MakeContext& make);
  Context* find(const ContextId& id);
  // It was here or at its creator, and is over; nothing is known of it if its creator is lost. `self`: this worker.
  bool has_ended(const ContextId& id, const WorkerId& self) const;
  // A message from `from` carries it. Null: it has ended. The caller knows that its creator is not lost.
  Context* enter(Step& step, const ContextId& id, const WorkerPtr& creator, const WorkerId& from, const WorkerId& self,
                 const MakeContext& make);
  void will_send(Step& step, const ContextId& id, const WorkerPtr& to, const WorkerId& self);

  // Each of these takes contexts out of the table: what is in them is for the caller to end. Null: it is not here.
  std::unique_ptr<Context> end(Step& step, const ContextId& id);
  std::unique_ptr<Context> on_cleanup(const CleanupContext& cleanup);
  std::vector<std::unique_ptr<Context>> on_worker_lost(const WorkerId& worker);
  std::vector<std::unique_ptr<Context>> take_all();

  Status on_reached(Step& step, const WorkerPtr& from, const WorkerId& self, const ContextReached& reached);

  size_t size() const { return contexts_.size(); }
  // Intervals of ended contexts that are remembered.
  size_t remembered() const;
  const std::unordered_map<ContextId, std::unique_ptr<Context>>& all() const { return contexts_; }

 private:
  std::unique_ptr<Context> take(const ContextId& id);
  void send_cleanup(Step& step, const ContextId& id, const WorkerPtr& to);

  ContextPost& post_;
  std::unordered_map<ContextId, std::unique_ptr<Context>> contexts_;
  // Of other creators: from the first cleanup of theirs until they are lost.
  std::unordered_map<WorkerId, IntervalSet> ended_;
  uint64_t last_created_ = 0;
  std::set<uint64_t> created_;  // those created here that have not ended
};

}  // namespace holdfast
