// RootPass: a pass as its root sees it: who takes part, and the account by which the end is seen. See docs/autograd.md,
// "A pass".
//
// Protocol code, owned by Backwards, guarded by the driver's lock.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <holdfast/backward/graph.h>
#include <holdfast/backward/messages.h>
#include <holdfast/base/closure.h>
#include <holdfast/base/error.h>
#include <holdfast/base/time.h>

namespace holdfast {

class RootPass {
 public:
  using Done = UniqueFunction<void(Status)>;

  RootPass(const PassId& id, PassMode mode, Time deadline, Done done);

  const PassId& id() const { return id_; }
  PassMode mode() const { return mode_; }
  Time deadline() const { return deadline_; }

  // Nothing, or why the pass fails.
  std::optional<Failure> on_report(const WorkerPtr& from, const Report& report);
  // It has a part, and so is to be told of the end.
  void add_reporter(const WorkerPtr& from);

  // SMART: whether the marks have just become even. True once.
  bool settle();
  bool settled() const { return settled_; }
  // Nothing is under way any more.
  bool complete() const;
  // FAST, when complete: what waited in vain, if anything.
  std::optional<Failure> starved() const;

  // It has reported, or something was spawned there.
  bool involves(const WorkerId& worker) const { return involved_.contains(worker); }
  struct Reporter {
    WorkerPtr worker;
    PartStatus status = PartStatus::working;
    uint64_t waiting = 0;
    std::string waiting_names;
  };
  const std::map<WorkerId, Reporter>& reporters() const { return reporters_; }
  Done take_done() { return std::move(done_); }

 private:
  using SendOf = std::pair<WorkerId, SendNumber>;

  bool even() const;
  bool spawn(const SendOf& send);
  bool process(const SendOf& send);

  const PassId id_;
  const PassMode mode_;
  const Time deadline_;
  Done done_;
  bool settled_ = false;  // SMART: nobody marks any more
  std::set<SendOf> spawned_;
  std::set<SendOf> processed_;
  size_t matched_ = 0;  // in both
  std::map<WorkerId, Reporter> reporters_;
  std::set<WorkerId> involved_;
  size_t done_count_ = 0;
};

}  // namespace holdfast
