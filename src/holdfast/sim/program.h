// Program: the random program that the workers of a simulated world run. It makes objects on each other, shares and
// returns references to them, puts references into objects, fetches, calls, cancels and drops; handlers do the same.
// Every choice comes from one seed. What it does it tells the ledger.
//
// Owned by the run of one world, used by the one thread that this runs on. Goes before the World.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <holdfast/base/random.h>
#include <holdfast/sim/ledger.h>
#include <holdfast/sim/thing.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {

class Program {
 public:
  // Told of what the program does, for people; may be empty.
  using Story = std::function<void(const std::string&)>;

  Program(World& world, Ledger& ledger, Random random, Story story);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  // The one of the world that runs on this thread; null if it is over.
  static Program*& current();
  static LifeIndex life_of(const void* worker);

  // A new life of that rank has begun; the current one is killed; the job was told that one is lost.
  void begin_life(uint32_t rank);
  void kill(uint32_t rank);
  void on_lost(const WorkerId& worker);
  // Whether that rank's worker is one to act with, as far as it knows itself.
  bool works(uint32_t rank);

  // Told when `relay` passes on a reference that it has just received to `to`; the object is `owner`'s. All are ranks.
  using OnRelay = std::function<void(uint32_t relay, uint32_t to, uint32_t owner)>;
  void set_on_relay(OnRelay on_relay) { on_relay_ = std::move(on_relay); }

  // One random thing.
  void act();
  // Fetches what every worker holds, with enough time.
  void fetch_all();
  void drop_all();
  uint64_t actions() const { return actions_; }
  uint32_t last_actor() const { return last_actor_; }

  // ---- for handlers
  Thing make(Token token, Serial serial, Refs held, LifeIndex where);
  Future<Thing> make_later(Token token, Serial serial, Refs held);
  Future<Refs> take(Token token, Refs refs, uint32_t hops);

 private:
  struct Life {
    SimWorker* worker;
    uint32_t rank;
    LifeIndex index;
    Refs slots;  // what its program holds
  };
  // An object whose making takes a while.
  struct Making {
    Promise<Thing> promise;
    Token token;
    Serial serial;
    Refs held;
    LifeIndex where;
  };

  Life& life(uint32_t rank);
  Life* pick_life();
  Ref* pick(Life& life);
  // Up to `most` of those that can be sent, with a serial below `below`.
  Refs pick_some(Life& life, size_t most, Serial below = UINT64_MAX);
  bool can_be_sent(const Ref& ref) const;
  void keep(LifeIndex index, Ref ref);
  Duration pick_timeout(bool& little_time);
  WorkerPtr pick_target(uint32_t& rank);

  void create(Life& from);
  void create_on(Life& from);
  void own(Life& from);
  void share(Life& from);
  void fetch(Life& from);
  void put(Life& from);
  void give(Life& from);
  void drop(Life& from);
  void drop_these(Life& from, const std::vector<Serial>& serials);
  void begin_fetch(Life& from, const Ref& ref, Duration timeout, bool little_time);
  Future<Refs> begin_take(Life& from, const WorkerPtr& target, uint32_t to_rank, Refs refs, uint32_t hops);
  void cancel_later(Token token, std::function<void()> cancel);
  template <class T, class F>
  void watch(Future<T> future, Token token, F on_value);
  template <class... Args>
  void tell(const char* format, const Args&... args);
  std::string names(const Refs& refs) const;

  World& world_;
  Ledger& ledger_;
  Random random_;
  const Story story_;
  OnRelay on_relay_;
  std::vector<Life> lives_;  // every one, by index
  std::map<uint64_t, Making> makings_;
  std::map<uint64_t, std::function<void()>> cancels_;
  uint64_t last_id_ = 0;
  uint64_t actions_ = 0;
  uint32_t last_actor_ = 0;  // a rank
};

}  // namespace holdfast::sim
