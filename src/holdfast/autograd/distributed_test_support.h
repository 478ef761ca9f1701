// For tests of distributed autograd: functions that workers call on each other, and a process that serves them.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include <holdfast/autograd/context.h>
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::distributed_test {

using namespace test;
using at::Tensor;
using autograd::Context;
using autograd::ContextRef;
using autograd::current_context;
using autograd::find_context;
using autograd::has_current_context;
using autograd::Mode;

inline Tensor leaf(double value = 1) { return (at::ones({2}) * value).set_requires_grad(true); }

using Path = std::vector<int64_t>;  // ranks

inline Tensor scale(Tensor t, double k) { return t * k; }
inline Tensor sum_scaled(Tensor t, double k) { return (t * k).sum(); }
inline Tensor make_leaf(double value) { return leaf(value); }
inline Tensor gradient_of(const Tensor& leaf) { return current_context().gradient(leaf); }
inline bool is_in_context() { return has_current_context(); }

inline Peer take_first(Path& path) {
  Peer peer = current_worker().peer(static_cast<int>(path.front()));
  path.erase(path.begin());
  return peer;
}

// t * 6^(length of the path) * 2, each worker of the path with its part in it.
inline Tensor walk(Tensor t, Path path) {
  if (path.empty()) return t * 2;
  const Peer next = take_first(path);
  return next.call<walk>(t * 2, path) * 3;
}
inline Task<Tensor> walk_task(Tensor t, Path path) {
  if (path.empty()) co_return t * 2;
  const Peer next = take_first(path);
  const Tensor result = co_await next.async<walk_task>(t * 2, path);
  co_return co_await next.async<scale>(result, 3.0);  // still in the context
}
inline Future<Tensor> walk_then(Tensor t, Path path) {
  if (path.empty()) return start(walk_task(std::move(t), {}));
  const Peer next = take_first(path);
  return next.async<walk>(t * 2, path).then([next](const Tensor& result) { return next.call<scale>(result, 3.0); });
}

inline Tensor product_with(RRef<Tensor> a, Tensor b) { return a.to_here() * b; }

struct Layer {
  explicit Layer(double value) : weight(leaf(value)) {}
  Tensor forward(Tensor x) { return x * weight; }
  Tensor gradient() const { return current_context().gradient(weight); }
  Tensor weight;
};

// A backward that a worker starts which has not created the context. Returns the gradient of a leaf of its own.
inline Tensor backward_there(Tensor x, ContextId id, bool smart) {
  const ContextRef context = find_context(current_worker(), id);
  const Tensor own = leaf(3);
  const Peer next = current_worker().peer((current_worker().rank() + 1) % 3);
  context.backward({next.call<scale>(x * own, 5.0).sum()}, {.mode = smart ? Mode::smart : Mode::fast});
  return context.gradient(own);
}

// Makes a context of its own, and lets go of its thread in between.
inline Task<Tensor> train(Tensor x) {
  Context context(current_worker());
  const Tensor w = leaf(2);
  const Tensor y = co_await current_worker().peer(2).async<scale>(w * x, 3.0);
  const std::vector<Tensor> roots(1, y.sum());  // g++ 12 cannot do with an initializer list in a co_await
  co_await context.async_backward(roots);
  co_return context.gradient(w);
}

inline Tensor failing_backward(Tensor t) {
  const Tensor y = t * 2;
  y.register_hook([](const Tensor&) { throw std::out_of_range("no such row"); });
  return y * 1;
}

inline std::atomic<int> leaf_hooks{0};
// Counts when the gradient of its leaf is there.
inline Tensor scaled_leaf(double k) {
  const Tensor own = leaf();
  own.register_hook([](const Tensor&) { ++leaf_hooks; });
  return own * k;
}

inline Gate gate;

inline Tensor gated_forward(Tensor t) {
  gate.pass();
  return t * 2;
}
// Its backward waits at the gate.
inline Tensor gated(Tensor t, Path path) {
  if (!path.empty()) {
    const Peer next = take_first(path);
    return next.call<gated>(t * 2, path);
  }
  const Tensor y = t * 2;
  y.register_hook([](const Tensor&) { gate.pass(); });
  return y * 1;
}

// ---- in a process of its own

inline void report_begun() { gate.pass(); }
// Its backward says so and never ends.
inline Tensor endless(Tensor t, Path path) {
  if (!path.empty()) {
    const Peer next = take_first(path);
    return next.call<endless>(t * 2, path);
  }
  const Tensor y = t * 2;
  y.register_hook([](const Tensor&) {
    current_worker().peer(0).call<report_begun>();
    for (;;) pause();
  });
  return y * 1;
}

inline int serve() {
  Worker worker(Options::from_env());
  worker.shutdown(600s);
  return 0;
}
inline const Role serve_role("serve_autograd", serve);

}  // namespace holdfast::distributed_test
