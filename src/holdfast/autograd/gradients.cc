#include <holdfast/autograd/gradients.h>

#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace holdfast::autograd {

namespace {

// accumulateGrad() counts references to the tensor only. A view of a gradient that is being sent to another worker, or
// that belongs to another leaf, would pass for ours alone; later gradients would then be added to what others read. So
// the memory must be ours too. Not so with sparse tensors: what is added to one gets new memory, and nobody writes into
// the old. What keeps its memory elsewhere is copied.
bool is_alone_on_its_memory(const at::Tensor& tensor) {
  if (tensor.layout() == at::kSparse) return true;
  return tensor.has_storage() && tensor.storage().use_count() == 1;
}

}  // namespace

void GradientMap::accumulate(const at::Tensor& leaf, const at::Tensor& gradient) {
  const size_t references_expected = is_alone_on_its_memory(gradient) ? 1 : 0;
  std::lock_guard lock(mutex_);
  auto found = entries_.find(leaf.unsafeGetTensorImpl());
  at::Tensor sum = found == entries_.end() ? at::Tensor() : found->second.gradient;
  torch::autograd::AccumulateGrad::accumulateGrad(leaf, sum, gradient, references_expected,
                                                  [&](at::Tensor&& updated) { sum = std::move(updated); });
  if (found == entries_.end()) {
    entries_.emplace(leaf.unsafeGetTensorImpl(), Entry{leaf, std::move(sum)});
  } else {
    found->second.gradient = std::move(sum);
  }
}

at::Tensor GradientMap::get(const at::Tensor& leaf) const {
  std::lock_guard lock(mutex_);
  auto found = entries_.find(leaf.unsafeGetTensorImpl());
  return found == entries_.end() ? at::Tensor() : found->second.gradient;
}

std::vector<std::pair<at::Tensor, at::Tensor>> GradientMap::all() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<at::Tensor, at::Tensor>> result;
  result.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) result.emplace_back(entry.leaf, entry.gradient);
  return result;
}

}  // namespace holdfast::autograd
