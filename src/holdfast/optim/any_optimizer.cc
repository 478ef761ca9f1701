#include <holdfast/optim/any_optimizer.h>

#include <exception>
#include <set>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/optim/optimizer.h>

#include <holdfast/base/ambient.h>
#include <holdfast/base/when.h>
#include <holdfast/optim/step_lock.h>

namespace holdfast::optim {

namespace {

using Outcome = std::optional<Failure>;

// One exception for all that went wrong, if anything did.
void throw_gathered(const std::string& what, const std::vector<std::string>& owners,
                    const std::vector<Outcome>& outcomes) {
  Failure gathered;
  size_t failed = 0;
  std::string list;
  bool maybe_executed = false;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i]) continue;
    if (failed++ == 0) gathered = *outcomes[i];
    maybe_executed |= outcomes[i]->maybe_executed;
    list += fmt::format("\n  {}: {}", owners[i], outcomes[i]->message);
  }
  if (failed == 0) return;
  gathered.message = fmt::format("{} failed on {} of {} owners:{}", what, failed, outcomes.size(), list);
  gathered.maybe_executed = maybe_executed;
  throw_failure(std::move(gathered));
}

template <class T>
Outcome outcome_of(const Future<T>& done) {
  done.wait();
  return done.failed() ? Outcome(done.failure()) : std::nullopt;
}

template <class T>
void wait_for_all(const std::string& what, const std::vector<std::string>& owners,
                  const std::vector<Future<T>>& futures) {
  std::vector<Outcome> outcomes;
  for (const Future<T>& future : futures) outcomes.push_back(outcome_of(future));
  throw_gathered(what, owners, outcomes);
}

double lr_in(const Values& options) {
  const auto found = options.find("lr");
  if (found == options.end() || !std::holds_alternative<double>(found->second)) throw_invalid("the options have no lr");
  return std::get<double>(found->second);
}

void set_lr_in(Values& options, double lr) {
  lr_in(options);
  options["lr"] = lr;
}

}  // namespace

AnyOptimizer::AnyOptimizer(Worker& worker, const Kind& kind, std::vector<Group> groups)
    : worker_(&worker), kind_(&kind) {
  check(kind, groups);
  std::vector<std::vector<LocalGroup>> local;  // by owner
  for (size_t i = 0; i < groups.size(); ++i) {
    check_options(i, groups[i].options);
    GroupInfo& group = groups_.emplace_back();
    group.options = std::move(groups[i].options);
    for (const RRef<at::Tensor>& parameter : groups[i].parameters) group.places.push_back(add(parameter, i, local));
  }
  if (kind.needs_closure && owners_.size() > 1) {
    throw_invalid(fmt::format(
        "{} treats all its parameters as one vector, so they must be on one worker; these are on {} (an optimizer for "
        "each of them would be another algorithm)",
        kind.name, owners_.size()));
  }
  std::vector<Future<void>> made;
  for (size_t i = 0; i < owners_.size(); ++i) {
    // By way of a parameter, and not of Worker::peer: that says WorkerLost if that life of the owner is over.
    const RRef<at::Tensor>& beside = local[i].front().parameters.front().tensor;
    owners_[i].local = beside.remote<make_local_optimizer>(kind.name, local[i]);
    made.push_back(owners_[i].local.async<&LocalOptimizer::made>());
  }
  wait_for_all("making the optimizer", owners(), made);
}

void AnyOptimizer::check(const Kind& kind, const std::vector<Group>& groups) {
  if (groups.empty()) throw_invalid("an optimizer without parameters");
  if (kind.needs_closure && groups.size() > 1) throw_invalid(kind.name + " has no groups of parameters");
  std::set<RRefId> seen;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].parameters.empty()) throw_invalid(fmt::format("group {} has no parameters", i));
    for (size_t j = 0; j < groups[i].parameters.size(); ++j) {
      const RRef<at::Tensor>& parameter = groups[i].parameters[j];
      if (!parameter) throw_invalid(fmt::format("parameter {} of group {} is an empty RRef", j, i));
      if (!seen.insert(parameter.id()).second) {
        throw_invalid(fmt::format("parameter {} of group {} is there twice", j, i));
      }
    }
  }
}

AnyOptimizer::Place AnyOptimizer::add(const RRef<at::Tensor>& parameter, size_t group,
                                      std::vector<std::vector<LocalGroup>>& local) {
  size_t owner = 0;
  while (owner < owners_.size() && owners_[owner].info.id() != parameter.owner().id()) ++owner;
  if (owner == owners_.size()) {
    owners_.push_back({.info = parameter.owner(), .local = {}, .groups = {}});
    local.emplace_back();
  }
  std::vector<size_t>& numbers = owners_[owner].groups;
  if (numbers.empty() || numbers.back() != group) {
    numbers.push_back(group);
    local[owner].push_back({.number = group, .parameters = {}, .options = groups_[group].options});
  }
  std::vector<LocalParameter>& parameters = local[owner].back().parameters;
  parameters.push_back({.tensor = parameter, .number = groups_[group].places.size()});
  return {.owner = owner, .group = numbers.size() - 1, .parameter = parameters.size() - 1};
}

