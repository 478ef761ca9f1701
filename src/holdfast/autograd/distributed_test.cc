// Contexts, calls and passes on real workers: what a user sees. That gradients are right for any program is tested in
// distributed_gradients_test.cc.
//
// Workers have one handler thread here, where not said otherwise: whatever blocks for want of another would hang.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>

#include <cmath>
#include <future>
#include <optional>

#include <holdfast/autograd/distributed_test_support.h>

namespace holdfast::distributed_test {
namespace {

// Of two elements, both of this value.
testing::AssertionResult is(const Tensor& tensor, double value) {
  if (!tensor.defined()) return testing::AssertionFailure() << "undefined, not " << value;
  if (at::allclose(tensor, at::ones({2}) * value)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << tensor << ", not " << value;
}

// What f gives on a thread of libtorch's, which a program leaves to it.
template <class F>
auto on_torchs_thread(F f) {
  std::packaged_task<decltype(f())()> task(std::move(f));
  auto result = task.get_future();
  at::launch([&] { task(); });
  return result.get();
}

Tensor scale_elsewhere(const Tensor& x, double k) {
  const Peer next = current_worker().peer(0);
  return on_torchs_thread([&] { return next.call<scale>(x, k); });
}

// ---- the tests

class DistributedTest : public testing::Test {
 protected:
  void SetUp() override { gate.reset(); }
  void TearDown() override {
    gate.open();
    for (int rank = 0; rank < job_.size(); ++rank) {
      if (!job_.has(rank)) continue;
      EXPECT_TRUE(eventually([&] { return autograd::debug_info(job_[rank]) == autograd::DebugInfo{}; })) << rank;
    }
    job_.shutdown();
  }
  Peer peer(int rank) { return job_[0].peer(rank); }
  // Soon, on all that are left.
  bool no_passes() {
    return eventually([&] {
      for (int rank = 0; rank < job_.size(); ++rank) {
        if (job_.has(rank) && autograd::debug_info(job_[rank]).passes != 0) return false;
      }
      return true;
    });
  }

  TestJob job_{3, [](Options& options) { options.handler_threads = 1; }};
};

class BothModes : public DistributedTest, public testing::WithParamInterface<Mode> {
 protected:
  autograd::BackwardOptions options() const { return {.mode = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(Modes, BothModes, testing::Values(Mode::fast, Mode::smart),
                         [](const auto& info) { return info.param == Mode::fast ? "fast" : "smart"; });

// ---- what is recorded

TEST_P(BothModes, ACallAndItsResult) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const Tensor y = peer(1).call<scale>(x, 5.0);
  const autograd::DebugInfo recorded{.contexts = 1, .sends = 1, .recvs = 1};
  EXPECT_EQ(autograd::debug_info(job_[0]), recorded);
  EXPECT_EQ(autograd::debug_info(job_[1]), recorded);
  EXPECT_EQ(autograd::debug_info(job_[2]), autograd::DebugInfo{});
  context.backward({y.sum()}, options());
  EXPECT_TRUE(is(context.gradient(x), 5));
  EXPECT_FALSE(x.grad().defined());
  ASSERT_EQ(context.gradients().size(), 1u);
  EXPECT_TRUE(context.gradients()[0].first.is_same(x));
}

// Worker 1 goes on with the first gradient while worker 0 is still busy: with a hook that waits for just that.
TEST_P(BothModes, AGradientLeavesWhileOtherFunctionsRun) {
  leaf_hooks = 0;
  Context context(job_[0]);
  const Tensor other = peer(1).call<scaled_leaf>(3.0) * 1;
  bool first_has_arrived = false;
  other.register_hook([&](const Tensor&) { first_has_arrived = eventually([] { return leaf_hooks.load() == 1; }); });
  const Tensor later = other.sum();
  const Tensor first = peer(1).call<scaled_leaf>(2.0).sum();  // the last to be recorded goes first
  context.backward({first, later}, options());
  EXPECT_TRUE(first_has_arrived);
  EXPECT_EQ(leaf_hooks, 2);
}

// For programs that stand in for others, whose users walk the graph.
TEST_P(BothModes, FunctionsInAnotherForm) {
  autograd::function_form() = {.send_name = "other::Send", .recv_name = "other::Recv", .hooks_apart = false};
  const Tensor x = leaf();
  {
    Context context(job_[0]);
    const Tensor y = peer(1).call<scale>(x, 5.0);
    EXPECT_EQ(y.grad_fn()->name(), "other::Recv") << "the tensor is an output of the recv itself";
    context.backward({y.sum()}, options());
    EXPECT_TRUE(is(context.gradient(x), 5));
  }
  autograd::function_form() = {};
  Context context(job_[0]);
  EXPECT_NE(peer(1).call<scale>(x, 5.0).grad_fn()->name(), "holdfast::RecvFunction");
}

TEST_P(BothModes, CallsInCallsThereAndBackAgain) {
  for (const Path& path : {Path{}, Path{2}, Path{0}, Path{0, 1}, Path{2, 0, 1, 2, 1, 0, 1}}) {
    const Tensor x = leaf();
    Context context(job_[0]);
    const Tensor a = peer(1).call<walk>(x, path);
    const Tensor b = peer(1).call<walk_task>(x, path);
    const Tensor c = peer(1).call<walk_then>(x, path);
    context.backward({(a + b + c).sum()}, options());
    EXPECT_TRUE(is(context.gradient(x), 3 * 2 * std::pow(6, path.size())));
  }
}

TEST_P(BothModes, ReferencesAndWhatTheyBringHere) {
  const Tensor x = leaf(4);
  const RRef<Tensor> weight = peer(1).remote<make_leaf>(7.0);
  Context context(job_[0]);
  const RRef<Tensor> scaled = peer(1).remote<scale>(x, 5.0);
  const Tensor here = scaled.to_here();                               // 20
  const Tensor elsewhere = peer(2).call<product_with>(scaled, here);  // 400; worker 2 asks worker 1
  context.backward({(elsewhere * weight.to_here()).sum()}, options());
  EXPECT_TRUE(is(context.gradient(x), 2 * 5 * 20 * 7));
  EXPECT_TRUE(is(weight.call<gradient_of>(), 400));  // a leaf that was fetched: its owner has its gradient
}

TEST_P(BothModes, ObjectsWithParameters) {
  const Tensor x = leaf(4);
  const RRef<Layer> layer = peer(1).make<Layer>(3);
  Context context(job_[0]);
  const Tensor y = layer.call<&Layer::forward>(x);
  const RRef<Tensor> z = layer.remote<&Layer::forward>(y);
  context.backward({z.to_here().sum()}, options());
  EXPECT_TRUE(is(context.gradient(x), 9));
  EXPECT_TRUE(is(layer.call<&Layer::gradient>(), 2 * 3 * 4));
}

TEST_P(BothModes, ARootThatIsElsewhere) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const RRef<Tensor> loss = peer(1).remote<sum_scaled>(x, 5.0);
  loss.backward(context, options());
  EXPECT_TRUE(is(context.gradient(x), 5));
  const RRef<Tensor> mine = job_[0].own(peer(2).call<sum_scaled>(x, 2.0));
  // FAST: the first call's functions have run, and would be needed again.
  mine.backward(context, {.mode = Mode::smart});
  EXPECT_TRUE(is(context.gradient(x), 7));
}

TEST_P(BothModes, CallsToOneself) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const Tensor y = job_[0].self().call<scale>(x, 5.0);
  context.backward({(y * y).sum()}, options());
  EXPECT_TRUE(is(context.gradient(x), 50));
}

TEST_F(DistributedTest, NothingIsRecordedWithoutNeed) {
  const Tensor x = leaf();
  const Tensor y = peer(1).call<scale>(x, 5.0);  // no context
  EXPECT_TRUE(y.requires_grad());
  EXPECT_TRUE(y.is_leaf());
  EXPECT_FALSE(peer(1).call<is_in_context>());
  expect_throw<InvalidArgument>([] { current_context(); });

  Context context(job_[0]);
  EXPECT_TRUE(peer(1).call<is_in_context>());
  EXPECT_FALSE(peer(1).call<scale>(at::ones({2}), 5.0).requires_grad());
  EXPECT_EQ(autograd::debug_info(job_[1]), autograd::DebugInfo{.contexts = 1});
  {
    // The handler records, its caller does not.
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(is(peer(1).call<scale>(x, 5.0), 5));
  }
  EXPECT_EQ(autograd::debug_info(job_[0]), (autograd::DebugInfo{.contexts = 1, .sends = 0, .recvs = 1}));
  EXPECT_EQ(autograd::debug_info(job_[1]), (autograd::DebugInfo{.contexts = 1, .sends = 1, .recvs = 0}));
}

TEST_F(DistributedTest, AnUnusedResultFailsInFastModeAndIsNoProblemInSmart) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const Tensor used = peer(1).call<scale>(x, 5.0);
  const Tensor unused = peer(1).call<scale>(x, 7.0);
  const Error error =
      expect_throw<Error>([&] { context.backward({used.sum()}, {.mode = Mode::fast, .retain_graph = true}); });
  EXPECT_CONTAINS(error.what(), "on worker0 never received a gradient");
  EXPECT_CONTAINS(error.what(), "on worker1 never received a gradient");
  EXPECT_CONTAINS(error.what(), "MulBackward");
  EXPECT_CONTAINS(error.what(), "SMART");
  Context another(job_[0]);
  const Tensor again = peer(1).call<scale>(x, 5.0);
  peer(1).call<scale>(x, 7.0);
  another.backward({again.sum()}, {.mode = Mode::smart});
  EXPECT_TRUE(is(another.gradient(x), 5));
}

TEST_P(BothModes, ALocalBackwardOfWhatCameByACallFails) {
  Context context(job_[0]);
  const Tensor x = leaf();
  const Tensor loss = peer(1).call<scale>(x, 5.0).sum();
  try {
    loss.backward();
    ADD_FAILURE();
  } catch (const std::exception& error) {
    EXPECT_CONTAINS(error.what(), "worker1");
    EXPECT_CONTAINS(error.what(), "use context.backward()");
  }
}

// ---- which context

TEST_P(BothModes, ContextsInContexts) {
  const Tensor x = leaf();
  Context outer(job_[0]);
  const Tensor y = peer(1).call<scale>(x, 2.0);
  {
    Context inner(job_[0]);
    EXPECT_EQ(current_context().id(), inner.id());
    inner.backward({peer(1).call<scale>(x, 3.0).sum()}, options());
    EXPECT_TRUE(is(inner.gradient(x), 3));
    const auto error = expect_throw<Error>([&] { inner.backward({(y * x).sum()}, options()); });
    EXPECT_CONTAINS(error.what(), "the graph goes on in another context");
  }
  EXPECT_EQ(current_context().id(), outer.id());
  const Tensor z = peer(1).call<scale>(y, 5.0);
  outer.backward({z.sum()}, options());
  EXPECT_TRUE(is(outer.gradient(x), 10));
}

TEST_P(BothModes, AContextMadeByACoroutine) {
  EXPECT_TRUE(is(peer(1).call<train>(leaf(5)), 15));
  EXPECT_FALSE(peer(1).call<is_in_context>());
  // Here its first step runs on this thread, with a context that must not stay behind.
  AmbientScope scope({.worker = &job_[0], .cancelled = {}, .flow = {}});
  const Future<Tensor> trained = start(train(leaf(5)));
  EXPECT_FALSE(has_current_context());
  EXPECT_FALSE(on_torchs_thread(has_current_context));
  EXPECT_TRUE(is(trained.get(), 15));
}

TEST_P(BothModes, LibtorchTakesTheContextToThreadsOfItsOwn) {
  const Tensor x = leaf();
  {
    Context context(job_[0]);
    const Tensor y = on_torchs_thread([&] { return peer(1).call<scale>(x, 3.0); });
    // What follows there belongs to it too, and so does what a handler gives to such a thread.
    const Future<Tensor> z = on_torchs_thread([&] {
      return peer(1).async<scale>(x, 3.0).then([&](const Tensor& t) { return peer(2).async<scale_elsewhere>(t, 5.0); });
    });
    context.backward({(y + z.get()).sum()}, options());
    EXPECT_TRUE(is(context.gradient(x), 3 + 15));
  }
  EXPECT_FALSE(on_torchs_thread(has_current_context));
}

TEST_P(BothModes, AnotherWorkerThanTheCreatorStartsIt) {
  const Tensor x = leaf(2);
  Context context(job_[0]);
  EXPECT_TRUE(is(peer(1).call<backward_there>(x, context.id(), GetParam() == Mode::smart), 2 * 5));
  EXPECT_TRUE(is(context.gradient(x), 3 * 5));
  const auto error = expect_throw<InvalidArgument>([&] { find_context(job_[0], {.creator = {}, .counter = 77}); });
  EXPECT_CONTAINS(error.what(), "has not come to worker0, or has ended");
}

// Three passes at once in one context, over the same three workers.
TEST_F(DistributedTest, RootsOnSeveralWorkersAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const Tensor x = leaf(2);
    Context context(job_[0]);
    std::vector<Future<Tensor>> results;
    for (int rank = 0; rank < 3; ++rank) {
      results.push_back(peer(rank).async<backward_there>(x, context.id(), true));
    }
    for (auto& result : results) EXPECT_TRUE(is(result.get(), 2 * 5));
    EXPECT_TRUE(is(context.gradient(x), 3 * 3 * 5));
  }
}

TEST_F(DistributedTest, OneContextOnSeveralThreads) {
  const Tensor x = leaf();
  Context context(job_[0]);
  std::vector<Tensor> losses;
  for (int i = 0; i < 4; ++i) losses.push_back(peer(1 + i % 2).call<scale>(x, 2.0).sum());
  std::vector<std::function<void()>> runs;
  for (int i = 0; i < 4; ++i) {
    runs.emplace_back([&, i] { context.backward({losses[static_cast<size_t>(i)]}); });
  }
  run_together(runs);
  EXPECT_TRUE(is(context.gradient(x), 8));
}

TEST_P(BothModes, ContextsOnSeveralThreadsKeepTheirGradientsApart) {
  const Tensor x = leaf(2);
  const RRef<Layer> layer = peer(1).make<Layer>(3);
  std::vector<std::function<void()>> runs;
  for (int i = 1; i <= 4; ++i) {
    runs.emplace_back([&, i] {
      for (int round = 0; round < 25; ++round) {
        Context context(job_[0]);
        const Tensor y = layer.call<&Layer::forward>(x * i);
        context.backward({peer(2).call<scale>(y, i).sum()}, options());
        EXPECT_TRUE(is(context.gradient(x), 3 * i * i));
        EXPECT_TRUE(is(layer.call<&Layer::gradient>(), 2 * i * i));
      }
    });
  }
  run_together(runs);
}

TEST_P(BothModes, HooksRunInTheirContext) {
  const Tensor x = leaf();
  Context context(job_[0]);
  std::string seen;
  const Tensor y = job_[0].self().call<scale>(x, 5.0);
  y.register_hook(
      [&](const Tensor&) { seen = current_worker().name() + (current_context().id() == context.id() ? " here" : ""); });
  context.backward({y.sum()}, options());
  EXPECT_EQ(seen, "worker0 here");
}

// ---- again and again

TEST_P(BothModes, ASecondBackwardNeedsTheGraphRetained) {
  const Tensor x = leaf(3);
  Context context(job_[0]);
  const Tensor y = peer(1).call<walk>(x, Path{2});
  const Tensor loss = (y * y).sum();
  const double once = 2 * 12 * 12 * 3;
  context.backward({loss}, {.mode = GetParam(), .retain_graph = true});
  context.backward({loss}, options());
  EXPECT_TRUE(is(context.gradient(x), 2 * once));
  const auto error = expect_throw<Error>([&] { context.backward({loss}, options()); });
  EXPECT_CONTAINS(error.what(), "Trying to backward through the graph a second time");
}

TEST_P(BothModes, AThousandPassesLeaveNothing) {
  const Tensor x = leaf();
  for (int i = 0; i < 250; ++i) {
    Context context(job_[0]);
    const Tensor loss = peer(1).call<scale>(x, 5.0).sum();
    for (int pass = 1; pass <= 4; ++pass) {
      context.backward({loss}, {.mode = GetParam(), .retain_graph = true});
      EXPECT_TRUE(is(context.gradient(x), 5 * pass));
    }
  }
}

// ---- what goes wrong

TEST_P(BothModes, AnErrorInABackwardFunctionSaysWhereItWas) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const Tensor loss = peer(1).call<failing_backward>(peer(2).call<scale>(x, 2.0)).sum();
  const auto error = expect_throw<RemoteError>([&] { context.backward({loss}, options()); });
  EXPECT_EQ(error.worker(), "worker1");
  EXPECT_EQ(error.type(), "std::out_of_range");
  EXPECT_CONTAINS(error.what(), "no such row");
  EXPECT_CONTAINS(error.what(), "MulBackward");
  EXPECT_TRUE(no_passes());
  const auto not_here = expect_throw<Error>([&] { peer(1).remote<failing_backward>(x).backward(context, options()); });
  EXPECT_CONTAINS(not_here.what(), "one element");
}

