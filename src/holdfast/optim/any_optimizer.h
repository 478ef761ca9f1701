// AnyOptimizer: a distributed optimizer whose kind is known only by name; DistributedOptimizer<Opt> is it with types.
// It lives with the trainer: it knows which owner has which parameter, and the options. Each owner has a
// LocalOptimizer.
//
// Options are kept here and go with each step: to change them costs nothing, and a step runs with the options that were
// set when it was started. One thread at a time may use an object; steps that it has started may overlap.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/autograd/context.h>
#include <holdfast/base/future.h>
#include <holdfast/optim/closure.h>
#include <holdfast/optim/kind.h>
#include <holdfast/optim/local_optimizer.h>
#include <holdfast/optim/state.h>
#include <holdfast/rpc/worker.h>
#include <holdfast/rref/rref.h>

namespace holdfast::optim {

class AnyOptimizer {
 public:
  struct Group {
    std::vector<RRef<at::Tensor>> parameters;
    Values options;
  };
  // Waits until every owner has made its part. Throws InvalidArgument for what is wrong with the groups; for what goes
  // wrong on owners, see step().
  AnyOptimizer(Worker& worker, const Kind& kind, std::vector<Group> groups);

  // Changes each parameter that has a gradient in the context, on all owners at once, and waits. If owners fail, throws
  // one exception that lists each of them with its reason, and has the code of the first; the others have stepped.
  void step(const autograd::ContextRef& context);
  // Without waiting. The context must not end before it is done. cancel() on the future: owners that have not begun
  // will not.
  Future<void> async_step(const autograd::ContextRef& context);
  // Makes a context, runs the closure in it on this thread, and steps; returns the first loss. LBFGS works only so: it
  // evaluates the closure several times.
  at::Tensor step(const Closure& closure);

  const Kind& kind() const { return *kind_; }
  size_t group_count() const { return groups_.size(); }
  std::vector<std::string> owners() const;

  // Of a group: what was last set for all of it. Of an owner: its own, if it was given some.
  const Values& options(size_t group) const;
  const Values& options(size_t group, const std::string& owner) const;
  // For the whole group, also owners that had options of their own; and for one owner only. Throws InvalidArgument for
  // options that make no sense.
  void set_options(size_t group, Values options);
  void set_options(size_t group, const std::string& owner, Values options);

  double lr(size_t group = 0) const;
  double lr(size_t group, const std::string& owner) const;
  void set_lr(double lr);  // all groups, all owners
  void set_lr(size_t group, double lr);
  void set_lr(size_t group, const std::string& owner, double lr);

  // Of what is asked of an owner; a step with a closure is one such. Initially the worker's.
  void set_timeout(Duration timeout);

  // Everything but the parameters themselves. While no step is under way: owners are asked one parameter after another.
  State save() const;
  // Throws InvalidArgument, and changes nothing, if it is the state of another kind or of other numbers of parameters.
  // If it throws something else, load again before the next step.
  void load(const State& state);
  void save(const std::string& path) const { write_state(save(), path); }
  void load(const std::string& path) { load(read_state(path)); }

 private:
  struct Owner {
    WorkerInfo info;
    RRef<LocalOptimizer> local;
    std::vector<size_t> groups;  // the numbers of those that it has parameters of, in its order
  };
  // Where a parameter is: the owner, and the positions of group and parameter there.
  struct Place {
    size_t owner = 0;
    size_t group = 0;
    size_t parameter = 0;
  };
  struct GroupInfo {
    Values options;
    std::map<std::string, Values> owner_options;  // by name: those that have some of their own
    std::vector<Place> places;                    // of each parameter
  };

  static void check(const Kind& kind, const std::vector<Group>& groups);
  Place add(const RRef<at::Tensor>& parameter, size_t group, std::vector<std::vector<LocalGroup>>& local);
  void check_options(size_t group, const Values& options) const;
  const GroupInfo& group_at(size_t group) const;
  void check_owner(const std::string& owner) const;
  std::vector<Values> options_of(const Owner& owner) const;
  void check_step(const autograd::ContextRef& context) const;
  Future<void> start_step(const Owner& owner, const autograd::ContextRef& context) const;
  // On this thread. Returns what went wrong.
  std::optional<Failure> step_here(const Owner& owner, const autograd::ContextRef& context) const;
  at::Tensor step_on_owner(const Closure& closure);

  Worker* worker_;
  const Kind* kind_;
  std::vector<GroupInfo> groups_;
  std::vector<Owner> owners_;
};

// Makes every worker of a program that includes this able to own parameters.
bool install();
inline const bool kInstalled = install();

}  // namespace holdfast::optim
