// TorchPass: one worker's part of one pass, between the protocol (backward/graph.h) and libtorch's graph (executor.h):
// sends and recvs by their numbers, gradients as bytes. Used as PassGraph is.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include <holdfast/autograd/context_state.h>
#include <holdfast/autograd/executor.h>

namespace holdfast::autograd {

// What PassInfo::options holds.
enum PassOption : uint64_t { kRetainGraph = 1 };

class TorchPass final : public PassGraph {
 public:
  // `roots`: on the worker that starts the pass.
  TorchPass(std::shared_ptr<ContextState> context, const PassInfo& info, std::vector<Root> roots);

  std::vector<RemoteSend> walk(const WalkFrom& from) override;
  RunResult run(bool roots, std::vector<ArrivedGradient> arrived, bool settled, const Leave& leave) override;

 private:
  // The context must outlive the pass, which accumulates into its gradients.
  const std::shared_ptr<ContextState> context_;
  const std::vector<Root> roots_;
  LocalPass pass_;
  bool has_walked_ = false;
};

}  // namespace holdfast::autograd
