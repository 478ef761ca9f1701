#include <holdfast/optim/local_optimizer.h>

#include <optional>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <holdfast/autograd/context_state.h>
#include <holdfast/optim/step_lock.h>
#include <holdfast/optim/torch_compat.h>
#include <holdfast/rpc/worker.h>

namespace holdfast::optim {

namespace {

// libtorch's exceptions carry a stack that nobody wants to read in an error from another worker.
template <class F>
auto without_stack(F&& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    throw_failure({.code = Code::remote_error, .message = error.what_without_backtrace(), .type = "c10::Error"});
  }
}

// None: the context has never come here, so there are no gradients of it. Throws if it has ended.
std::optional<autograd::ContextRef> context_here(const ContextId& id) {
  Host& host = current_worker().host();
  std::shared_ptr<ContextData> data;
  bool ended = false;
  Contexts& contexts = Backwards::of(host).contexts();
  host.step([&](Step&) {
    if (const Context* context = contexts.find(id)) {
      data = context->data;
    } else {
      ended = contexts.has_ended(id, host.self()->id());
    }
  });
  if (ended) throw_invalid(fmt::format("context {} has ended: there are no gradients to step with", text_of(id)));
  if (!data) return std::nullopt;
  return autograd::ContextRef(std::static_pointer_cast<autograd::ContextState>(std::move(data)));
}

void stop_if_cancelled() {
  if (cancelled()) throw_failure({.code = Code::cancelled, .message = "the caller has given up"});
}

}  // namespace

// The gradients are there for the time of a step.
class LocalOptimizer::Gradients {
 public:
  explicit Gradients(LocalOptimizer& optimizer) : optimizer_(optimizer) {}
  ~Gradients() { optimizer_.clear_gradients(); }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

 private:
  LocalOptimizer& optimizer_;
};

LocalOptimizer::Parameter LocalOptimizer::take(const LocalParameter& parameter, uint64_t group) {
  const std::string name = fmt::format("parameter {} of group {}", parameter.number, group);
  const at::Tensor tensor = parameter.tensor.local_value();
  if (!tensor.defined()) throw_invalid(name + " is an undefined tensor");
  if (!tensor.is_leaf()) throw_invalid(name + " is not a leaf: it was computed from other tensors");
  if (!tensor.requires_grad()) throw_invalid(name + " does not require grad");
  at::Tensor twin = tensor.variable_data();
  twin.set_requires_grad(true);
  return {.reference = parameter.tensor, .tensor = tensor, .twin = std::move(twin), .name = name};
}

LocalOptimizer::LocalOptimizer(const std::string& kind, std::vector<LocalGroup> groups) : kind_(find_kind(kind)) {
  std::set<const void*> seen;
  for (const LocalGroup& from : groups) {
    Group& group = groups_.emplace_back();
    for (const LocalParameter& parameter : from.parameters) {
      group.parameters.push_back(take(parameter, from.number));
      const Parameter& added = group.parameters.back();
      if (!seen.insert(added.tensor.unsafeGetTensorImpl()).second) {
        throw_invalid(added.name + " is there twice: another reference is to the same tensor");
      }
    }
    group.optimizer = make_optimizer(group, from.options);
  }
}

LocalOptimizer::~LocalOptimizer() = default;

std::unique_ptr<torch::optim::Optimizer> LocalOptimizer::make_optimizer(const Group& group,
                                                                        const Values& options) const {
  std::vector<at::Tensor> twins;
  for (const Parameter& parameter : group.parameters) twins.push_back(parameter.twin);
  return without_stack([&] { return kind_.make(std::move(twins), options); });
}

void LocalOptimizer::step(const ContextId& context, const std::vector<Values>& options) {
  if (kind_.needs_closure) throw_invalid(kind_.name + " needs a closure: step(closure)");
  const std::optional<autograd::ContextRef> here = context_here(context);
  if (!here) return;
  StepLock lock(current_worker());
  stop_if_cancelled();  // it may have waited for long
  set_options(options);
  const at::NoGradGuard no_grad;
  const Gradients gradients(*this);
  without_stack([&] {
    set_gradients(*here);
    for (Group& group : groups_) group.optimizer->step();
  });
}