TEST_P(BothModes, RootsThatAreNone) {
  Context context(job_[0]);
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { context.backward({at::ones({1})}, options()); }).what(),
                  "root 0 does not require grad");
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { context.backward({leaf()}, options()); }).what(), "one element");
}

// A pass that is at the gate, on a worker behind another one.
struct Held {
  Held(TestJob& job, Mode mode, Duration timeout = kForever, Path path = {2}) : context(job[0]) {
    const Tensor y = job[0].peer(1).call<gated>(x, path);
    done = context.async_backward({y.sum()}, {.mode = mode, .timeout = timeout});
  }
  Tensor x = leaf();
  Context context;
  Future<void> done;
};

TEST_P(BothModes, APassThatTakesTooLong) {
  Held held(job_, GetParam(), 20ms);
  expect_throw<Timeout>([&] { held.done.get(); });
  gate.open();
  EXPECT_TRUE(no_passes());
  EXPECT_FALSE(held.context.gradient(held.x).defined());
}

TEST_P(BothModes, APassElsewhereThatTakesTooLong) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const RRef<Tensor> loss = peer(2).remote<sum_scaled>(peer(1).call<gated>(x, Path{}), 1.0);
  expect_throw<Timeout>([&] { loss.backward(context, {.mode = GetParam(), .timeout = 50ms}); });
  gate.open();
  EXPECT_TRUE(no_passes());
}

