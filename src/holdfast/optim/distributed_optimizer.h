// DistributedOptimizer<Opt>: any of libtorch's optimizers, for parameters that live on any workers. It makes one
// optimizer on each owner; step(context) runs them all at once with that context's gradients. docs/optimizer.md is the
// user's page.
//
//   hf::optim::DistributedOptimizer<torch::optim::SGD> optimizer(worker, parameters, {/*lr=*/0.1});
//   hf::autograd::Context context(worker);
//   context.backward({loss()});
//   optimizer.step(context);
//
// Steps, learning rates, saving and threads: see AnyOptimizer. Steps on one worker happen one after another, also those
// of different trainers' optimizers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <holdfast/optim/any_optimizer.h>

namespace holdfast::optim {

template <class Opt>
class DistributedOptimizer : public AnyOptimizer {
 public:
  using Options = typename Traits<Opt>::Options;
  struct Group {
    std::vector<RRef<at::Tensor>> parameters;
    Options options;
  };

  // The worker must outlive it.
  DistributedOptimizer(Worker& worker, std::vector<RRef<at::Tensor>> parameters, const Options& options = Options())
      : AnyOptimizer(worker, Traits<Opt>::kind(), {{std::move(parameters), Traits<Opt>::write_options(options)}}) {}
  DistributedOptimizer(Worker& worker, const std::vector<Group>& groups)
      : AnyOptimizer(worker, Traits<Opt>::kind(), untyped(groups)) {}

  Options options(size_t group = 0) const { return Traits<Opt>::read_options(AnyOptimizer::options(group)); }
  Options options(size_t group, const std::string& owner) const {
    return Traits<Opt>::read_options(AnyOptimizer::options(group, owner));
  }
  void set_options(size_t group, const Options& options) {
    AnyOptimizer::set_options(group, Traits<Opt>::write_options(options));
  }
  void set_options(size_t group, const std::string& owner, const Options& options) {
    AnyOptimizer::set_options(group, owner, Traits<Opt>::write_options(options));
  }

 private:
  static std::vector<AnyOptimizer::Group> untyped(const std::vector<Group>& groups) {
    std::vector<AnyOptimizer::Group> all;
    for (const Group& group : groups) all.push_back({group.parameters, Traits<Opt>::write_options(group.options)});
    return all;
  }
};

}  // namespace holdfast::optim
