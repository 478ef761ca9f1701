// Many workers to measure with, each in a process of its own: rank 0 in this one, the others in children of it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include "harness.h"

namespace holdfast::bench {

class WorkerCrowd {
 public:
  // What a child does before it joins, and after. All others wait meanwhile, and nothing of it counts as joining.
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
  // One record for each child, and all have to take theirs before any gets another.
  void give_each(const std::string& text);
  static std::string take(int from);
  void wait_for_all();

  const int size_;
  int to_children_[2] = {-1, -1};
  int from_children_[2] = {-1, -1};  // a byte whenever one is ready for more
  std::vector<std::unique_ptr<Child>> others_;
  std::optional<CoordinatorServer> coordinator_;
  std::optional<Worker> worker_;
};

}  // namespace holdfast::bench