TEST_P(BothModes, APassThatIsCancelled) {
  Held held(job_, GetParam());
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  held.done.cancel();
  expect_throw<Cancelled>([&] { held.done.get(); });
  gate.open();
  EXPECT_TRUE(no_passes());
}

TEST_P(BothModes, AContextThatEndsDuringAPass) {
  std::optional<Held> held(std::in_place, job_, GetParam());
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  const Future<void> done = held->done;
  held.reset();
  EXPECT_CONTAINS(expect_throw<Cancelled>([&] { done.get(); }).what(), "has ended");
}

TEST_F(DistributedTest, AContextThatEndsDuringACall) {
  const Tensor x = leaf();
  std::optional<Context> context(std::in_place, job_[0]);
  const Future<Tensor> called = peer(1).async<gated_forward>(x);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  const ContextRef ended = *context;
  context.reset();
  gate.open();
  EXPECT_TRUE(is(called.get(), 2));
  EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { ended.backward({x.sum()}); }).what(), "has ended");
}

TEST_P(BothModes, TheLastWorkerOfAPassIsLost) {
  Held held(job_, GetParam());
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  std::thread destroying([&] { job_.destroy(2); });  // waits for what runs there, and so for the gate
  const auto error = expect_throw<WorkerLost>([&] { held.done.get(); });
  EXPECT_EQ(error.worker(), "worker2");
  gate.open();
  destroying.join();
  EXPECT_TRUE(is(peer(1).call<scale>(held.x, 2.0), 2));
}

