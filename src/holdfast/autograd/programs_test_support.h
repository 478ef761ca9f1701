// For tests: programs that move their tensors between workers with a Mover, a table of every kind and random ones, and
// what libtorch's own backward of the same program gives. The same seed makes the same program, whoever moves.
#pragma once

#include <ATen/ops/cat.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/real.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>
#include <functional>

#include <holdfast/autograd/split_graph_test_support.h>

namespace holdfast::autograd {

using torch::autograd::AutogradContext;

// y = x * x * k, and no gradient at all for `ignored`.
struct ScaledSquare : torch::autograd::Function<ScaledSquare> {
  static Tensor forward(AutogradContext* context, Tensor x, Tensor /*ignored*/, double k) {
    context->save_for_backward({x});
    context->saved_data["k"] = k;
    return x * x * k;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0] * 2 * context->saved_data["k"].toDouble(), {}, {}};
  }
};

// What checkpointing does: it computes again, with a graph of its own, when the gradient arrives.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensor forward(AutogradContext* context, Tensor x) {
    context->save_for_backward({x});
    return x.tanh() * x;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::AutoGradMode grad_mode(true);
    Tensor x = context->get_saved_variables()[0].detach().set_requires_grad(true);
    return torch::autograd::grad({x.tanh() * x}, {x}, {gradients[0]});
  }
};

