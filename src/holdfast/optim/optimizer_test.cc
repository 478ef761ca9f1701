// What goes wrong, and several trainers at once. The arithmetic is checked in training_test.cc.
#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <optional>
#include <utility>

#include <torch/optim/adam.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/sgd.h>

#include <unistd.h>

#include <holdfast/optim/fields.h>
#include <holdfast/optim/optim_test_support.h>

namespace holdfast::optim::test {

// An optimizer of a program's own: plain descent, which counts how many steps run on a worker at the same time, and
// which fails on demand.
struct ProbeOptions : torch::optim::OptimizerCloneableOptions<ProbeOptions> {
  ProbeOptions(double lr = 0.1) : lr_(lr) {}
  TORCH_ARG(double, lr) = 0.1;
  TORCH_ARG(std::string, problem) = "";
};
struct ProbeState : torch::optim::OptimizerCloneableParamState<ProbeState> {
  TORCH_ARG(int64_t, step) = 0;
};

struct Overlaps {
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::atomic<int> steps{0};
};
std::array<Overlaps, 3> overlaps;  // by rank

class Probe : public torch::optim::Optimizer {
 public:
  explicit Probe(std::vector<torch::optim::OptimizerParamGroup> groups, ProbeOptions defaults = {})
      : Optimizer(std::move(groups), std::make_unique<ProbeOptions>(defaults)) {
    TORCH_CHECK(defaults.lr() >= 0, "a negative lr");
  }
  Tensor step(LossClosure = nullptr) override {
    const auto& options = static_cast<const ProbeOptions&>(param_groups_[0].options());
    TORCH_CHECK(options.problem().empty(), options.problem());
    Overlaps& here = overlaps.at(static_cast<size_t>(current_worker().rank()));
    const int inside = ++here.inside;
    int most = here.most;
    while (most < inside && !here.most.compare_exchange_weak(most, inside)) {
    }
    take_a_while();
    for (Tensor& parameter : param_groups_[0].params()) {
      if (parameter.grad().defined()) parameter.sub_(parameter.grad(), options.lr());
    }
    ++here.steps;
    --here.inside;
    return {};
  }
};

struct ProbeFields {
  using Optimizer = Probe;
  using Options = ProbeOptions;
  using State = ProbeState;
  static constexpr const char* kName = "Probe";
  static Options defaults() { return {}; }
  static void options(auto& field, auto& options) {
    field("lr", options.lr());
    field("problem", options.problem());
  }
  static void state(auto& field, auto& state) { field("step", state.step()); }
};

}  // namespace holdfast::optim::test

template <>
struct holdfast::optim::Traits<holdfast::optim::test::Probe>
    : holdfast::optim::FromFields<holdfast::optim::test::ProbeFields> {};

