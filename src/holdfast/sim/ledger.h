// Ledger: what a simulated program knows of its own objects, references and calls, and what must be true of them. It
// is the checker of references: it never looks into the protocol's tables. The program tells it what it does (makes,
// holds, sends, drops), objects tell it of their own birth and end, and it says what may not be:
//   - an object ends on a live worker while a live worker's program holds it, or is being sent it by a live worker;
//   - a reference arrives whose object has ended;
//   - a call runs twice, or completes twice, or fails for a reason that it does not have;
//   - at the end something is left.
//
// Owned by the run of one world, used by the one thread that this runs on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <holdfast/base/error.h>
#include <holdfast/base/time.h>

namespace holdfast::sim {

// One life of one worker, by the order in which they began.
using LifeIndex = uint32_t;
inline constexpr LifeIndex kNobody = UINT32_MAX;
// Objects and calls are counted from 1.
using Serial = uint64_t;
using Token = uint64_t;

class Ledger {
 public:
  explicit Ledger(std::function<Time()> now) : now_(std::move(now)) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;
  // The one of the world that runs on this thread; null between worlds.
  static Ledger*& current();

  // ---- lives
  // `there`: its process runs, and has not found out itself that it is lost.
  LifeIndex add_life(std::string name, std::function<bool()> there);
  // The job has been told that it is lost: what it holds does not count any more.
  void lose(LifeIndex life) { lives_.at(life).lost = true; }
  bool lives(LifeIndex life) const { return life < lives_.size() && !lives_[life].lost && lives_[life].there(); }
  const std::string& name(LifeIndex life) const { return lives_.at(life).name; }

  // ---- objects
  struct Plan {
    LifeIndex creator = kNobody;
    LifeIndex owner = kNobody;
    Serial made_on = 0;     // the object whose function makes it
    bool may_fail = false;  // its function throws, or has little time
  };
  Serial plan_object(Plan plan);
  void set_may_fail(Serial serial) { object(serial).plan.may_fail = true; }
  LifeIndex owner(Serial serial) const { return objects_.at(serial - 1).plan.owner; }
  // The object itself says so.
  void born(Serial serial, LifeIndex where);
  void ended(Serial serial, LifeIndex where);
  // A function runs on it: so its creation has succeeded.
  void used(Serial serial) { object(serial).used = true; }

  // ---- references
  void hold(LifeIndex life, Serial serial);
  void release(LifeIndex life, Serial serial);
  // One has arrived there.
  void received(LifeIndex life, Serial serial);

  // ---- calls
  struct Call {
    const char* what = "";
    LifeIndex from = kNobody;
    LifeIndex to = kNobody;
    std::vector<Serial> carries;
    Serial subject = 0;        // the object that it is a call on
    bool silent = false;       // the library's own function: it does not tell when it runs
    bool kept = false;         // its result stays there: it never completes
    bool little_time = false;  // may time out
    bool may_throw = false;
    bool cancelled = false;  // by the program, perhaps too late
    Time deadline = kNever;
  };
  Token begin_call(Call call);
  void ran(Token token, LifeIndex where);
  // The function has ended, and its result holds these.
  void replies(Token token, std::vector<Serial> carries);
  // Null: it succeeded.
  void completed(Token token, const Failure* failure);
  void cancelled(Token token) { calls_.at(token - 1).call.cancelled = true; }
  // A kept call that was not sent.
  void refused(Token token) { calls_.at(token - 1).refused = true; }
  void set_may_overload(bool may) { may_overload_ = may; }
  // Failures for which there is no reason but the protocol's: whether the object can be there at all.
  bool can_be_used(Serial serial) const;

  // Calls of live workers that have not completed.
  std::string open_calls() const;
  // Objects of live workers that have not ended, references that are held.
  std::string left_over() const;
  // Nothing is checked any more: the world is being taken down.
  void close() { closed_ = true; }

  void violation(std::string text);
  const std::vector<std::string>& violations() const { return violations_; }
  uint64_t object_count() const { return objects_.size(); }
  uint64_t call_count() const { return calls_.size(); }

 private:
  struct Life {
    std::string name;
    std::function<bool()> there;
    bool lost = false;
  };
  struct Object {
    Plan plan;
    enum class State { planned, exists, ended } state = State::planned;
    bool used = false;
    Time ended_at{};
    std::vector<uint32_t> holds;  // by life
  };
  struct CallState {
    Call call;
    std::vector<Serial> replied;
    int runs = 0;
    int completions = 0;
    bool refused = false;
  };

  Object& object(Serial serial) { return objects_.at(serial - 1); }
  std::string who_needs(Serial serial) const;
  bool excused(const Call& call, const Failure& failure) const;

  const std::function<Time()> now_;
  std::vector<Life> lives_;
  std::vector<Object> objects_;
  std::vector<CallState> calls_;
  std::vector<std::string> violations_;
  bool may_overload_ = false;
  bool closed_ = false;
};

}  // namespace holdfast::sim
