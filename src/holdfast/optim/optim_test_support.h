// For the tests of this layer: a small model whose parameters live on the workers of a job, and the same model in one
// process.
#pragma once

#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>

#include <holdfast/optim/distributed_optimizer.h>
#include <holdfast/optim/lr_schedule.h>
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::optim::test {

using namespace holdfast::test;
using at::Tensor;
using Parameters = std::vector<RRef<Tensor>>;

inline Tensor make_leaf(Tensor value) { return value.detach().clone().set_requires_grad(true); }
inline Tensor layer(const Tensor& weight, Tensor x) { return at::tanh(at::matmul(x, weight)); }
inline Tensor value_of(const Tensor& tensor) { return tensor.detach().clone(); }
inline bool grad_is_defined(const Tensor& tensor) { return tensor.grad().defined(); }

// What the model starts with: the weights of three layers.
inline std::vector<Tensor> start_values() {
  return {at::rand({4, 6}) - 0.5, at::rand({6, 5}) - 0.5, at::rand({5, 2}) - 0.5};
}

// Weight i on the worker of rank owners[i].
inline Parameters place(Worker& trainer, const std::vector<Tensor>& values, const std::vector<int>& owners) {
  Parameters parameters;
  for (size_t i = 0; i < values.size(); ++i) {
    parameters.push_back(trainer.peer(owners[i]).remote<make_leaf>(values[i]));
  }
  return parameters;
}

inline std::vector<Tensor> leaves(const std::vector<Tensor>& values) {
  std::vector<Tensor> all;
  for (const Tensor& value : values) all.push_back(make_leaf(value));
  return all;
}

inline std::vector<Tensor> fetch(const Parameters& parameters) {
  std::vector<Tensor> all;
  for (const RRef<Tensor>& parameter : parameters) all.push_back(parameter.call<value_of>());
  return all;
}

struct Data {
  Tensor x = at::rand({8, 4});
  Tensor y = at::rand({8, 2});
};

inline Tensor loss_of(const Parameters& parameters, const Data& data) {
  Tensor x = data.x;
  for (const RRef<Tensor>& weight : parameters) x = weight.call<layer>(x);
  return at::mse_loss(x, data.y);
}
inline Tensor loss_of(const std::vector<Tensor>& parameters, const Data& data) {
  Tensor x = data.x;
  for (const Tensor& weight : parameters) x = layer(weight, x);
  return at::mse_loss(x, data.y);
}

// One step of training, on the job.
inline void train(Worker& trainer, AnyOptimizer& optimizer, const Parameters& parameters, const Data& data) {
  autograd::Context context(trainer);
  context.backward({loss_of(parameters, data)});
  optimizer.step(context);
}

inline double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    largest = std::max(largest, (a[i].detach() - b[i].detach()).abs().max().item<double>());
  }
  return largest;
}

}  // namespace holdfast::optim::test
