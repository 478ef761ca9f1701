#include <holdfast/autograd/context.h>

#include <ATen/ThreadLocalState.h>
#include <fmt/format.h>

#include <holdfast/autograd/context_state.h>
#include <holdfast/autograd/torch_pass.h>
#include <holdfast/rpc/worker.h>

namespace holdfast::autograd {

namespace {

std::vector<Root> with_implied_gradients(std::vector<at::Tensor> tensors) {
  std::vector<Root> roots;
  for (at::Tensor& tensor : tensors) roots.push_back({.tensor = std::move(tensor)});
  return roots;
}

}  // namespace

const ContextId& ContextRef::id() const { return state_->id; }

void ContextRef::backward(std::vector<at::Tensor> roots, BackwardOptions options) const {
  backward(with_implied_gradients(std::move(roots)), options);
}

void ContextRef::backward(std::vector<Root> roots, BackwardOptions options) const {
  ContextState::RunsHere here(*state_);
  Future<void> pass = async_backward(std::move(roots), options);
  here.until(*pass.state());
  pass.take();
}

Future<void> ContextRef::async_backward(std::vector<at::Tensor> roots, BackwardOptions options) const {
  return async_backward(with_implied_gradients(std::move(roots)), options);
}

Future<void> ContextRef::async_backward(std::vector<Root> roots, BackwardOptions options) const {
  Host& host = state_->host;
  Promise<void> promise(host.executor());
  Future<void> future = promise.future();
  const PassOptions pass_options{.mode = options.mode == Mode::fast ? PassMode::fast : PassMode::smart,
                                 .options = options.retain_graph ? uint64_t{kRetainGraph} : 0,
                                 .timeout = options.timeout};
  const PassId pass = Backwards::of(host).start_pass(
      state_->id, pass_options,
      // What this thread has set for libtorch, its profiler for one, holds for the pass, which begins on another.
      [state = state_, roots = std::move(roots),
       thread_state = at::ThreadLocalState()](const PassInfo& info) -> std::shared_ptr<PassGraph> {
        at::ThreadLocalStateGuard guard(thread_state);
        return std::make_shared<TorchPass>(state, info, roots);
      },
      [state = state_, promise = std::move(promise)](Status status) mutable {
        if (status.ok()) {
          promise.set_value();
        } else {
          promise.set_failure(std::move(status.failure()));
        }
        state->on_pass_ended();
      });
  if (pass.counter != 0) {
    future.state()->on_cancel([host = host.share(), pass] { Backwards::of(*host).cancel(pass); });
  }
  return future;
}

at::Tensor ContextRef::gradient(const at::Tensor& leaf) const { return state_->gradients.get(leaf); }

std::vector<std::pair<at::Tensor, at::Tensor>> ContextRef::gradients() const { return state_->gradients.all(); }

namespace {

std::shared_ptr<ContextState> create(Host& host) {
  return std::static_pointer_cast<ContextState>(
      Backwards::of(host).create_context(ContextState::maker(host, host.self())));
}

}  // namespace

Context::Context(Worker& worker) : Context(worker.host()) {}
Context::Context(Host& host) : Context(create(host)) {}
Context::Context(std::shared_ptr<ContextState> state)
    : ContextRef(state), host_(state->host), previous_(std::exchange(current_ambient().flow, state)) {
  if (flow_carrier() != nullptr) carried_ = flow_carrier()->carry(std::move(state));
}

Context::~Context() {
  current_ambient().flow = std::move(previous_);
  carried_.reset();
  Backwards::of(host_).end_context(id());
}

bool has_current_context() { return current_flow() != nullptr; }

ContextRef current_context() {
  std::shared_ptr<ContextState> state = ContextState::current();
  if (!state) throw_failure({.code = Code::invalid_argument, .message = "no autograd context is current here"});
  return ContextRef(std::move(state));
}

ContextRef find_context(Worker& worker, const ContextId& id) {
  auto state = std::static_pointer_cast<ContextState>(Backwards::of(worker.host()).find_context(id));
  if (!state) {
    throw_failure({.code = Code::invalid_argument,
                   .message = fmt::format("context {} has not come to {}, or has ended", text_of(id), worker.name())});
  }
  return ContextRef(std::move(state));
}

DebugInfo debug_info(Host& host) {
  DebugInfo info;
  Backwards& backwards = Backwards::of(host);
  host.step([&](Step&) {
    for (const auto& [id, context] : backwards.contexts().all()) {
      const auto& state = static_cast<const ContextState&>(*context->data);
      ++info.contexts;
      info.sends += state.send_count();
      info.recvs += state.recv_count();
    }
  });
  const BackwardCounts counts = backwards.counts();
  info.passes = counts.passes + counts.parts;
  return info;
}

DebugInfo debug_info(Worker& worker) { return debug_info(worker.host()); }

namespace {

// On the owner of the root. If its caller gives up, so does the pass.
Future<void> backward_here(const at::Tensor& root, const ContextId& id, bool smart, bool retain_graph) {
  return find_context(current_worker(), id)
      .async_backward({root}, {.mode = smart ? Mode::smart : Mode::fast, .retain_graph = retain_graph});
}

}  // namespace

void backward(const RRef<at::Tensor>& root, const ContextRef& context, BackwardOptions options) {
  root.with_timeout(options.timeout)
      .call<backward_here>(context.id(), options.mode == Mode::smart, options.retain_graph);
}

}  // namespace holdfast::autograd
