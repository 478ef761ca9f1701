// Context: one distributed forward and backward. While one is current, messages that carry tensors which require grad
// are recorded on both sides; backward() then takes the gradients back over the same workers, and they gather in the
// context, on the worker of each leaf, never in .grad.
//
//   hf::autograd::Context context(worker);
//   at::Tensor loss = peer.call<forward>(x, w).sum();
//   context.backward({loss});
//   at::Tensor gradient = context.gradient(w);
//
// It is current on the thread that made it until it is destroyed, and in everything that is called from there: handlers
// on other workers, what they call, continuations and coroutines, and what libtorch goes on with on threads of its own
// (torch::jit::fork, at::launch, a script that waited).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/autograd/executor.h>
#include <holdfast/backward/graph.h>
#include <holdfast/base/future.h>
#include <holdfast/rref/rref.h>
#include <holdfast/tensor/codec.h>

namespace holdfast::autograd {

class ContextState;

// smart finds first which functions will take part: an unused result is no problem. fast saves those messages, and
// fails if something that was recorded gets no gradient.
enum class Mode : uint8_t { fast, smart };

struct BackwardOptions {
  Mode mode = Mode::smart;
  bool retain_graph = false;    // keep what functions have saved: another backward can follow
  Duration timeout = kForever;  // then the pass fails with Timeout, everywhere
};

// A context as one uses it on any worker that it has come to. Cheap to copy; any thread. What it refers to ends with
// the Context that was created, or when this worker stops: backward() then throws, and gradients that are there can
// still be read.
class ContextRef {
 public:
  using Options = BackwardOptions;

  explicit ContextRef(std::shared_ptr<ContextState> state) : state_(std::move(state)) {}

  // Can be sent: see find_context.
  const ContextId& id() const;
  // Roots: tensors with one element that require grad. Throws what went wrong on any worker, with its origin.
  void backward(std::vector<at::Tensor> roots, BackwardOptions options = {}) const;
  // With gradients for roots of any shape.
  void backward(std::vector<Root> roots, BackwardOptions options = {}) const;
  // cancel() on the future ends the pass everywhere.
  Future<void> async_backward(std::vector<at::Tensor> roots, BackwardOptions options = {}) const;
  Future<void> async_backward(std::vector<Root> roots, BackwardOptions options = {}) const;

  // Of the leaves of this worker; undefined if it has none, which is not the same as zeros.
  at::Tensor gradient(const at::Tensor& leaf) const;
  // Each leaf of this worker that has a gradient, with it; in no order.
  std::vector<std::pair<at::Tensor, at::Tensor>> gradients() const;

 private:
  std::shared_ptr<ContextState> state_;
};

// The one that creates it. Not movable: it is current on its thread, and ends in the reverse order of others there.
class Context : public ContextRef {
 public:
  explicit Context(Worker& worker);
  explicit Context(Host& host);
  // Ends it on every worker that it has come to. What is recorded, gradients too, is freed there.
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  explicit Context(std::shared_ptr<ContextState> state);
  Host& host_;
  std::shared_ptr<void> previous_;
  std::shared_ptr<void> carried_;  // by libtorch to its threads, until this is gone
};

// The context that this work runs in. Throws InvalidArgument if there is none.
ContextRef current_context();
bool has_current_context();
// One that has come to this worker. Throws InvalidArgument if it has not, or has ended.
ContextRef find_context(Worker& worker, const ContextId& id);

// What a worker holds of all contexts; all zero when they have ended.
struct DebugInfo {
  size_t contexts = 0;
  size_t sends = 0;
  size_t recvs = 0;
  size_t passes = 0;
  friend bool operator==(const DebugInfo&, const DebugInfo&) = default;
};
DebugInfo debug_info(Host& host);
DebugInfo debug_info(Worker& worker);

// A backward that begins at a tensor which may be elsewhere; it is started there. For RRef<at::Tensor>::backward.
void backward(const RRef<at::Tensor>& root, const ContextRef& context, BackwardOptions options = {});

// Makes contexts travel with calls: hooks.cc. Every worker of a program that includes this has it.
bool install();
inline const bool kInstalled = install();

}  // namespace holdfast::autograd