namespace holdfast::optim::test {
namespace {

using torch::optim::Adam;
using torch::optim::LBFGS;
using torch::optim::SGD;

Tensor sum_of(const Tensor& weight) { return weight.sum(); }
Tensor not_a_leaf(Tensor value) { return make_leaf(value) * 2; }
Tensor no_grad(Tensor value) { return value; }
// Another reference to the same tensor.
RRef<Tensor> again(const Tensor& tensor) { return current_worker().own(tensor); }

std::array<Parameters, 3> received;  // by rank
void receive(Parameters all) { received.at(static_cast<size_t>(current_worker().rank())) = std::move(all); }

class OptimizerTest : public testing::Test {
 protected:
  void TearDown() override { job_.shutdown(); }
  TestJob job_{3};
  Worker& trainer_ = job_[0];
  const Data data_;
  const std::vector<Tensor> start_ = start_values();
};

// Each trainer has optimizers of its own for the same parameters. The model is one layer, so that steps are most of
// what happens.
TEST_F(OptimizerTest, StepsOnOneWorkerHappenOneByOne) {
  for (Overlaps& of : overlaps) of.most = of.steps = 0;
  const Parameters shared = place(trainer_, start_, {0, 1, 2});
  std::vector<std::function<void()>> trainers;
  for (int i = 0; i < 3; ++i) {
    trainers.emplace_back([&] {
      DistributedOptimizer<Probe> optimizer(trainer_, shared, {0.001});
      autograd::Context context(trainer_);
      for (const RRef<Tensor>& weight : shared) context.backward({weight.call<sum_of>()});
      std::vector<Future<void>> steps;
      for (int k = 0; k < 10; ++k) steps.push_back(optimizer.async_step(context));
      for (const Future<void>& step : steps) step.get();
    });
  }
  run_together(trainers);
  for (const Overlaps& of : overlaps) {
    EXPECT_EQ(of.most, 1);
    EXPECT_EQ(of.steps, 30);
  }
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LT(largest_difference({start_[i] - 0.03}, {fetch({shared[i]})}), 1e-5);
  }
}

// A trainer on every worker, without any agreement between them: somebody steps while others are between their forward
// and their backward.
TEST_F(OptimizerTest, ManyTrainersShareParameters) {
  const Parameters first = place(trainer_, start_, {0, 1, 2});
  const double before = loss_of(leaves(start_), data_).item<double>();
  for (int rank = 0; rank < 3; ++rank) trainer_.peer(rank).call<receive>(first);
  std::vector<std::function<void()>> trainers;
  for (int rank = 0; rank < 3; ++rank) {
    trainers.emplace_back([&, rank] {
      const Parameters mine = std::exchange(received.at(static_cast<size_t>(rank)), {});
      DistributedOptimizer<Adam> optimizer(job_[rank], mine, {0.01});
      for (int i = 0; i < 15; ++i) train(job_[rank], optimizer, mine, data_);
    });
  }
  run_together(trainers);
  EXPECT_LT(loss_of(leaves(fetch(first)), data_).item<double>(), before);
}

TEST_F(OptimizerTest, FailuresOfAllOwnersAreInOneError) {
  const Parameters there = place(trainer_, start_, {0, 1, 2});
  DistributedOptimizer<Probe> optimizer(trainer_, there, {0.1});
  optimizer.set_options(0, "worker0", ProbeOptions().problem("out of luck"));
  optimizer.set_options(0, "worker2", ProbeOptions().problem("out of time"));
  autograd::Context context(trainer_);
  context.backward({loss_of(there, data_)});
  const auto check = [](const RemoteError& error) {
    EXPECT_CONTAINS(error.what(), "2 of 3 owners");
    EXPECT_CONTAINS(error.what(), "worker0: ");
    EXPECT_CONTAINS(error.what(), "out of luck");
    EXPECT_CONTAINS(error.what(), "worker2: ");
    EXPECT_CONTAINS(error.what(), "out of time");
    EXPECT_FALSE(contains(error.what(), "worker1"));
    EXPECT_FALSE(contains(error.what(), "frame #0"));  // libtorch's stack
    EXPECT_EQ(error.worker(), "worker0");
  };
  check(expect_throw<RemoteError>([&] { optimizer.step(context); }));
  check(expect_throw<RemoteError>([&] { optimizer.async_step(context).get(); }));
  const std::vector<Tensor> after = fetch(there);
  EXPECT_EQ(largest_difference({start_[0]}, {after[0]}), 0);
  EXPECT_GT(largest_difference({start_[1]}, {after[1]}), 0);
  EXPECT_EQ(largest_difference({start_[2]}, {after[2]}), 0);

  optimizer.set_options(0, {0.1});  // for all
  optimizer.step(context);
  EXPECT_GT(largest_difference({start_[0]}, {fetch({there[0]})}), 0);
}

TEST_F(OptimizerTest, AContextThatHasEnded) {
  const Parameters there = place(trainer_, start_, {0, 1, 2});
  DistributedOptimizer<SGD> optimizer(trainer_, there, {0.1});
  std::optional<autograd::ContextRef> ended;
  {
    autograd::Context context(trainer_);
    context.backward({loss_of(there, data_)});
    ended = context;
  }
  const auto error = expect_throw<InvalidArgument>([&] { optimizer.step(*ended); });
  EXPECT_CONTAINS(error.what(), "has ended");
  // An owner finds it by itself, too.
  const RRef<LocalOptimizer> local = there[1].remote<make_local_optimizer>(
      std::string("torch::optim::SGD"),
      std::vector<LocalGroup>{{.number = 0, .parameters = {{.tensor = there[1]}}, .options = {{"lr", 0.1}}}});
  EXPECT_TRUE(eventually([&] { return autograd::debug_info(job_[1]).contexts == 0; }));
  const auto remote = expect_throw<RemoteError>([&] {
    local.call<&LocalOptimizer::step>(ended->id(), std::vector<Values>{{{"lr", 0.1}}});
  });
  EXPECT_CONTAINS(remote.what(), "has ended");
  EXPECT_EQ(largest_difference(start_, fetch(there)), 0);
}

TEST_F(OptimizerTest, WhatCannotBeMade) {
  const Parameters good = place(trainer_, start_, {0, 1, 2});
  Peer peer = trainer_.peer(1);
  const auto fails = [&](const std::string& text, const Parameters& parameters,
                         torch::optim::SGDOptions options = {0.1}) {
    SCOPED_TRACE(text);
    try {
      DistributedOptimizer<SGD> optimizer(trainer_, parameters, options);
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_CONTAINS(error.what(), text);
    }
  };
  fails("group 0 has no parameters", {});
  fails("parameter 1 of group 0 is an empty RRef", {good[0], {}});
  fails("parameter 2 of group 0 is there twice", {good[0], good[1], good[0]});
  fails("parameter 2 of group 0 is there twice", {good[0], good[1], good[1].call<again>()});
  fails("parameter 1 of group 0 is not a leaf", {good[0], peer.remote<not_a_leaf>(start_[0])});
  fails("parameter 0 of group 0 does not require grad", {peer.remote<no_grad>(start_[0])});
  fails("parameter 0 of group 0 is an undefined tensor", {peer.remote<no_grad>(Tensor())});
  fails("Invalid learning rate", good, {-1.0});
  fails("Nesterov momentum requires", good, torch::optim::SGDOptions(0.1).nesterov(true));
  // Both are named.
  const Parameters two = {peer.remote<no_grad>(start_[0]), good[0], trainer_.peer(2).remote<not_a_leaf>(start_[0])};
  fails("worker1: ", two);
  fails("worker2: ", two);

  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { DistributedOptimizer<LBFGS>(trainer_, good, {1.0}); }).what(),
                  "must be on one worker");
  DistributedOptimizer<LBFGS> lbfgs(trainer_, {good[0]}, {1.0});
  autograd::Context context(trainer_);
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { lbfgs.step(context); }).what(), "step(closure)");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([] { find_kind("torch::optim::Sgd"); }).what(), "torch::optim::SGD");

  DistributedOptimizer<SGD> sgd(trainer_, good, {0.1});
  const auto invalid = [](auto&& run) { return std::string(expect_throw<InvalidArgument>(run).what()); };
  EXPECT_CONTAINS(invalid([&] { sgd.set_options(0, {-1.0}); }), "Invalid learning rate");
  EXPECT_CONTAINS(invalid([&] { sgd.set_options(1, {0.1}); }), "no group 1");
  EXPECT_CONTAINS(invalid([&] { sgd.set_lr(0, "worker7", 0.1); }), "worker7 owns no parameters");
  EXPECT_CONTAINS(invalid([&] {
                    static_cast<AnyOptimizer&>(sgd).set_options(0, {{"lr", 0.1}, {"speed", 1.0}});
                  }),
                  "has no speed; it has dampening, lr, momentum");
  EXPECT_CONTAINS(invalid([&] {
                    static_cast<AnyOptimizer&>(sgd).set_options(0, {{"lr", std::string("high")}});
                  }),
                  "lr of torch::optim::SGD: it has another type");
  EXPECT_EQ(sgd.lr(), 0.1);
}