TEST_P(BothModes, TheWorkerInTheMiddleOfAPassIsLost) {
  Held held(job_, GetParam());
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  job_.destroy(1);
  EXPECT_EQ(expect_throw<WorkerLost>([&] { held.done.get(); }).worker(), "worker1");
}

TEST_P(BothModes, TheCreatorIsLost) {
  const Tensor x = leaf();
  Context context(job_[0]);
  const Future<Tensor> there =
      peer(1).async<backward_there>(peer(2).call<gated>(x, Path{}), context.id(), GetParam() == Mode::smart);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  job_.destroy(0);
  expect_throw<Shutdown>([&] { there.get(); });
}

// A context may outlive its worker: what it has can be read, and nothing else.
TEST_P(BothModes, AContextOutlivesItsWorker) {
  const Tensor x = leaf();
  std::optional<Context> context(std::in_place, job_[0]);
  const Tensor y = peer(1).call<scale>(x, 5.0);
  context->backward({y.sum()}, {.mode = GetParam(), .retain_graph = true});
  const ContextRef there = find_context(job_[1], context->id());
  job_.shutdown();
  expect_throw<Shutdown>([&] { context->backward({y.sum()}, options()); });
  expect_throw<Shutdown>([&] { Context late(job_[0]); });
  job_.destroy(0);
  job_.destroy(1);
  EXPECT_TRUE(is(context->gradient(x), 5));
  EXPECT_TRUE(there.gradients().empty());
  expect_throw<Shutdown>([&] { context->backward({y.sum()}, options()); });
  expect_throw<Shutdown>([&] { there.backward({x.sum()}, options()); });
  EXPECT_TRUE(has_current_context());
  context.reset();
  EXPECT_FALSE(has_current_context());
}

