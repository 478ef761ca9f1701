// ExploreRun: one execution of a scenario, for explore.cc: a world that does only what it is told, choice by choice.
#pragma once

#include <array>
#include <map>
#include <set>

#include <holdfast/rref/rref.h>
#include <holdfast/sim/explore.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {

// Two independent hashes over the same words.
struct StateHash {
  uint64_t first = 0x9e3779b97f4a7c15;
  uint64_t second = 0xc2b2ae3d27d4eb4f;

  void add(uint64_t word);
  void add(ByteView bytes);
  void add(const ForkId& fork);
  // Without what differs between equal states: see explore.h.
  void add(const SimNetwork::Arrival& arrival);
  friend auto operator<=>(const StateHash&, const StateHash&) = default;
};

// The object that it is all about. Only the one that lives on the owner counts its end; copies of it do not.
struct ExploredObject {
  ExploredObject() = default;
  explicit ExploredObject(int64_t number);
  ExploredObject(ExploredObject&& other) noexcept
      : number(other.number), destroyed(std::exchange(other.destroyed, nullptr)) {}
  ExploredObject& operator=(ExploredObject&&) = delete;
  ~ExploredObject() {
    if (destroyed != nullptr) ++*destroyed;
  }
  int64_t number = 0;
  int* destroyed = nullptr;
  HOLDFAST_FIELDS(ExploredObject, number)
};

// Of a frame.
Kind kind_of(const SimNetwork::Arrival& arrival);
// Of a frame with fork requests, accepts, child accepts or deletions.
std::vector<ForkId> forks_of(const SimNetwork::Arrival& arrival);

struct Choice {
  enum class What { deliver, swallow, work, timers, operate, drop, cut, kill, declare };
  What what;
  uint32_t rank = 0;   // where it happens; the coordinator has none: then it is whom it is about
  uint32_t index = 0;  // operation, reference, or the other worker of a cut
  uint64_t work = 0;
  SimNetwork::Arrival arrival{};
};

class ExploreRun {
 public:
  explicit ExploreRun(const Scenario& scenario);
  ~ExploreRun();
  ExploreRun(const ExploreRun&) = delete;
  ExploreRun& operator=(const ExploreRun&) = delete;

  // What can happen next, in an order that depends on the path only. Nothing: a final state.
  std::vector<Choice> choices() const;
  void take(const Choice& choice);
  std::string text_of(const Choice& choice) const;
  // The same for the same choice after another order of the steps before it.
  uint64_t identity(const Choice& choice) const;
  // Whom it changes, beside what is under way to others: a bit for each rank, and one for the coordinator. Choices that
  // change nobody in common lead to the same state in either order.
  uint32_t changes(const Choice& choice) const;

  StateHash state() const;
  // What is wrong in this state; empty if nothing.
  std::string wrong() const;
  std::string wrong_at_the_end() const;

  // For handlers and for the object.
  void hold(uint32_t rank, uint32_t operation, const RRef<ExploredObject>& reference);
  int* destroyed() { return &destroyed_; }

 private:
  struct Progress {
    bool started = false;
    bool arrived = false;  // share: the receiver's handler has run
    int completions = 0;
    bool failed = false;
  };

  void join();
  void operate(uint32_t index);
  void start(uint32_t index);
  void deliver(const SimNetwork::Arrival& arrival);
  template <class T>
  void follow(const Future<T>& future, uint32_t index);
  // Whatever is not a choice happens.
  void settle();
  // A dial has arrived: what belongs to the handshake happens at once.
  void shake_hands();
  template <class F>
  void deliver_where(F&& wanted);
  bool happens_at_once(const SimNetwork::Arrival& arrival) const;
  void watch_object();
  bool held() const;
  bool may_happen(const Operation& operation) const;
  // `over`: nothing else can happen, so there is nothing to be harmed any more.
  std::vector<Choice> faults(bool over) const;
  // Of the two workers that were cut off from each other: the one's link to the other.
  const Link* link_of_cut(size_t side) const;
  bool cut_is_repaired() const;
  // What the cut takes from the wire is now in the links only, where nobody can look.
  void remember_lost();
  std::array<size_t, 2> queued_at_cut() const;
  bool may_send(const Choice& choice) const;

  uint32_t rank_of(const std::string& address) const;  // workers() for the coordinator
  bool alive(uint32_t rank) const { return rank >= scenario_.workers || !dead_ || *dead_ != rank; }
  References& references(uint32_t rank) const;
  void add_worker(StateHash& hash, uint32_t rank) const;
  std::string wrong_tables(uint32_t rank) const;

  const Scenario& scenario_;
  std::unique_ptr<World> world_;
  std::vector<Progress> progress_;                           // of the program's operations
  std::vector<std::vector<RRef<ExploredObject>>> holdings_;  // by worker
  int destroyed_ = 0;
  bool created_ = false;        // the owner's table has had the object, not only expected it
  bool created_ready_ = false;  // ... with a value
  bool freed_ = false;          // ... and has it no more
  bool swallowed_ = false;
  std::optional<uint32_t> dead_;
  bool declared_ = false;
  std::optional<std::pair<uint32_t, uint32_t>> cut_;
  uint64_t reconnects_at_cut_[2] = {0, 0};
  StateHash lost_in_cut_;
  std::string corrupt_;  // why a connection was closed as corrupt

  // What cannot be read from a worker's tables.
  struct Witness {
    uint64_t history = 0;        // over everything since the cut that may have sent a message
    uint64_t queued = 0;         // the same, when a message was last queued on the link that was cut
    uint64_t child_accepts = 0;  // the set of those that have arrived
    bool lost_heard = false;
    bool settled_heard = false;
    std::set<ForkId> before_loss;  // not confirmed when LOST arrived
  };
  std::vector<Witness> witnesses_;
  std::map<uint64_t, uint64_t> work_identity_;  // by the work's id: what it came from
};

}  // namespace holdfast::sim
