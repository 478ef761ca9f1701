// OwnerTable: the objects that live on this worker, and who holds references to them. A state machine without I/O;
// docs/rref.md, "States", is its description.
//
// Protocol code, owned by References, guarded by the driver's lock. Values are handed to the Step to be destroyed:
// never under a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <holdfast/base/timer_queue.h>
#include <holdfast/rpc/served_call.h>
#include <holdfast/rref/ids.h>

namespace holdfast {

// How an object came to be, for people.
struct Origin {
  std::string place;  // where the program made it itself; empty: a call did
  uint64_t function = 0;
  uint64_t signature = 0;
  WorkerPtr caller;

  // "make<Counter, long>, called by worker0"
  std::string text() const;
};

// One object. Its address stays for as long as it has a fork or a handle.
struct Owned {
  enum class State : uint8_t {
    expected,  // a fork is known, the creation is still on its way
    pending,   // being created
    ready,
    failed,
  };

  RRefId id;
  State state = State::expected;
  bool timed = false;  // `timer` is set
  TimerHandle timer = 0;
  uint32_t forks = 0;
  uint32_t handles = 0;  // on this worker; those inside messages that have arrived count too
  KeptValue value;
  std::unique_ptr<Failure> failure;            // why there is none
  std::vector<std::shared_ptr<Work>> waiting;  // for the value or the failure
  Origin origin;

  bool settled() const { return state == State::ready || state == State::failed; }
};

class OwnerTable {
 public:
  // `destroyed` is called when a value has been destroyed: outside the lock, while the table lives.
  explicit OwnerTable(std::function<void()> destroyed = nullptr) : destroyed_(std::move(destroyed)) {}

  struct Fork {
    Owned* object = nullptr;
    WorkerId holder;
  };

  // The object with this id, made as `expected` if there is none. It stays only if something refers to it.
  Owned& at(const RRefId& id);
  Owned* find(const RRefId& id);
  // Its creation has begun; it fails at the deadline if it is not there by then.
  void begin(Owned& object, Time deadline, Origin origin);
  void set_value(Step& step, Owned& object, KeptValue value);
  void set_failure(Step& step, Owned& object, Failure failure);

  // False: this fork is here already.
  bool add_fork(Owned& object, const ForkId& fork, const WorkerId& holder);
  // False: there is no such fork of that holder.
  bool remove_fork(Step& step, const ForkId& fork, const WorkerId& holder);
  void release(Step& step, Owned& object);

  // An expected object will not come; or all that this worker was to create.
  void on_creator_lost(Step& step, Owned& object, const std::string& name);
  void on_creator_lost(Step& step, const WorkerId& creator, const std::string& name);
  // Forks of lost workers: nothing of them can still be on its way.
  void remove_forks_of(Step& step, const std::unordered_set<WorkerId>& holders);

  void on_time(Step& step);
  Time next_wakeup() const { return timers_.next(); }
  // Nobody waits for an object any more.
  void stop_waiting(Step& step);
  // Everything goes.
  void clear(Step& step);

  // Values that have left the table and are not destroyed yet: they may hold references.
  size_t destroying_count() const { return *destroying_; }

  const std::unordered_map<RRefId, Owned>& objects() const { return objects_; }
  const std::unordered_map<ForkId, Fork>& forks() const { return forks_; }

 private:
  class DestroyValue;

  void settle(Step& step, Owned& object, Owned::State state);
  void destroy(Step& step, KeptValue value);
  void free_if_unused(Step& step, Owned& object);

  const std::function<void()> destroyed_;
  const std::shared_ptr<std::atomic<size_t>> destroying_ = std::make_shared<std::atomic<size_t>>(0);
  std::unordered_map<RRefId, Owned> objects_;
  std::unordered_map<ForkId, Fork> forks_;
  TimerQueue<RRefId> timers_;  // of creations
};

}  // namespace holdfast