// ---- what a broken or hostile peer sends

TEST_F(DistributedTest, AContextThatDoesNotDecodeFailsTheCall) {
  const Function& function = Registered<is_in_context>::entry;
  const auto to = job_[0].host().peer_state(std::make_shared<const WorkerInfo>(job_[1].info()));
  const Bytes of_somebody_else = wire::encode_message({}, std::tuple(ContextId{.creator = {}, .counter = 1},
                                                                     std::optional<WorkerInfo>(), uint64_t{0}))
                                     .body;
  for (const Bytes& bytes : {Bytes{0xc1}, Bytes{1, 2, 3}, of_somebody_else}) {
    auto message = rpc_detail::call_message(*to, kCall, function, static_cast<std::tuple<>*>(nullptr));
    attach_section(*message, Section::flow, bytes);
    const Future<bool> called = rpc_detail::finish_call<bool>(*to, function, message, kPatience);
    EXPECT_CONTAINS(expect_throw<Corrupt>([&] { called.get(); }).what(), "the context of a message");
  }
  EXPECT_FALSE(peer(1).call<is_in_context>());
}

// ---- faults

// Every message of contexts and passes fails twice on its way: they are only later.
TEST(DistributedFaults, MessagesOfPassesAreSentAgain) {
  TestJob job(3, [](Options& options) {
    options.faults.messages_to_fail = {
        "CONTEXT_REACHED", "CLEANUP_AUTOGRAD_CONTEXT", "MARK", "REPORT", "BACKWARD_AUTOGRAD", "MARKED", "PASS_ERROR",
        "PASS_END"};
    options.faults.num_fail_sends = 2;
  });
  for (const Mode mode : {Mode::fast, Mode::smart}) {
    const Tensor x = leaf();
    Context context(job[0]);
    const Tensor y = job[0].peer(1).call<walk>(x, Path{2, 1});
    context.backward({y.sum()}, {.mode = mode});
    EXPECT_TRUE(is(context.gradient(x), 72));
  }
  for (const Mode mode : {Mode::fast, Mode::smart}) {
    Context context(job[0]);
    const Tensor y = job[0].peer(1).call<failing_backward>(leaf());
    const RemoteError error = expect_throw<RemoteError>([&] { context.backward({y.sum()}, {.mode = mode}); });
    EXPECT_CONTAINS(error.what(), "no such row");
  }
  for (int rank = 0; rank < job.size(); ++rank) {
    EXPECT_TRUE(eventually([&] { return autograd::debug_info(job[rank]) == autograd::DebugInfo{}; })) << rank;
  }
  EXPECT_GT(job[0].stats().faults + job[1].stats().faults + job[2].stats().faults, 20u);
  job.shutdown();
}