// ---- steps

void AnyOptimizer::check_step(const autograd::ContextRef& context) const {
  if (kind_->needs_closure) throw_invalid(kind_->name + " evaluates the loss itself: use step(closure)");
  autograd::find_context(*worker_, context.id());  // throws if it has ended
}

Future<void> AnyOptimizer::start_step(const Owner& owner, const autograd::ContextRef& context) const {
  return owner.local.async<&LocalOptimizer::step>(context.id(), options_of(owner));
}

std::optional<Failure> AnyOptimizer::step_here(const Owner& owner, const autograd::ContextRef& context) const {
  Ambient ambient = captured_ambient();
  ambient.worker = worker_;
  const AmbientScope scope(std::move(ambient));
  try {
    owner.local.local_value().step(context.id(), options_of(owner));
    return std::nullopt;
  } catch (...) {
    Failure failure = describe_current_exception();
    if (failure.worker.empty()) failure.worker = owner.info.name;
    return failure;
  }
}

// What is owned here steps on this thread, while the others do: nobody has to be woken for it.
void AnyOptimizer::step(const autograd::ContextRef& context) {
  check_step(context);
  std::vector<std::optional<Future<void>>> elsewhere(owners_.size());
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (!owners_[i].local.is_owner()) elsewhere[i] = start_step(owners_[i], context);
  }
  std::vector<Outcome> outcomes(owners_.size());
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (!elsewhere[i]) outcomes[i] = step_here(owners_[i], context);
  }
  for (size_t i = 0; i < owners_.size(); ++i) {
    if (elsewhere[i]) outcomes[i] = outcome_of(*elsewhere[i]);
  }
  throw_gathered("step", owners(), outcomes);
}

Future<void> AnyOptimizer::async_step(const autograd::ContextRef& context) {
  check_step(context);
  std::vector<Future<Outcome>> outcomes;
  for (const Owner& owner : owners_) {
    outcomes.push_back(start_step(owner, context).then([](const Future<void>& done) { return outcome_of(done); }));
  }
  return when_all(outcomes).then(
      [owners = owners()](const std::vector<Outcome>& all) { throw_gathered("step", owners, all); });
}

at::Tensor AnyOptimizer::step(const Closure& closure) {
  if (kind_->needs_closure) return step_on_owner(closure);
  autograd::Context context(*worker_);
  const at::Tensor loss = closure(context);
  step(context);
  return loss.defined() ? loss.detach() : loss;
}

at::Tensor AnyOptimizer::step_on_owner(const Closure& closure) {
  const Owner& owner = owners_.front();
  Evaluations evaluations;
  const RRef<Evaluations> reference = worker_->own(evaluations);
  const Future<void> done = owner.local.async<&LocalOptimizer::step_with_closure>(reference, options_of(owner));
  const Future<void> closed = done.then([evaluations](const Future<void>&) mutable { evaluations.close(); });

  at::Tensor first_loss;
  std::exception_ptr problem;
  while (evaluations.next()) {
    try {
      autograd::Context context(*worker_);
      const at::Tensor loss = closure(context);
      if (!loss.defined() || loss.numel() != 1) throw_invalid("the closure must return the loss, one element");
      if (!first_loss.defined()) first_loss = loss.detach();
      owner.local.call<&LocalOptimizer::take_gradients>(context.id());
      evaluations.answer(loss.item<double>());
    } catch (...) {
      if (!problem) problem = std::current_exception();
      evaluations.answer(describe_current_exception());
    }
  }
  const Outcome outcome = outcome_of(done);
  if (problem) std::rethrow_exception(problem);  // as it was thrown here, not as the owner saw it
  throw_gathered("step", owners(), {outcome});
  return first_loss;
}

// ---- options

std::vector<std::string> AnyOptimizer::owners() const {
  std::vector<std::string> names;
  for (const Owner& owner : owners_) names.push_back(owner.info.name);
  return names;
}

std::vector<Values> AnyOptimizer::options_of(const Owner& owner) const {
  std::vector<Values> all;
  for (size_t group : owner.groups) all.push_back(options(group, owner.info.name));
  return all;
}

const AnyOptimizer::GroupInfo& AnyOptimizer::group_at(size_t group) const {
  if (group >= groups_.size()) throw_invalid(fmt::format("no group {}: there are {}", group, groups_.size()));
  return groups_[group];
}

void AnyOptimizer::check_owner(const std::string& name) const {
  for (const Owner& owner : owners_) {
    if (owner.info.name == name) return;
  }
  throw_invalid(fmt::format("{} owns no parameters of this optimizer", name));
}

