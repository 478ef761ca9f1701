#include <holdfast/autograd/executor.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include <holdfast/autograd/torch_compat.h>
#include <holdfast/base/check.h>
#include <holdfast/base/error.h>

namespace holdfast::autograd {

using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::InputMetadata;
using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

constexpr size_t kNamesMax = 5;
constexpr size_t kNamesScanMax = 64;
constexpr const char* kExtended = "a backward pass cannot be extended when its gradients already flow";

[[noreturn]] void throw_invalid(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

template <class T>
std::string stream_text(const T& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str();
}

// Call inside catch. A function's exception is reported with its name; of libtorch's own, the text without the stack.
[[noreturn]] void rethrow_with_name(const Node& function) {
  Failure failure = describe_current_exception();
  try {
    throw;
  } catch (const c10::Error& error) {
    failure.message = error.what_without_backtrace();
  } catch (...) {
  }
  failure.message = fmt::format("{} (in the backward function {})", failure.message, function.name());
  throw_failure(std::move(failure));
}

// Makes `gradient` one that fits what the function at the end of the edge recorded of its input, or throws.
void fit(at::Tensor& gradient, size_t index, const InputMetadata& expected) {
  if (!expected.is_same_shape(gradient)) {
    if (!expected.is_expandable_to_shape(gradient)) {
      throw_invalid(expected.incompatible_shape_error_message(index, gradient).str());
    }
    gradient = expected.reduce_grad(gradient);  // sums over what was broadcast
  }
  const at::ScalarType dtype = c10::typeMetaToScalarType(expected.dtype());
  if (gradient.is_complex() && !c10::isComplexType(dtype)) {
    throw_invalid(fmt::format("gradient {} is complex where the tensor is real", index));
  }
  if (gradient.scalar_type() != dtype) gradient = gradient.to(dtype);
  if (gradient.device() != expected.device()) {
    if (gradient.dim() != 0) {
      throw_invalid(fmt::format("gradient {} is on {} where the tensor is on {}", index, gradient.device().str(),
                                expected.device().str()));
    }
    gradient = gradient.to(expected.device());
  }
  const bool is_sparse_of_dense = gradient.layout() == at::kSparse && expected.layout() == at::kStrided;
  if (gradient.layout() != expected.layout() && !is_sparse_of_dense && !expected.is_tensor_subclass()) {
    throw_invalid(fmt::format("gradient {} has the layout {} where the tensor has {}", index,
                              stream_text(gradient.layout()), stream_text(expected.layout())));
  }
}

void check_count(const variable_list& gradients, const edge_list& edges) {
  if (gradients.size() == edges.size()) return;
  throw_invalid(fmt::format("got {} gradients where {} are expected", gradients.size(), edges.size()));
}

void fit_all(variable_list& gradients, const edge_list& edges) {
  check_count(gradients, edges);
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].is_valid() && gradients[i].defined()) {
      fit(gradients[i], i, edges[i].function->input_metadata(edges[i].input_nr));
    }
  }
}

// True if nobody but the holder of this reference can see the tensor's memory, and adding in place gives the same as
// adding out of place.
bool may_add_in_place(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.has_storage() && tensor.storage().use_count() == 1 &&
         tensor.is_non_overlapping_and_dense() && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor() &&
         !tensor.requires_grad() && !tensor.unsafeGetTensorImpl()->is_python_dispatch();
}

void add_to(at::Tensor& sum, at::Tensor gradient) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
    return;
  }
  // Dense plus sparse works, sparse plus dense does not.
  if (sum.is_sparse() && !gradient.is_sparse()) std::swap(sum, gradient);
  if (!sum.is_sparse() && may_add_in_place(sum)) {
    sum.add_(gradient);
  } else {
    sum = sum.add(gradient);
  }
}

at::Tensor implied_gradient(const at::Tensor& root, size_t index) {
  if (root.numel() != 1) {
    throw_invalid(fmt::format("a gradient can be left out only for a root with one element; root {} has the shape {}",
                              index, stream_text(root.sizes())));
  }
  if (!root.is_floating_point()) {
    throw_invalid(fmt::format("a gradient can be left out only for a real root; root {} has the type {}", index,
                              c10::toString(root.scalar_type())));
  }
  return at::ones_like(root);
}

