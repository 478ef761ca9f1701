// UserTable: the references that this worker holds to objects of other workers. A state machine without I/O;
// docs/rref.md, "States", is its description.
//
// Protocol code, owned by References, guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include <holdfast/rref/controls.h>

namespace holdfast {

// One reference. Its address stays for as long as it has a handle.
struct Used {
  enum class State : uint8_t {
    unconfirmed,  // the owner has not said yet that it knows this fork
    confirmed,
    dead,  // the owner is lost
  };

  ForkId fork;
  RRefId rref;
  State state = State::unconfirmed;
  uint32_t handles = 0;   // in this program; those inside messages that have arrived count too
  uint32_t children = 0;  // forks sent on, not yet known to the owner
  WorkerPtr owner;
  WorkerPtr parent;    // who sent it and waits to hear that the owner knows; null: nobody
  uint64_t order = 0;  // among the unconfirmed ones that came from other users; 0: not one of them
};

class UserTable {
 public:
  explicit UserTable(Controls& controls) : controls_(controls) {}

  // The references that begin here; each has one handle. `created`: this worker has sent the creation itself.
  Used& add_created(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner);
  Used& add_from_owner(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner);
  // Tells the owner. `owner_lost`: it is too late for that.
  Used& add_from_user(Step& step, const ForkId& fork, const RRefId& rref, const WorkerPtr& owner,
                      const WorkerPtr& parent, bool owner_lost);

  // The reference is sent on, as `child`.
  void add_child(Used& used, const ForkId& child, const WorkerId& receiver);
  void release(Step& step, Used& used);

  void on_accept(Step& step, const ForkId& fork, const WorkerId& from);
  void on_child_accept(Step& step, const ForkId& child, const WorkerId& from);
  // References to its objects are dead; as a parent it need not hear of its children any more.
  void on_worker_lost(Step& step, const WorkerId& worker);
  // Children that went to these lost workers: nothing of them can still be on its way.
  void remove_children_of(Step& step, const std::unordered_set<WorkerId>& receivers);

  // Everything received up to now must be confirmed before loss `number` counts as settled here.
  void on_loss(uint64_t number);
  // The last loss that is settled here.
  uint64_t settled() const { return settled_; }

  // Nothing waits for an answer.
  bool idle() const { return unconfirmed_ == 0 && children_.empty(); }
  void clear();

  Used* find(const ForkId& fork);
  const std::unordered_map<ForkId, Used>& references() const { return references_; }
  size_t unconfirmed_count() const { return unconfirmed_; }
  size_t child_count() const { return children_.size(); }

 private:
  struct Child {
    Used* parent = nullptr;
    WorkerId receiver;
  };

  Used& add(const ForkId& fork, const RRefId& rref, const WorkerPtr& owner, Used::State state);
  void confirmed(Used& used, Used::State state);
  void remove_child(Step& step, const ForkId& child);
  void delete_if_unused(Step& step, Used& used);
  void follow_settled();

  Controls& controls_;
  std::unordered_map<ForkId, Used> references_;
  std::unordered_map<ForkId, Child> children_;
  size_t unconfirmed_ = 0;
  // Losses that are not settled yet: each waits for the references received before it was heard of.
  struct Loss {
    uint64_t number;
    uint64_t before;  // orders below this
  };
  std::deque<Loss> losses_;
  std::map<uint64_t, const Used*> unconfirmed_by_order_;
  uint64_t next_order_ = 1;
  uint64_t settled_ = 0;
};

}  // namespace holdfast
