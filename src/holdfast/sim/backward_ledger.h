// BackwardLedger: what must be true of the passes of a simulated world: each completes once; with success only if every
// leaf got what the reference says, and with a failure only if there is a reason for it. It never looks into the
// protocol's tables.
//
// Owned by the run of one world, used by the one thread that this runs on.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <holdfast/base/error.h>
#include <holdfast/sim/backward_toy.h>
#include <holdfast/sim/backward_world.h>
#include <holdfast/sim/world.h>

namespace holdfast::sim {

struct WatchedPass {
  PassId id;
  SimWorker* root = nullptr;
  PassMode mode = PassMode::smart;
  Expected expected;
  ToyProgram* program = nullptr;
  bool cancelled = false;
  bool little_time = false;
  int completions = 0;
};

class BackwardLedger {
 public:
  using Violation = std::function<void(const std::string& text)>;
  // `report` outlives it.
  BackwardLedger(BackwardReport& report, Violation violation) : report_(report), violation_(std::move(violation)) {}

  void somebody_is_lost() { anybody_lost_ = true; }
  bool anybody_lost() const { return anybody_lost_; }

  std::vector<WatchedPass>& passes() { return passes_; }
  void on_done(size_t pass, const Status& status);

  ToyContext::Records records;  // what the graphs say

 private:
  void check_success(const WatchedPass& pass);
  // Counts it, too.
  bool has_reason(const WatchedPass& pass, const Failure& failure);

  BackwardReport& report_;
  const Violation violation_;
  std::vector<WatchedPass> passes_;
  bool anybody_lost_ = false;
};

}  // namespace holdfast::sim