TEST_F(OptimizerTest, AStateThatDoesNotFit) {
  const Parameters there = place(trainer_, start_, {0, 1, 2});
  DistributedOptimizer<Adam> adam(trainer_, there, {0.1});
  train(trainer_, adam, there, data_);
  const State state = adam.save();
  EXPECT_EQ(std::get<int64_t>(state.groups.at(0).parameters.at(2).at("step")), 1);
  const auto fails = [&](const std::string& text, AnyOptimizer& optimizer, const State& loaded) {
    SCOPED_TRACE(text);
    try {
      optimizer.load(loaded);
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_CONTAINS(error.what(), text);
    }
  };
  DistributedOptimizer<SGD> sgd(trainer_, there, {0.1});
  fails("the state is that of torch::optim::Adam, the optimizer is torch::optim::SGD", sgd, state);
  State fewer = state;
  fewer.groups[0].parameters.pop_back();
  fails("the state has 2 parameters in group 0, the optimizer 3", adam, fewer);
  fewer.groups.clear();
  fails("the state has 0 groups of parameters, the optimizer 1", adam, fewer);
  State other = state;
  std::swap(other.groups[0].parameters[0], other.groups[0].parameters[1]);
  fails("exp_avg of torch::optim::Adam: its shape is [6, 5], the parameter's [4, 6]", adam, other);
  fails("2 of 3 owners", adam, other);  // the third fits
  State owners = state;
  owners.groups[0].owner_options["worker7"] = state.groups[0].options;
  fails("worker7 owns no parameters", adam, owners);
  State extra = state;
  extra.groups[0].parameters[0]["speed"] = 1.0;
  fails("the state of parameter 0 of group 0 does not fit: torch::optim::Adam has no speed", adam, extra);
  adam.load(state);
  train(trainer_, adam, there, data_);
  EXPECT_EQ(std::get<int64_t>(adam.save().groups[0].parameters[0].at("step")), 2);

  const std::string path = testing::TempDir() + "holdfast_not_a_state_" + std::to_string(::getpid());
  EXPECT_CONTAINS(expect_throw<Unavailable>([&] { adam.load(path); }).what(), "No such file");
  std::ofstream(path) << "something else";
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { adam.load(path); }).what(), "is not the state of an optimizer");
  std::remove(path.c_str());
  EXPECT_THROW(adam.save("/nowhere/state"), Unavailable);
}

