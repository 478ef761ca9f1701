// Training over workers against the same training in one process: the parameters must come out the same.
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <unistd.h>

#include <holdfast/optim/optim_test_support.h>

namespace holdfast::optim::test {
namespace {

using torch::optim::LBFGS;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGD;

using Reference = std::unique_ptr<torch::optim::Optimizer>;

void train_here(torch::optim::Optimizer& optimizer, const std::vector<Tensor>& parameters, const Data& data) {
  optimizer.zero_grad();
  loss_of(parameters, data).backward();
  optimizer.step();
}

// One optimizer with some options, here and over workers.
struct Case {
  std::string name;
  int steps;
  std::function<Reference(const std::vector<Tensor>&)> here;
  std::function<std::unique_ptr<AnyOptimizer>(Worker&, const Parameters&)> distributed;
};

template <class Opt>
Case make_case(std::string name, int steps, typename Traits<Opt>::Options options) {
  return {.name = std::move(name),
          .steps = steps,
          .here = [=](const std::vector<Tensor>& parameters) { return std::make_unique<Opt>(parameters, options); },
          .distributed = [=](Worker& worker, const Parameters& parameters) -> std::unique_ptr<AnyOptimizer> {
            return std::make_unique<DistributedOptimizer<Opt>>(worker, parameters, options);
          }};
}

std::vector<Case> cases() {
  using namespace torch::optim;
  return {
      make_case<SGD>("SgdNesterov", 100, SGDOptions(0.1).momentum(0.9).nesterov(true).weight_decay(1e-3)),
      make_case<SGD>("SgdPlain", 5, {0.5}),
      make_case<Adam>("Adam", 100, AdamOptions(0.01)),
      make_case<Adam>("AdamAmsgrad", 10, AdamOptions(0.02).amsgrad(true).betas({0.8, 0.99})),
      make_case<AdamW>("AdamW", 10, AdamWOptions(0.02).weight_decay(0.1)),
      make_case<Adagrad>("Adagrad", 10, AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.2)),
      make_case<RMSprop>("RmspropCentered", 10, RMSpropOptions(0.01).centered(true).momentum(0.5)),
  };
}

class TrainingTest : public testing::Test {
 protected:
  void TearDown() override { job_.shutdown(); }
  TestJob job_{3};
  Worker& trainer_ = job_[0];
  const Data data_;
  const std::vector<Tensor> start_ = start_values();
};

TEST_F(TrainingTest, EqualsOneProcess) {
  for (const Case& of : cases()) {
    SCOPED_TRACE(of.name);
    const std::vector<Tensor> here = leaves(start_);
    const Reference reference = of.here(here);
    const Parameters there = place(trainer_, start_, {1, 2, 0});
    const auto optimizer = of.distributed(trainer_, there);
    for (int i = 0; i < of.steps; ++i) {
      train_here(*reference, here, data_);
      train(trainer_, *optimizer, there, data_);
    }
    EXPECT_LT(largest_difference(here, fetch(there)), 1e-5);
    EXPECT_GT(largest_difference(start_, fetch(there)), 1e-3);
    for (const RRef<Tensor>& parameter : there) EXPECT_FALSE(parameter.call<grad_is_defined>());
  }
}

// Five steps, then: five more; and in a new job of other owners, from the file. Equal to the last bit.
TEST_F(TrainingTest, ContinuesFromAFile) {
  const std::string path = testing::TempDir() + "holdfast_optimizer_" + std::to_string(::getpid());
  for (const Case& of : cases()) {
    SCOPED_TRACE(of.name);
    const Parameters first = place(trainer_, start_, {1, 2, 1});
    const auto optimizer = of.distributed(trainer_, first);
    optimizer->set_lr(0.03);
    for (int i = 0; i < 5; ++i) train(trainer_, *optimizer, first, data_);
    optimizer->save(path);
    const Parameters second = place(trainer_, fetch(first), {2, 0, 1});
    for (int i = 0; i < 5; ++i) train(trainer_, *optimizer, first, data_);

    const auto continued = of.distributed(trainer_, second);
    continued->load(path);
    EXPECT_EQ(continued->lr(), 0.03);
    for (int i = 0; i < 5; ++i) train(trainer_, *continued, second, data_);
    EXPECT_EQ(largest_difference(fetch(first), fetch(second)), 0);
  }
  std::remove(path.c_str());
}

// Groups over several owners, with a schedule, and rates that are set by hand in between.
TEST_F(TrainingTest, GroupsAndRates) {
  const auto quick = torch::optim::SGDOptions(0.4).momentum(0.5);
  const auto slow = torch::optim::SGDOptions(0.05);
  const std::vector<Tensor> here = leaves(start_);
  SGD reference({OptimizerParamGroup({here[0], here[2]}, std::make_unique<torch::optim::SGDOptions>(quick)),
                 OptimizerParamGroup({here[1]}, std::make_unique<torch::optim::SGDOptions>(slow))},
                slow);
  const auto set_here = [&](size_t group, double lr) { reference.param_groups()[group].options().set_lr(lr); };

  const Parameters there = place(trainer_, start_, {1, 2, 2});
  DistributedOptimizer<SGD> optimizer(trainer_, {{{there[0], there[2]}, quick}, {{there[1]}, slow}});
  LrSchedule schedule(optimizer, step_decay(2, 0.5));
  for (int i = 0; i < 6; ++i) {
    set_here(0, 0.4 * std::pow(0.5, i / 2));
    set_here(1, 0.05 * std::pow(0.5, i / 2));
    train_here(reference, here, data_);
    train(trainer_, optimizer, there, data_);
    schedule.step();
  }
  EXPECT_EQ(optimizer.lr(0), 0.05);
  EXPECT_LT(largest_difference(here, fetch(there)), 1e-6);

  optimizer.set_lr(0.3);
  optimizer.set_lr(1, 0.2);
  set_here(0, 0.3);
  set_here(1, 0.2);
  train_here(reference, here, data_);
  train(trainer_, optimizer, there, data_);
  EXPECT_EQ(optimizer.options(1).lr(), 0.2);
  EXPECT_EQ(optimizer.options(0).momentum(), 0.5);
  EXPECT_LT(largest_difference(here, fetch(there)), 1e-6);
}

TEST_F(TrainingTest, OneOwnerHasOptionsOfItsOwn) {
  const Parameters there = place(trainer_, start_, {1, 2, 0});
  DistributedOptimizer<SGD> optimizer(trainer_, there, {0.5});
  optimizer.set_options(0, "worker2", {0.0});
  train(trainer_, optimizer, there, data_);
  const std::vector<Tensor> after = fetch(there);
  EXPECT_GT(largest_difference({start_[0]}, {after[0]}), 0);
  EXPECT_EQ(largest_difference({start_[1]}, {after[1]}), 0);
  EXPECT_GT(largest_difference({start_[2]}, {after[2]}), 0);
  EXPECT_EQ(optimizer.lr(), 0.5);
  EXPECT_EQ(optimizer.lr(0, "worker2"), 0.0);
  optimizer.set_lr(0.25);
  EXPECT_EQ(optimizer.options(0, "worker2").lr(), 0.25);
}

// One that no gradient reached, and the .grad that the program keeps itself.
TEST_F(TrainingTest, WhatIsNotPartOfTheLossIsUntouched) {
  const RRef<Tensor> mine = trainer_.own(make_leaf(start_[0]));
  mine.local_value().mutable_grad() = at::rand({4, 6});
  const Tensor grad = mine.local_value().grad();
  Parameters there = place(trainer_, start_, {0, 1, 2});
  there[0] = mine;
  const RRef<Tensor> unused = place(trainer_, {start_[1]}, {1})[0];
  DistributedOptimizer<SGD> optimizer(trainer_, {there[0], unused, there[1], there[2]},
                                      torch::optim::SGDOptions(0.5).weight_decay(0.1));
  train(trainer_, optimizer, there, data_);
  EXPECT_EQ(largest_difference({start_[1]}, fetch({unused})), 0);
  EXPECT_GT(largest_difference({start_[0]}, fetch({mine})), 0);
  EXPECT_TRUE(mine.local_value().grad().is_same(grad));
  EXPECT_TRUE(optimizer.save().groups[0].parameters[1].empty());
}

TEST_F(TrainingTest, StepsWithoutWaiting) {
  const std::vector<Tensor> here = leaves(start_);
  SGD reference(here, {0.1});
  const Parameters there = place(trainer_, start_, {1, 2, 0});
  DistributedOptimizer<SGD> optimizer(trainer_, there, {0.1});
  loss_of(here, data_).backward();
  reference.step();
  reference.step();
  autograd::Context context(trainer_);
  context.backward({loss_of(there, data_)});
  const Future<void> first = optimizer.async_step(context);
  const Future<void> second = optimizer.async_step(context);
  first.get();
  second.get();
  EXPECT_LT(largest_difference(here, fetch(there)), 1e-6);
}

TEST_F(TrainingTest, AClosureMakesAStep) {
  const std::vector<Tensor> here = leaves(start_);
  SGD reference(here, {0.1});
  const Parameters there = place(trainer_, start_, {1, 2, 0});
  DistributedOptimizer<SGD> optimizer(trainer_, there, {0.1});
  train_here(reference, here, data_);
  const Tensor loss = optimizer.step([&](autograd::Context& context) {
    Tensor loss = loss_of(there, data_);
    context.backward({loss});
    return loss;
  });
  EXPECT_LT(largest_difference(here, fetch(there)), 1e-6);
  EXPECT_NEAR(loss.item<double>(), loss_of(leaves(start_), data_).item<double>(), 1e-6);
  EXPECT_FALSE(loss.requires_grad());
}

// All parameters on one worker, which is another than the trainer, and which computes the loss with a third one.
TEST_F(TrainingTest, LbfgsEvaluatesTheClosure) {
  const auto options = torch::optim::LBFGSOptions(0.5).max_iter(6).line_search_fn("strong_wolfe");
  const std::vector<Tensor> here = leaves(start_);
  LBFGS reference(here, options);
  const Parameters there = place(trainer_, start_, {1, 1, 1});
  DistributedOptimizer<LBFGS> optimizer(trainer_, there, options);
  int evaluations_here = 0;
  int evaluations = 0;
  const std::thread::id thread = std::this_thread::get_id();
  const auto closure = [&](autograd::Context& context) {
    ++evaluations;
    EXPECT_EQ(std::this_thread::get_id(), thread);
    Tensor loss = loss_of(there, data_);
    context.backward({loss});
    return loss;
  };
  const auto step_both = [&](AnyOptimizer& stepped) {
    const Tensor expected = reference.step([&] {
      ++evaluations_here;
      reference.zero_grad();
      Tensor loss = loss_of(here, data_);
      loss.backward();
      return loss;
    });
    EXPECT_NEAR(expected.item<double>(), stepped.step(closure).item<double>(), 1e-5);
    EXPECT_EQ(evaluations, evaluations_here);
    EXPECT_LT(largest_difference(here, fetch(there)), 1e-4);
  };
  step_both(optimizer);
  step_both(optimizer);
  EXPECT_GT(evaluations, 4);
  // What it remembers goes with it.
  DistributedOptimizer<LBFGS> continued(trainer_, there, {1.0});
  continued.load(optimizer.save());
  step_both(continued);

  const Closure fails = [](autograd::Context&) -> Tensor { throw std::out_of_range("no more data"); };
  EXPECT_THROW(continued.step(fails), std::out_of_range);
  step_both(continued);
}

}  // namespace
}  // namespace holdfast::optim::test