// ---- processes

// This process has rank 0. Unlike a Worker that is destroyed, a killed one says nothing: its launcher does.
TEST(DistributedProcesses, AKilledWorkerFailsThePass) {
  for (const int victim : {1, 2}) {
    gate.reset();
    TestCoordinator coordinator(3, 600s);
    std::vector<std::unique_ptr<TestProcess>> processes;
    for (int rank = 1; rank <= 2; ++rank) {
      processes.push_back(std::make_unique<TestProcess>("serve_autograd", coordinator.options(rank)));
    }
    Worker worker(coordinator.options(0));
    {
      Context context(worker);
      const Tensor x = leaf();
      const Tensor y = worker.peer(1).call<endless>(x, Path{2});
      const Future<void> done = context.async_backward({y.sum()});
      ASSERT_TRUE(gate.wait_for_arrivals(1));
      gate.open();
      TestProcess& killed = *processes[static_cast<size_t>(victim - 1)];
      killed.signal(SIGKILL);
      EXPECT_EQ(killed.wait(), -SIGKILL);
      coordinator.server().declare_lost(Rank{static_cast<uint32_t>(victim)}, "it was killed");
      EXPECT_EQ(expect_throw<WorkerLost>([&] { done.get(); }).worker(), "worker" + std::to_string(victim));
    }
    EXPECT_EQ(autograd::debug_info(worker), autograd::DebugInfo{});
  }
}

}  // namespace
}  // namespace holdfast::distributed_test
