// LocalOptimizer: what a DistributedOptimizer has on one owner: libtorch's optimizers for the parameters that live
// there, one for each group. Made there by a call, held by an RRef, used through calls; those may come at the same
// time.
//
// The optimizers work on twins of the parameters: tensors with the same memory, but with a .grad and a version counter
// of their own. So the parameters' own .grad is never touched, and trainers that share parameters can be anywhere
// between their forward and backward when somebody steps.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/autograd/context.h>
#include <holdfast/optim/closure.h>
#include <holdfast/optim/kind.h>
#include <holdfast/rref/rref.h>
#include <holdfast/wire/fields.h>

namespace holdfast::optim {

// Numbers are those of the whole optimizer, for messages to people.
struct LocalParameter {
  RRef<at::Tensor> tensor;
  uint64_t number = 0;
  HOLDFAST_FIELDS(LocalParameter, tensor, number)
};
struct LocalGroup {
  uint64_t number = 0;
  std::vector<LocalParameter> parameters;
  Values options;
  HOLDFAST_FIELDS(LocalGroup, number, parameters, options)
};

class LocalOptimizer {
 public:
  // Waits for the parameters. Throws InvalidArgument for one that cannot be optimized.
  LocalOptimizer(const std::string& kind, std::vector<LocalGroup> groups);
  ~LocalOptimizer();
  LocalOptimizer(const LocalOptimizer&) = delete;
  LocalOptimizer& operator=(const LocalOptimizer&) = delete;

  // Does nothing: who calls it learns whether the object could be made.
  void made() const {}
  // With the gradients of that context; parameters without one stay as they are. `options`: of each group here.
  void step(const ContextId& context, const std::vector<Values>& options);
  // For a kind that needs it. The lock is not held while the closure is evaluated.
  void step_with_closure(const RRef<Evaluations>& evaluations, const std::vector<Values>& options);
  // During that step: what the closure has computed.
  void take_gradients(const ContextId& context);

  // What is remembered of one parameter, by the position of its group and in that group; empty if nothing.
  Values save(uint64_t group, uint64_t parameter);
  // Back to the beginning, with these options. Then load() for each parameter that has a state.
  void reset(const std::vector<Values>& options);
  void load(uint64_t group, uint64_t parameter, const Values& state);

 private:
  struct Parameter {
    RRef<at::Tensor> reference;
    at::Tensor tensor;
    at::Tensor twin;
    std::string name;  // for people
  };
  struct Group {
    std::vector<Parameter> parameters;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };
  class Gradients;

  static Parameter take(const LocalParameter& parameter, uint64_t group);
  // Everything below: under the lock.
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(const Group& group, const Values& options) const;
  void set_options(const std::vector<Values>& options);
  void set_gradients(const autograd::ContextRef& context);
  void clear_gradients();
  Parameter& at(uint64_t group, uint64_t parameter);
  void refuse_in_closure() const;
  void check_count(const std::vector<Values>& options) const;

  const Kind& kind_;
  std::vector<Group> groups_;
  bool in_closure_ = false;  // a step with a closure is under way
};

// Called on any of the parameters, it makes one beside them.
LocalOptimizer make_local_optimizer(const at::Tensor& parameter, const std::string& kind,
                                    std::vector<LocalGroup> groups);

}  // namespace holdfast::optim
