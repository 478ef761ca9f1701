// GradientMap: the gradients of one context on one worker, by leaf tensor. A distributed backward accumulates here and
// never into .grad, so that contexts that use the same parameters at the same time keep their gradients apart.
// Owned by the context. Any thread; passes of one context may accumulate at the same time.
#pragma once

#include <ATen/core/Tensor.h>

#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast::autograd {

class GradientMap {
 public:
  GradientMap() = default;
  GradientMap(const GradientMap&) = delete;
  GradientMap& operator=(const GradientMap&) = delete;

  // Adds `gradient` to that of `leaf`, as AccumulateGrad does for .grad; the first one is taken over without a copy if
  // nobody else can see its memory, the caller's reference aside. Call with grad mode off.
  void accumulate(const at::Tensor& leaf, const at::Tensor& gradient);

  // Undefined if the leaf has none, which is not the same as zeros. A later pass of the context adds to the tensor that
  // is given out, in place, as with .grad.
  at::Tensor get(const at::Tensor& leaf) const;
  // Every leaf that has a gradient, with it; in no order.
  std::vector<std::pair<at::Tensor, at::Tensor>> all() const;

 private:
  struct Entry {
    at::Tensor leaf;  // keeps the key from being used for another tensor
    at::Tensor gradient;
  };

  mutable std::mutex mutex_;
  // From a leaf's first gradient to the end of the context.
  std::unordered_map<const at::TensorImpl*, Entry> entries_;
};

}  // namespace holdfast::autograd