void LocalOptimizer::step_with_closure(const RRef<Evaluations>& evaluations, const std::vector<Values>& options) {
  StepLock lock(current_worker());
  stop_if_cancelled();
  refuse_in_closure();
  set_options(options);
  const auto evaluate = [&] {
    struct OutsideLock {
      explicit OutsideLock(LocalOptimizer& optimizer, StepLock& lock) : optimizer(optimizer), lock(lock) {
        optimizer.in_closure_ = true;
        lock.unlock();
      }
      ~OutsideLock() {
        lock.lock();
        optimizer.in_closure_ = false;
      }
      LocalOptimizer& optimizer;
      StepLock& lock;
    } outside(*this, lock);
    return at::scalar_tensor(evaluations.call<&Evaluations::evaluate>(), at::kDouble);
  };
  const Gradients gradients(*this);
  without_stack([&] {
    for (Group& group : groups_) group.optimizer->step(evaluate);
  });
}

void LocalOptimizer::take_gradients(const ContextId& context) {
  StepLock lock(current_worker());
  if (!in_closure_) throw_invalid("no step with a closure is under way");
  clear_gradients();
  if (const auto here = context_here(context)) without_stack([&] { set_gradients(*here); });
}

Values LocalOptimizer::save(uint64_t group, uint64_t parameter) {
  StepLock lock(current_worker());
  refuse_in_closure();
  const Parameter& saved = at(group, parameter);
  const torch::optim::Optimizer& optimizer = *groups_[group].optimizer;
  const auto found = optimizer.state().find(state_key(optimizer, saved.twin));
  if (found == optimizer.state().end() || !found->second) return {};
  return without_stack([&] { return kind_.write_state(*found->second); });
}

void LocalOptimizer::reset(const std::vector<Values>& options) {
  StepLock lock(current_worker());
  refuse_in_closure();
  check_count(options);
  std::vector<std::unique_ptr<torch::optim::Optimizer>> fresh;
  for (size_t i = 0; i < groups_.size(); ++i) fresh.push_back(make_optimizer(groups_[i], options[i]));
  for (size_t i = 0; i < groups_.size(); ++i) groups_[i].optimizer = std::move(fresh[i]);
}

void LocalOptimizer::load(uint64_t group, uint64_t parameter, const Values& state) {
  StepLock lock(current_worker());
  refuse_in_closure();
  const Parameter& loaded = at(group, parameter);
  torch::optim::Optimizer& optimizer = *groups_[group].optimizer;
  try {
    auto read = without_stack([&] { return kind_.read_state(state, loaded.tensor); });
    optimizer.state()[state_key(optimizer, loaded.twin)] = std::move(read);
  } catch (const InvalidArgument& error) {
    throw_invalid(fmt::format("the state of {} does not fit: {}", loaded.name, error.what()));
  }
}

void LocalOptimizer::set_options(const std::vector<Values>& options) {
  check_count(options);
  for (size_t i = 0; i < groups_.size(); ++i) {
    kind_.read_options(options[i], groups_[i].optimizer->param_groups().at(0).options());
  }
}

void LocalOptimizer::set_gradients(const autograd::ContextRef& context) {
  for (Group& group : groups_) {
    for (Parameter& parameter : group.parameters) {
      parameter.twin.set_data(parameter.tensor);  // the program may have given it other memory
      parameter.twin.mutable_grad() = context.gradient(parameter.tensor);
    }
  }
}

void LocalOptimizer::clear_gradients() {
  for (Group& group : groups_) {
    for (Parameter& parameter : group.parameters) parameter.twin.mutable_grad().reset();
  }
}

LocalOptimizer::Parameter& LocalOptimizer::at(uint64_t group, uint64_t parameter) {
  if (group >= groups_.size() || parameter >= groups_[group].parameters.size()) {
    throw_invalid(fmt::format("there is no parameter {} in group {} here", parameter, group));
  }
  return groups_[group].parameters[parameter];
}

void LocalOptimizer::refuse_in_closure() const {
  if (in_closure_) throw_invalid("a step of this optimizer is under way: its closure is being evaluated");
}

void LocalOptimizer::check_count(const std::vector<Values>& options) const {
  if (options.size() != groups_.size()) {
    throw_invalid(fmt::format("options for {} groups, but here are {}", options.size(), groups_.size()));
  }
}

LocalOptimizer make_local_optimizer(const at::Tensor&, const std::string& kind, std::vector<LocalGroup> groups) {
  return LocalOptimizer(kind, std::move(groups));
}

}  // namespace holdfast::optim
