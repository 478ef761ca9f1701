// What differs between the versions of libtorch that we build with (1.13, and 2.6 or newer): where hooks are kept. All
// of it is here, so that the rest of this layer reads the same for all. Private to the layer; any thread.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/version.h>

#include <utility>

namespace holdfast::autograd {

// Every hook that sees the gradients on their way into `function`: those of tensors, then those of the function. `leaf`
// is the same function if it is a leaf's, else null: a leaf keeps its hooks beside its tensor.
inline torch::autograd::variable_list call_pre_hooks(torch::autograd::Node& function,
                                                     [[maybe_unused]] torch::autograd::AccumulateGrad* leaf,
                                                     torch::autograd::variable_list gradients) {
#if TORCH_VERSION_MAJOR >= 2
  for (const auto& hook : function.tensor_pre_hooks()) gradients = (*hook)(gradients);
  for (const auto& [index, hook] : function.retains_grad_hooks()) gradients = (*hook)(gradients);
#endif
  for (const auto& hook : function.pre_hooks()) gradients = (*hook)(gradients);
#if TORCH_VERSION_MAJOR < 2
  // Here the hooks of interior tensors are among pre_hooks(), and a leaf's are not called without a gradient.
  if (leaf != nullptr && gradients.at(0).defined()) {
    gradients[0] = torch::autograd::AccumulateGrad::callHooks(leaf->variable, std::move(gradients[0]));
  }
#endif
  return gradients;
}

// Those that a program has asked to be called when the leaf's gradient has been accumulated.
inline void call_accumulated_hooks([[maybe_unused]] torch::autograd::AccumulateGrad& leaf) {
#if TORCH_VERSION_MAJOR >= 2
  if (const auto& hook = leaf.tensor_post_acc_grad_hooks()) (*hook)(leaf.variable);
#endif
}

}  // namespace holdfast::autograd