// Leaves to whoever runs it to sum over what was broadcast, and to convert back.
struct Widened : torch::autograd::Function<Widened> {
  static Tensor forward(AutogradContext*, Tensor x) { return x.to(at::kDouble).expand({4, 3, 3}).clone(); }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

// `leaves` are used where the program says; worker 0 has the roots.
struct Case {
  std::string name;
  std::function<Tensors()> leaves;
  std::function<std::vector<Root>(Mover& mover, const Tensors& leaves)> program;
};

inline const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"simple", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(0, 1, p[0]).matmul(p[1]).tanh();
         return {{m.move(1, 0, y).sum()}};
       }},
      {"mixed requires-grad", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensors r = m.move(0, 1, {p[0], at::ones({3, 3}, at::kDouble), p[1], at::tensor({1, 2})});
         return {{m.move(1, 0, Tensors{r[1] * 2, r[0] * r[1] + r[2]})[1].sum()}};
       }},
      {"ping-pong", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor x = p[0];
         for (int i = 0; i < 8; ++i) x = (m.move(1, 0, m.move(0, 1, x).tanh().matmul(p[1])) * p[2]);
         return {{x.sum()}};
       }},
      {"diamond", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor h = p[0].tanh();
         Tensor left = m.move(0, 1, h) * p[1];
         Tensor right = m.move(0, 2, h).matmul(p[2]);
         Tensor joined = m.move(1, 2, left) * right;
         return {{m.move(2, 0, joined).sum()}};
       }},
      {"shared interior", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor a = m.move(0, 1, p[0]);
         Tensor shared = (a * p[1]).exp();
         Tensor x = m.move(1, 0, shared.sin());
         Tensor y = m.move(1, 0, shared.cos());
         return {{(x * y).sum()}};
       }},
      {"unused results", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensors r = m.move(1, 0, {p[0] * 2, p[1] * 3});
         m.move(1, 0, p[2] * 4);
         m.move(0, 2, p[2]).tanh();
         return {{r[0].sum()}};
       }},
      {"no-grad output", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(0, 1, p[0]) * p[1];
         Tensors r = m.move(1, 0, {y.detach(), y.argmax(), y.gt(0)});
         return {{(r[0] * p[2]).sum() + r[1]}};
       }},
      {"one parameter in two calls", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(1, 0, m.move(0, 1, p[0]).matmul(p[1]));
         Tensor z = m.move(1, 0, m.move(0, 1, p[2]).matmul(p[1]));
         return {{(y * z).sum()}};
       }},
      {"the same tensor twice in a message, and a tensor that only passes through", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor h = p[0].sin();
         Tensors r = m.move(0, 1, {h, h});
         return {{(m.move(2, 0, m.move(1, 2, r[0])) * m.move(1, 0, r[1] * p[1])).sum()}};
       }},
      {"broadcasting",
       [] {
         return Tensors{leaf({3, 1}), leaf({4}), leaf({})};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(0, 1, p[0]) * p[1] + p[2];
         return {{m.move(1, 0, y).expand({2, 3, 4}), at::randn({2, 3, 4}, at::kDouble)}};
       }},
      {"in-place and views", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor a = m.move(0, 1, p[0] * 1);
         a.mul_(p[1]);
         a.select(0, 1).add_(1).mul_(p[2].select(0, 0));
         Tensor t = a.t();
         Tensor r = m.move(1, 0, t.slice(1, 0, 2));
         t.mul_(3);  // after it was sent
         r.select(1, 0).narrow(0, 1, 2).zero_();
         return {{(r.exp() * m.move(1, 0, t.slice(1, 1, 3))).sum()}};
       }},
      {"custom functions, one with a graph of its own", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = ScaledSquare::apply(m.move(0, 1, p[0]), p[1] * 2, 3.0);
         Tensor z = m.move(1, 2, Recomputed::apply(y));
         return {{m.move(2, 0, Recomputed::apply(z * p[2])).sum()}};
       }},
      {"a custom function whose gradient must be summed and converted",
       [] {
         return Tensors{leaf({3, 1}, at::kFloat)};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         return {{m.move(1, 0, Widened::apply(m.move(0, 1, p[0])).tanh()).sum()}};
       }},
      {"convolution and layer norm",
       [] {
         return Tensors{leaf({2, 3, 8, 8}), leaf({4, 3, 3, 3}), leaf({4}), leaf({6}), leaf({6})};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(1, 2, at::conv2d(m.move(0, 1, p[0]), p[1], p[2]).relu());
         return {{m.move(2, 0, at::layer_norm(y, {6}, p[3], p[4])).pow(2).sum()}};
       }},
      {"mixed types",
       [] {
         return Tensors{leaf({3, 3}), leaf({3, 3}, at::kFloat), leaf({3, 3}, at::kBFloat16)};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(0, 1, p[0]).to(at::kFloat) * p[1];
         return {{(m.move(1, 0, y).to(at::kDouble) * p[0] * p[2]).sum()}};
       }},
      {"complex and real", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor z = at::complex(m.move(0, 1, p[0]), p[1]) * p[1];
         Tensor c = m.move(1, 0, z.conj());
         return {{at::real(c * c.conj()).matmul(p[2]).sum()}};
       }},
      {"sparse embedding, used dense too",
       [] {
         return Tensors{leaf({10, 3}), leaf({10, 3})};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         auto rows = [&](const Tensor& table, at::ArrayRef<int64_t> index) {
           return at::embedding(table, at::tensor(index), -1, false, /*sparse=*/true);
         };
         Tensor y = m.move(1, 0, rows(p[0], {1, 4, 4})) * m.move(1, 0, rows(p[0], {2, 4, 9}));
         Tensor z = m.move(2, 0, rows(p[1], {1, 1})).sum() + m.move(2, 0, p[1] * p[1]).sum();
         return {{y.sum() * z}};
       }},
      {"several outputs of one function",
       [] {
         return Tensors{leaf({6, 2}), leaf({2, 2})};
       },
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensors parts = m.move(0, 1, p[0] * 1).chunk(3);
         Tensors r = m.move(1, 0, {parts[2], parts[0]});
         return {{(r[0].matmul(p[1]) * m.move(1, 0, parts[2].tanh())).sum()}};
       }},
      {"no gradient, and a gradient of zeros", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor y = m.move(0, 1, p[0] * 2);
         Tensor ignored = m.move(0, 1, p[1] * 2);
         Tensor zeroed = m.move(0, 1, p[2] * 2);
         return {{m.move(1, 0, ScaledSquare::apply(y, ignored, 2.0) + zeroed * 0).sum()}};
       }},
      {"several roots: a leaf, one twice, one before another, one that came by a call", three,
       [](Mover& m, const Tensors& p) -> std::vector<Root> {
         Tensor h = p[0].tanh();
         Tensor y = m.move(0, 1, h) * p[1];
         Tensor r = m.move(1, 0, y);
         Tensor loss = r.sum();
         return {{p[2], at::ones({3, 3}, at::kDouble)}, {loss}, {loss}, {h, p[1].detach()}, {r, p[2].detach()}};
       }},
  };
  return kCases;
}