Edge edge_of_root(const Root& root, size_t index) {
  if (!root.tensor.defined()) throw_invalid(fmt::format("root {} is an undefined tensor", index));
  if (!root.tensor.requires_grad()) {
    throw_invalid(fmt::format("root {} does not require grad and has no grad_fn", index));
  }
  return torch::autograd::impl::gradient_edge(root.tensor);
}

at::Tensor gradient_of_root(const Root& root, size_t index, const Edge& edge) {
  if (!root.gradient.defined()) return implied_gradient(root.tensor, index);
  at::Tensor gradient = root.gradient;
  fit(gradient, index, edge.function->input_metadata(edge.input_nr));
  return gradient;
}

// A function that libtorch's engine runs for grad() sees which gradients that call needs, and computes no others. Our
// functions would see the same.
void check_outside_of_engine() {
  const auto* needed = torch::autograd::get_current_graph_task_exec_info();
  if (needed != nullptr && !needed->empty()) {
    throw_invalid("a distributed backward cannot run inside a function that torch::autograd::grad() is running");
  }
}

}  // namespace

LocalPass::LocalPass(GradientMap& gradients, LocalPassOptions options)
    : gradients_(gradients), options_(std::move(options)) {
  thread_state_.set_grad_mode(false);
}

LocalPass::~LocalPass() = default;

void LocalPass::check_walkable() const {
  if (is_settled_) throw_invalid(kExtended);
}

LocalPass::State& LocalPass::visit(const std::shared_ptr<Node>& function) {
  State& state = states_[function.get()];
  if (std::exchange(state.is_walked, true)) return state;
  ++waiting_;
  walked_.push_back(&state);
  state.function = function.get();
  state.sequence = function->sequence_nr();
  if (!function->next_edges().empty()) {
    if (dynamic_cast<const SendFunction*>(function.get()) != nullptr) state.kind = Kind::send;
    to_walk_.push_back(&state);
  } else if (dynamic_cast<const AccumulateGrad*>(function.get()) != nullptr) {
    state.kind = Kind::leaf;
  } else if (auto recv = std::dynamic_pointer_cast<RecvFunction>(function)) {
    state.kind = Kind::recv;
    state.reached.resize(recv->num_inputs());
    reached_.push_back(std::move(recv));
  }
  return state;
}

std::vector<LocalPass::RecvPtr> LocalPass::walk() {
  while (!to_walk_.empty()) {
    const State* state = to_walk_.back();
    to_walk_.pop_back();
    for (const Edge& edge : state->function->next_edges()) {
      if (!edge.is_valid()) continue;
      State& next = visit(edge.function);
      if (next.has_run) throw_invalid(kExtended);
      ++next.gradients_to_come;
      if (state->is_foreseen) --next.gradients_unsure;
    }
  }
  return std::exchange(reached_, {});
}

void LocalPass::foresee(std::span<const SendPtr> sends) {
  std::vector<const Node*> to_foresee;
  const auto add = [&](const Node* function, State& state) {
    if (!state.is_walked && !std::exchange(state.is_foreseen, true)) to_foresee.push_back(function);
  };
  for (const SendPtr& send : sends) {
    add(send.get(), states_[send.get()]);
    sources_.push_back(send);
  }
  while (!to_foresee.empty()) {
    const Node* function = to_foresee.back();
    to_foresee.pop_back();
    for (const Edge& edge : function->next_edges()) {
      if (!edge.is_valid()) continue;
      State& next = states_[edge.function.get()];
      ++next.gradients_unsure;
      add(edge.function.get(), next);
    }
  }
}