void AnyOptimizer::check_options(size_t group, const Values& options) const {
  const auto refuse = [&](const char* why) { throw_invalid(fmt::format("the options of group {}: {}", group, why)); };
  try {
    kind_->make({}, options);  // its constructor knows what makes sense
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const InvalidArgument& error) {
    refuse(error.what());
  }
}

const Values& AnyOptimizer::options(size_t group) const { return group_at(group).options; }

const Values& AnyOptimizer::options(size_t group, const std::string& owner) const {
  check_owner(owner);
  const GroupInfo& info = group_at(group);
  const auto found = info.owner_options.find(owner);
  return found != info.owner_options.end() ? found->second : info.options;
}

void AnyOptimizer::set_options(size_t group, Values options) {
  group_at(group);
  check_options(group, options);
  groups_[group].options = std::move(options);
  groups_[group].owner_options.clear();
}

void AnyOptimizer::set_options(size_t group, const std::string& owner, Values options) {
  group_at(group);
  check_owner(owner);
  check_options(group, options);
  groups_[group].owner_options[owner] = std::move(options);
}

double AnyOptimizer::lr(size_t group) const { return lr_in(options(group)); }
double AnyOptimizer::lr(size_t group, const std::string& owner) const { return lr_in(options(group, owner)); }

void AnyOptimizer::set_lr(double lr) {
  for (size_t i = 0; i < groups_.size(); ++i) set_lr(i, lr);
}

void AnyOptimizer::set_lr(size_t group, double lr) {
  group_at(group);
  Values changed = options(group);
  set_lr_in(changed, lr);
  check_options(group, changed);
  groups_[group].options = std::move(changed);
  for (auto& [owner, own] : groups_[group].owner_options) set_lr_in(own, lr);
}

void AnyOptimizer::set_lr(size_t group, const std::string& owner, double lr) {
  Values changed = options(group, owner);
  set_lr_in(changed, lr);
  set_options(group, owner, std::move(changed));
}

void AnyOptimizer::set_timeout(Duration timeout) {
  for (Owner& owner : owners_) owner.local = owner.local.with_timeout(timeout);
}

// ---- save and load

State AnyOptimizer::save() const {
  std::vector<Future<Values>> asked;
  std::vector<std::string> names;
  for (const GroupInfo& group : groups_) {
    for (const Place& place : group.places) {
      names.push_back(owners_[place.owner].info.name);
      asked.push_back(owners_[place.owner].local.async<&LocalOptimizer::save>(place.group, place.parameter));
    }
  }
  wait_for_all("saving", names, asked);
  State state{.kind = kind_->name, .groups = {}};
  auto next = asked.begin();
  for (const GroupInfo& group : groups_) {
    GroupState& saved = state.groups.emplace_back();
    saved.options = group.options;
    saved.owner_options = group.owner_options;
    for (size_t i = 0; i < group.places.size(); ++i) saved.parameters.push_back((next++)->take());
  }
  return state;
}

void AnyOptimizer::load(const State& state) {
  if (state.kind != kind_->name) {
    throw_invalid(fmt::format("the state is that of {}, the optimizer is {}", state.kind, kind_->name));
  }
  if (state.groups.size() != groups_.size()) {
    throw_invalid(
        fmt::format("the state has {} groups of parameters, the optimizer {}", state.groups.size(), groups_.size()));
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    const GroupState& group = state.groups[i];
    if (group.parameters.size() != groups_[i].places.size()) {
      throw_invalid(fmt::format("the state has {} parameters in group {}, the optimizer {}", group.parameters.size(), i,
                                groups_[i].places.size()));
    }
    check_options(i, group.options);
    for (const auto& [owner, options] : group.owner_options) {
      check_owner(owner);
      check_options(i, options);
    }
  }
  for (size_t i = 0; i < groups_.size(); ++i) {
    groups_[i].options = state.groups[i].options;
    groups_[i].owner_options = state.groups[i].owner_options;
  }
  std::vector<Future<void>> resets;
  for (const Owner& owner : owners_) {
    resets.push_back(owner.local.async<&LocalOptimizer::reset>(options_of(owner)));
  }
  wait_for_all("loading", owners(), resets);
  std::vector<Future<void>> loads;
  std::vector<std::string> names;
  for (size_t i = 0; i < groups_.size(); ++i) {
    for (size_t j = 0; j < groups_[i].places.size(); ++j) {
      const Values& values = state.groups[i].parameters[j];
      if (values.empty()) continue;
      const Place& place = groups_[i].places[j];
      names.push_back(owners_[place.owner].info.name);
      loads.push_back(owners_[place.owner].local.async<&LocalOptimizer::load>(place.group, place.parameter, values));
    }
  }
  wait_for_all("loading", names, loads);
}

bool install() {
  RegisteredProtocol<StepTurns>::index();
  return true;
}

}  // namespace holdfast::optim
