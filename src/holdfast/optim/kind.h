// Kind: one class of libtorch optimizers, as owners need it: how it is made, and how its options and state are read and
// written. Kinds are known by name in a table that belongs to the program, like its functions: libtorch's own are there
// in every program, others come with fields.h. Traits<Opt> connects the C++ type with it.
//
// libtorch's classes are only declared here: their headers take 15 s to compile. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/optim/values.h>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace holdfast::optim {

struct Kind {
  std::string name;            // "torch::optim::SGD"
  bool needs_closure = false;  // it evaluates the loss itself, several times in a step, over all its parameters
  // One with a single group. Throws what the class throws for options that make no sense, and as the others do:
  std::unique_ptr<torch::optim::Optimizer> (*make)(std::vector<at::Tensor> parameters, const Values& options) = nullptr;
  // InvalidArgument for a name that the class does not have, or a value of another type. What is not given has its
  // default.
  void (*read_options)(const Values& values, torch::optim::OptimizerOptions& out) = nullptr;
  // The tensors are copies.
  Values (*write_state)(const torch::optim::OptimizerParamState& state) = nullptr;
  // For a parameter like this one, on its device; tensors are copied. InvalidArgument also for a wrong shape.
  std::unique_ptr<torch::optim::OptimizerParamState> (*read_state)(const Values& values,
                                                                   const at::Tensor& parameter) = nullptr;
};

// Before main(), or later. The same name again replaces it: it is the same class, seen by another shared library.
const Kind& add_kind(Kind kind);
// Throws InvalidArgument, with the names of those that are known.
const Kind& find_kind(const std::string& name);

// Options: the class of Opt's options. kind(). write_options and read_options: from and to Values.
template <class Opt>
struct Traits;

}  // namespace holdfast::optim

#define HOLDFAST_OPTIMIZER_(Name)                        \
  namespace torch::optim {                               \
  class Name;                                            \
  struct Name##Options;                                  \
  }                                                      \
  template <>                                            \
  struct holdfast::optim::Traits<torch::optim::Name> {   \
    using Options = torch::optim::Name##Options;         \
    static const Kind& kind();                           \
    static Values write_options(const Options& options); \
    static Options read_options(const Values& values);   \
  };
HOLDFAST_OPTIMIZER_(SGD)
HOLDFAST_OPTIMIZER_(Adam)
HOLDFAST_OPTIMIZER_(AdamW)
HOLDFAST_OPTIMIZER_(Adagrad)
HOLDFAST_OPTIMIZER_(RMSprop)
HOLDFAST_OPTIMIZER_(LBFGS)
#undef HOLDFAST_OPTIMIZER_
