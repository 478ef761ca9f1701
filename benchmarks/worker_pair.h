// Two workers to measure between: one in this process, the other in a child of it.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include "harness.h"

namespace holdfast::bench {

class WorkerPair {
 public:
  using Change = std::function<void(Options&)>;

  // Forks, so before this process has any thread. `change` is applied to the options of both.
  explicit WorkerPair(Change change = [](Options&) {});
  // Starts both workers; only then there is a peer.
  void start();
  Worker& worker() { return *worker_; }
  Peer peer() { return worker_->peer(1); }

 private:
  Options options_for(int rank, const std::string& coordinator) const;

  const Change change_;
  int address_pipe_[2] = {-1, -1};
  std::optional<Child> other_;
  std::optional<CoordinatorServer> coordinator_;
  std::optional<Worker> worker_;
};

}  // namespace holdfast::bench