TEST_F(OptimizerTest, AnOwnerThatIsLost) {
  const Parameters there = place(trainer_, start_, {0, 1, 2});
  DistributedOptimizer<SGD> optimizer(trainer_, there, {0.1});
  autograd::Context context(trainer_);
  context.backward({loss_of(there, data_)});
  job_.destroy(2);
  const auto error = expect_throw<WorkerLost>([&] { optimizer.step(context); });
  EXPECT_EQ(error.worker(), "worker2");
  EXPECT_CONTAINS(error.what(), "1 of 3 owners");
  EXPECT_GT(largest_difference({start_[0], start_[1]}, fetch({there[0], there[1]})), 0);
  const auto made = expect_throw<WorkerLost>([&] { DistributedOptimizer<SGD>(trainer_, there, {0.1}); });
  EXPECT_EQ(made.worker(), "worker2");
}

TEST(LrScheduleTest, Factors) {
  EXPECT_EQ(step_decay(3, 0.5)(2), 1);
  EXPECT_EQ(step_decay(3, 0.5)(6), 0.25);
  EXPECT_EQ(exponential_decay(0.5)(3), 0.125);
  EXPECT_EQ(cosine_decay(10)(0), 1);
  EXPECT_NEAR(cosine_decay(10, 0.5)(5), 0.75, 1e-12);
  EXPECT_EQ(cosine_decay(10, 0.5)(30), 0.5);
  EXPECT_EQ(warm_up(4)(0), 0.25);
  EXPECT_EQ(warm_up(4)(3), 1);
  EXPECT_EQ(warm_up(4, exponential_decay(0.5))(5), 0.5);
  EXPECT_THROW(step_decay(0, 0.5), InvalidArgument);
}

}  // namespace
}  // namespace holdfast::optim::test