std::vector<LocalPass::RecvPtr> LocalPass::add_roots(std::span<const Root> roots) {
  check_walkable();
  at::NoGradGuard no_grad;
  // All are checked before the first is added.
  std::vector<std::pair<Edge, at::Tensor>> checked;
  for (size_t i = 0; i < roots.size(); ++i) {
    Edge edge = edge_of_root(roots[i], i);
    at::Tensor gradient = gradient_of_root(roots[i], i, edge);
    checked.emplace_back(std::move(edge), std::move(gradient));
  }
  for (auto& [edge, gradient] : checked) {
    State& state = visit(edge.function);
    ++state.gradients_to_come;
    sources_.push_back(std::move(edge.function));
    entered_.push_back({&state, edge.input_nr, std::move(gradient)});
  }
  return walk();
}

std::vector<LocalPass::RecvPtr> LocalPass::add_sends(std::span<const SendPtr> sends) {
  check_walkable();
  for (const SendPtr& send : sends) {
    const auto found = states_.find(send.get());
    if (found != states_.end() && found->second.is_walked) continue;
    ++visit(send).gradients_to_come;
    sources_.push_back(send);
  }
  return walk();
}

void LocalPass::add_arrived(const SendPtr& send, MessageGradients arrived) {
  check_count(arrived.gradients, send->next_edges());
  HOLDFAST_CHECK(arrived.reached.size() == arrived.gradients.size());
  auto found = states_.find(send.get());
  if (found == states_.end() || !found->second.is_walked)
    throw_invalid("gradients arrived for a send that takes no part in this backward pass");
  State& state = found->second;
  if (std::exchange(state.has_arrived, true)) throw_invalid("gradients arrived twice for the same send");
  state.inputs = std::move(arrived.gradients);
  state.reached = std::move(arrived.reached);
  entered_.push_back({&state, 0, {}});
}

void LocalPass::run(const Deliver& deliver, bool settled) {
  HOLDFAST_CHECK(!has_failed_);
  check_outside_of_engine();
  if (settled && !std::exchange(is_settled_, true)) {
    for (State* state : std::exchange(held_, {})) {
      if (state->gradients_to_come == 0 && !state->has_run) ready_.push(state);
    }
  }
  at::ThreadLocalStateGuard thread_state(thread_state_);
  has_failed_ = true;  // until the end is reached
  take_entered();
  while (!ready_.empty() && !(options_.ended && options_.ended->load(std::memory_order_relaxed))) {
    run_next(deliver);
    take_entered();
  }
  has_failed_ = false;
}

void LocalPass::take_entered() {
  for (Entered& entered : std::exchange(entered_, {})) {
    State& state = *entered.state;
    current_entry_ = state.kind == Kind::send ? ++entries_ : 0;  // roots enter together
    const bool is_reached = state.kind != Kind::send || std::ranges::find(state.reached, true) != state.reached.end();
    receive(state, entered.input, std::move(entered.gradient), is_reached);
  }
}

void LocalPass::receive(State& state, uint32_t input, at::Tensor gradient, bool is_reached) {
  if (state.inputs.empty()) state.inputs.resize(state.function->num_inputs());
  if (state.gradients_to_come == 0) throw_invalid("the graph was changed during the backward pass");
  state.entry = std::min(state.entry, current_entry_);
  if (is_reached) {
    state.is_reached = true;
    if (state.kind == Kind::recv) state.reached.at(input) = true;
    add_to(state.inputs.at(input), std::move(gradient));
  }
  if (--state.gradients_to_come > 0) return;
  if (is_settled_ || state.gradients_unsure == 0) {
    ready_.push(&state);
  } else if (!std::exchange(state.is_held, true)) {
    held_.push_back(&state);
  }
}

bool LocalPass::holds() const {
  return std::ranges::any_of(held_,
                             [](const State* state) { return state->gradients_to_come == 0 && !state->has_run; });
}

void LocalPass::run_next(const Deliver& deliver) {
  State& state = *ready_.top();
  ready_.pop();
  state.has_run = true;
  --waiting_;
  current_entry_ = state.entry;
  variable_list inputs = std::exchange(state.inputs, {});
  try {
    switch (state.kind) {
      case Kind::leaf: return state.is_reached ? run_leaf(state, std::move(inputs)) : void();
      case Kind::interior:
      case Kind::send: return state.is_reached ? run_interior(state, std::move(inputs)) : pass_over(state);
      case Kind::recv:
        if (state.is_reached) inputs = pass_recv(state, std::move(inputs));
    }
  } catch (...) {
    rethrow_with_name(*state.function);
  }
  deliver(std::static_pointer_cast<RecvFunction>(state.function->shared_from_this()),
          {.gradients = std::move(inputs), .reached = std::move(state.reached)});
}