inline void local_backward(const std::vector<Root>& roots) {
  Tensors tensors, gradients;
  for (const Root& root : roots) {
    tensors.push_back(root.tensor);
    gradients.push_back(root.gradient);
  }
  if (!tensors.empty()) torch::autograd::backward(tensors, gradients);
}

// The leaves of the case, with the gradients of one local graph in their .grad.
inline Tensors run_locally(const Case& test) {
  at::manual_seed(7);
  Tensors leaves = test.leaves();
  OneGraph one;
  local_backward(test.program(one, leaves));
  return leaves;
}

// ---- random programs ----

inline constexpr int64_t kSide = 3;

// All tensors are square, so that any two fit. Some have hooks, which are counted.
class RandomProgram {
 public:
  // `all_used`: everything that is computed goes into the roots; else a little of it does.
  explicit RandomProgram(uint64_t seed, bool all_used = false) : random_(seed), all_used_(all_used) {
    workers_ = 2 + pick(3);
    at::manual_seed(seed);
    const size_t leaf_count = 2 + pick(4);
    for (size_t i = 0; i < leaf_count; ++i) {
      Tensor leaf = at::randn({kSide, kSide}, at::kDouble) * 0.5;
      if (pick(5) != 0) leaf.set_requires_grad(true);
      leaves.push_back(leaf);
      add(leaf, pick(workers_));
    }
  }

  std::vector<Root> run(Mover& mover) {
    const size_t steps = 4 + pick(28);
    for (size_t i = 0; i < steps; ++i) step(mover);
    return all_used_ ? all_roots(mover) : some_roots(mover);
  }

  Tensors leaves;
  std::vector<std::shared_ptr<std::atomic<int>>> hook_calls;

 private:
  struct Value {
    Tensor tensor;
    uint32_t worker;
    bool is_one_of_several;  // results of a function
  };

  std::vector<Root> some_roots(Mover& mover) {
    std::vector<Root> roots;
    const size_t wanted = 1 + pick(3);
    for (size_t tries = 0; tries < 20 && roots.size() < wanted; ++tries) {
      const size_t from_last = pick(std::min<size_t>(values_.size(), 6));
      Tensor value = fetch(mover, values_.size() - 1 - from_last, 0);
      if (!value.requires_grad()) continue;
      if (pick(2) == 0) {
        roots.push_back({value.sum()});
      } else {
        roots.push_back({value, at::randn({kSide, kSide}, at::kDouble)});
      }
    }
    return roots;
  }

  std::vector<Root> all_roots(Mover& mover) {
    std::vector<Root> roots;
    for (uint32_t worker = 0; worker < workers_; ++worker) {
      Tensors tensors;
      for (const Value& value : values_) {
        if (value.worker == worker && value.tensor.requires_grad()) tensors.push_back(value.tensor);
      }
      if (worker != 0 && !tensors.empty()) tensors = mover.move(worker, 0, tensors);
      for (const Tensor& root : tensors) roots.push_back({root, at::randn({kSide, kSide}, at::kDouble)});
    }
    return roots;
  }

