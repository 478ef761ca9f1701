// Many workers to measure with, each in a process of its own: rank 0 in this one, the others in children of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include "harness.h"

namespace holdfast::bench {

class WorkerCrowd {
 public:
  // What a child does around its worker's constructor.
  struct Watch {
    std::function<void()> before_join = [] {};
    std::function<void()> after_join = [] {};
  };

  // Forks, so before this process has any thread.
  explicit WorkerCrowd(int size, const Watch& watch);
  ~WorkerCrowd();
  WorkerCrowd(const WorkerCrowd&) = delete;
  WorkerCrowd& operator=(const WorkerCrowd&) = delete;

  // Starts all workers. Answers how many seconds passed until everybody was there.
  double start();
  Worker& worker() { return *worker_; }
  // The process of that rank, which is not 0, ends at once; the coordinator is told, as by a launcher.
  void kill(int rank);
  // All leave together. Answers how many seconds that took.
  double shutdown();

 private:
  Options options_for(int rank, const std::string& coordinator) const;

  const int size_;
  int address_pipe_[2] = {-1, -1};
  std::vector<std::unique_ptr<Child>> others_;
  std::optional<CoordinatorServer> coordinator_;
  std::optional<Worker> worker_;
};

}  // namespace holdfast::bench