// What comes after it waits for the gradients that it does not give.
void LocalPass::pass_over(const State& state) {
  for (const Edge& edge : state.function->next_edges()) receive_at(edge, {}, false);
}

void LocalPass::run_leaf(State& state, variable_list inputs) {
  auto& leaf = static_cast<AccumulateGrad&>(*state.function);
  inputs = call_pre_hooks(leaf, &leaf, std::move(inputs));
  if (inputs.at(0).defined() && leaf.variable.requires_grad()) {
    if (!leaf.variable.is_leaf()) throw_invalid("a leaf was changed in place after it was used, and is no leaf now");
    gradients_.accumulate(leaf.variable, inputs[0]);
    call_accumulated_hooks(leaf);
  }
  for (const auto& hook : leaf.post_hooks()) (*hook)({}, inputs);
}

variable_list LocalPass::pass_recv(State& state, variable_list inputs) {
  Node& recv = *state.function;
  // As functions that are run do by themselves: a profile shows it.
  at::RecordFunction record(at::RecordScope::BACKWARD_FUNCTION);
  if (record.isActive()) record.before(recv.name());
  inputs = call_pre_hooks(recv, nullptr, std::move(inputs));
  for (const auto& hook : recv.post_hooks()) (*hook)({}, inputs);
  return inputs;
}

void LocalPass::run_interior(State& state, variable_list inputs) {
  Node& function = *state.function;
  inputs = call_pre_hooks(function, nullptr, std::move(inputs));
  if (!options_.retain_graph) function.will_release_variables();
  const bool has_post_hooks = !function.post_hooks().empty();
  variable_list outputs = has_post_hooks ? function(variable_list(inputs)) : function(std::move(inputs));
  const edge_list& edges = function.next_edges();
  fit_all(outputs, edges);
  if (has_post_hooks) {
    for (const auto& hook : function.post_hooks()) outputs = (*hook)(outputs, inputs);
    check_count(outputs, edges);
  }
  if (!options_.retain_graph) function.release_variables();
  keep_shared(outputs, edges);
  for (size_t i = 0; i < edges.size(); ++i) {
    receive_at(edges[i], std::move(outputs[i]), state.kind != Kind::send || state.reached[i]);
  }
}

// What a function gives to several leaves becomes no leaf's own, not that of the last one either.
void LocalPass::keep_shared(const variable_list& outputs, const edge_list& edges) {
  const auto is_for_leaf = [&](size_t i) {
    const auto next = states_.find(edges[i].function.get());
    return next != states_.end() && next->second.kind == Kind::leaf;
  };
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    if (!outputs[i].defined() || outputs[i].use_count() == 1 || !is_for_leaf(i)) continue;
    for (size_t j = i + 1; j < edges.size(); ++j) {
      if (outputs[j].is_same(outputs[i]) && is_for_leaf(j)) shared_.push_back(outputs[i]);
    }
  }
}

void LocalPass::receive_at(const Edge& edge, at::Tensor gradient, bool is_reached) {
  if (!edge.is_valid()) return;
  auto next = states_.find(edge.function.get());
  if (next == states_.end()) throw_invalid("the graph was changed during the backward pass");
  receive(next->second, edge.input_nr, std::move(gradient), is_reached);
}

std::string LocalPass::waiting_names() const {
  while (first_waiting_ < walked_.size() && walked_[first_waiting_]->has_run) ++first_waiting_;
  std::string text;
  size_t names = 0;
  const size_t end = std::min(walked_.size(), first_waiting_ + kNamesScanMax);
  for (size_t i = first_waiting_; i < end && names < kNamesMax; ++i) {
    if (walked_[i]->has_run) continue;
    text += (names++ == 0 ? "" : ", ") + walked_[i]->function->name();
  }
  if (waiting_ > names) text += ", ...";
  return text;
}

}  // namespace holdfast::autograd