  void add(const Tensor& tensor, uint32_t worker, bool is_one_of_several = false) {
    values_.push_back({tensor, worker, is_one_of_several});
    if (!tensor.requires_grad() || pick(4) != 0) return;
    // libtorch's hooks cannot take "no gradient", which the result of a function gets if only its others are used.
    if (is_one_of_several && !all_used_) return;
    auto calls = std::make_shared<std::atomic<int>>(0);
    tensor.register_hook([calls](const Tensor&) { ++*calls; });
    hook_calls.push_back(std::move(calls));
  }

  uint32_t pick(uint64_t bound) { return static_cast<uint32_t>(random_() % bound); }
  size_t any() {
    return pick(3) == 0 ? pick(values_.size()) : values_.size() - 1 - pick(std::min<size_t>(values_.size(), 5));
  }

  // The value on that worker: moved if it is elsewhere, perhaps with others in the same message, which arrive too.
  Tensor fetch(Mover& mover, size_t index, uint32_t worker) {
    const uint32_t from = values_[index].worker;
    if (from == worker) return values_[index].tensor;
    Tensors message = {values_[index].tensor};
    std::vector<bool> are_of_several = {values_[index].is_one_of_several};
    for (size_t i = 0; i < values_.size() && message.size() < 3; ++i) {
      if (i != index && values_[i].worker == from && pick(6) == 0) {
        message.push_back(values_[i].tensor);
        are_of_several.push_back(values_[i].is_one_of_several);
      }
    }
    Tensors received = mover.move(from, worker, message);
    for (size_t i = 0; i < received.size(); ++i) add(received[i], worker, are_of_several[i]);
    return received[0];
  }

  void step(Mover& mover) {
    const uint32_t worker = pick(workers_);
    // One after the other: their order must not be the compiler's choice.
    const Tensor a = fetch(mover, any(), worker);
    const Tensor b = fetch(mover, any(), worker);
    const Tensors results = apply(a, b);
    for (const Tensor& result : results) add(result, worker, results.size() > 1);
  }

  Tensors apply(const Tensor& a, const Tensor& b) {
    switch (pick(13)) {
      case 0: return {a + b};
      case 1: return {a * b};
      case 2: return {a.matmul(b) * 0.3};
      case 3: return {a.tanh()};
      case 4: return at::cat({a, b.tanh()}, 0).chunk(2, 0);
      case 5: return at::cat({a, b}, 1).split(kSide, 1);
      case 6: return {a.reshape({kSide * kSide}).view({kSide, kSide}).t()};
      case 7: return {a.select(0, pick(kSide)).expand({kSide, kSide})};
      case 8: return {a.index_select(0, at::tensor({0, 2, 0}))};
      case 9: return {a.detach()};
      case 10: return {a.clone()};
      case 11: return {a.sum(1, /*keepdim=*/true) * b};
      default: return {a.clone().add_(b), b.sin()};
    }
  }

  std::mt19937_64 random_;
  const bool all_used_;
  uint32_t workers_;
  std::vector<Value> values_;
};

// Moves nothing: the whole program on one worker.
class Nothing : public Mover {
 public:
  using Mover::move;
  Tensors move(uint32_t, uint32_t, const Tensors& tensors) override { return tensors; }
};

// What a random program has to give: each leaf's gradient, and how often each hook was called.
struct Outcome {
  Tensors gradients;
  std::vector<int> hook_calls;
};

inline std::vector<int> calls_of(const RandomProgram& program) {
  std::vector<int> calls;
  for (const auto& count : program.hook_calls) calls.push_back(*count);
  return calls;
}

inline Outcome run_locally(Mover& mover, uint64_t seed, bool all_used = false) {
  RandomProgram program(seed, all_used);
  local_backward(program.run(mover));
  Outcome outcome{.gradients = {}, .hook_calls = calls_of(program)};
  for (const Tensor& leaf : program.leaves) outcome.gradients.push_back(leaf.grad());
  return outcome;
}

}  // namespace holdfast::autograd
