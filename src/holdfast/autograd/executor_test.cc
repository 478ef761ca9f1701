// LocalPass beside the gradients themselves (same_gradients_test.cc): hooks, memory, errors, long graphs, threads.
#include <holdfast/autograd/executor.h>

#include <ATen/ops/complex.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <barrier>
#include <functional>
#include <optional>
#include <thread>

#include <holdfast/autograd/split_graph_test_support.h>
#include <holdfast/base/error.h>

namespace holdfast::autograd {
namespace {

using torch::autograd::AutogradContext;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Throwing : torch::autograd::Function<Throwing> {
  static Tensor forward(AutogradContext*, Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { throw std::out_of_range("no such row"); }
};

struct TooMany : torch::autograd::Function<TooMany> {
  static Tensor forward(AutogradContext*, Tensor x) { return x.clone(); }
  static variable_list backward(AutogradContext*, variable_list) { return {at::ones({7}, at::kDouble)}; }
};

// ---- hooks ----

struct CountingHook : torch::autograd::FunctionPostHook {
  explicit CountingHook(int& calls) : count(calls) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    ++count;
    return outputs;
  }
  int& count;
};

// How often each hook is called, and what the gradients are after hooks have changed them.
std::pair<std::vector<int>, Tensors> run_with_hooks(bool is_split) {
  at::manual_seed(3);
  Tensors p = three();
  std::vector<int> calls(8, 0);
  auto count = [&](const Tensor& tensor, size_t index, double factor) {
    tensor.register_hook([&calls, index, factor](Tensor gradient) {
      ++calls[index];
      return gradient * factor;
    });
  };
  OneGraph one;
  SplitGraph split;
  Mover& m = is_split ? static_cast<Mover&>(split) : one;
  Tensor h = p[0].tanh();
  Tensor received = m.move(0, 1, h);
  Tensor y = received * p[1];
  Tensor back = m.move(1, 0, y);
  Tensor z = back * p[1].detach() + back;
  count(p[0], 0, 2);
  count(p[1], 1, 3);
  count(h, 2, 5);
  count(received, 3, 7);
  count(y, 4, 11);
  count(back, 5, 13);
  y.grad_fn()->add_post_hook(std::make_unique<CountingHook>(calls[6]));
  auto accumulator = torch::autograd::impl::grad_accumulator(p[0]);
  accumulator->add_post_hook(std::make_unique<CountingHook>(calls[7]));
  h.retain_grad();
  if (is_split) {
    split.backward({{z.sum()}});
    return {calls, {split.gradient(p[0]), split.gradient(p[1]), h.grad()}};
  }
  z.sum().backward();
  return {calls, {p[0].grad(), p[1].grad(), h.grad()}};
}

TEST(LocalPass, calls_hooks_as_often_as_one_graph_does) {
  auto [expected_calls, expected] = run_with_hooks(false);
  auto [calls, gradients] = run_with_hooks(true);
  EXPECT_EQ(expected_calls, std::vector<int>(8, 1));
  EXPECT_EQ(calls, expected_calls);
  for (size_t i = 0; i < expected.size(); ++i) expect_same(gradients[i], expected[i], 0, std::to_string(i));
}

// ---- order ----

// As two micro-batches on two threads are recorded, of which each counts for itself: their sequences alternate.
TEST(LocalPass, takes_what_entered_first_through_to_its_end) {
  const Tensor w = leaf({3});
  std::string order;
  const auto named = [&](const Tensor& tensor, char name) {
    tensor.register_hook([&order, name](const Tensor&) { order += name; });
    return tensor;
  };
  const Tensor a = named(w * 2, 'a'), c = named(w * 2, 'c');
  const Tensor b = named(a * 3, 'b'), d = named(c * 3, 'd');
  const std::vector<LocalPass::SendPtr> sends = {make_send(std::vector{b}), make_send(std::vector{d})};
  GradientMap gradients;
  LocalPass pass(gradients, {});
  EXPECT_TRUE(pass.add_sends(sends).empty());
  for (const LocalPass::SendPtr& send : sends) {
    pass.add_arrived(send, {.gradients = {at::ones({3}, at::kDouble)}, .reached = {true}});
  }
  pass.run([](const auto&, const auto&) {});
  EXPECT_EQ(order, "badc");
}

// ---- memory ----

// A gradient that reaches a leaf as a view of memory that others read, or as it is: the leaf may not take it over, or
// the leaf's next gradient is added to what they read. SplitGraph also looks again at what it sends before it arrives.
TEST(LocalPass, does_not_take_over_memory_that_others_read) {
  Tensor w = leaf({6}), v = leaf({6}), u = leaf({6});
  SplitGraph split;
  Tensor received = split.move(1, 0, leaf({2, 3}) * 1);
  Tensor given = at::ones({6}, at::kDouble);
  Tensor sum = w.view({2, 3}) + received + u.view({2, 3});
  split.backward({{sum, given.view({2, 3})}, {v, given}});
  split.backward({{(w * 2 + v * 2 + u * 2).sum()}});
  EXPECT_TRUE(at::equal(given, at::ones({6}, at::kDouble)));
  for (const Tensor& each : {w, v, u}) expect_same(split.gradient(each), at::ones({6}, at::kDouble) * 3, 0, "leaf");
}

TEST(LocalPass, copies_what_one_function_gives_to_several_leaves) {
  Tensor w = leaf({6}), v = leaf({6});
  const void* given = nullptr;
  SplitGraph split;
  Tensor sum = w + v;
  sum.register_hook([&](const Tensor& gradient) { given = gradient.data_ptr(); });
  split.backward({{(sum * at::ones({6}, at::kDouble) * 2).sum()}});
  ASSERT_NE(given, nullptr);
  EXPECT_NE(split.gradient(w).data_ptr(), given);
  EXPECT_NE(split.gradient(v).data_ptr(), given);
  for (const Tensor& each : {w, v}) expect_same(split.gradient(each), at::ones({6}, at::kDouble) * 2, 0, "leaf");
}

TEST(GradientMap, takes_over_only_what_nobody_else_sees) {
  Tensor w = leaf({6}), v = leaf({6}), u = leaf({6});
  GradientMap map;
  at::NoGradGuard no_grad;
  Tensor alone = at::ones({6}, at::kDouble);
  map.accumulate(w, alone);
  EXPECT_EQ(map.get(w).data_ptr(), alone.data_ptr());
  Tensor shared = at::ones({6}, at::kDouble), other = shared;
  map.accumulate(v, shared);
  EXPECT_NE(map.get(v).data_ptr(), shared.data_ptr());
  Tensor base = at::ones({2, 3}, at::kDouble), view = base.view({6});
  map.accumulate(u, view);
  EXPECT_NE(map.get(u).data_ptr(), view.data_ptr());
  EXPECT_EQ(map.all().size(), 3u);
  EXPECT_FALSE(map.get(alone).defined());
}

TEST(LocalPass, accumulates_over_passes_and_keeps_maps_apart) {
  Tensor w = leaf({3});
  SplitGraph a, b;
  a.backward({{(w * 2).sum()}});
  Tensor seen = a.gradient(w);
  a.backward({{(w * 3).sum()}});
  b.backward({{(w * 7).sum()}});
  EXPECT_TRUE(a.gradient(w).is_same(seen));
  expect_same(seen, at::ones({3}, at::kDouble) * 5, 0, "a");
  expect_same(b.gradient(w), at::ones({3}, at::kDouble) * 7, 0, "b");
}

TEST(LocalPass, retain_graph_allows_a_second_pass_and_without_it_libtorch_complains) {
  Tensor x = leaf({3}), w = leaf({3});
  SplitGraph split;
  Tensor loss = split.move(1, 0, split.move(0, 1, x) * w).sum();
  split.backward({{loss}}, /*retain_graph=*/true);
  split.backward({{loss}});
  expect_same(split.gradient(x), w.detach() * 2, 0, "x");
  try {
    split.backward({{loss}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_PRED2(contains, error.what(), "Trying to backward through the graph a second time");
    EXPECT_PRED2(contains, error.what(), "MulBackward0");
    EXPECT_EQ(error.failure().type, "c10::Error");
  }
}

// ---- errors ----

template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(LocalPass, errors_say_what_is_wrong) {
  Tensor x = leaf({3});
  Tensor changed = x * 1;
  Tensor product = changed * changed;
  changed.add_(1);
  Tensor complex_sum = at::complex(x, x).sum();
  Tensor moved = leaf({3});
  Tensor of_moved = (moved * 2).sum();
  make_recv(std::vector{moved}, {});
  struct {
    std::vector<Root> roots;
    std::string error;
  } table[] = {
      {{{x.sum()}, {x.detach().sum()}}, "root 1 does not require grad and has no grad_fn"},
      {{{Tensor()}}, "root 0 is an undefined tensor"},
      {{{x * 2}}, "only for a root with one element; root 0 has the shape [3]"},
      {{{complex_sum}}, "only for a real root; root 0 has the type ComplexDouble"},
      {{{x * 2, at::ones({2}, at::kDouble)}}, "got [2] but expected shape compatible with [3]"},
      {{{x * 2, at::ones({3}, at::kComplexDouble)}}, "gradient 0 is complex where the tensor is real"},
      {{{x * 2, at::ones({3}, at::kDouble).to_sparse()}}, "no error"},
      {{{Throwing::apply(x * 2).sum()}}, "no such row (in the backward function "},
      {{{TooMany::apply(x * 2).sum()}}, "got [7] but expected shape compatible with [3] (in the backward function "},
      {{{of_moved}}, "and is no leaf now (in the backward function torch::autograd::AccumulateGrad)"},
      {{{product.sum()}}, "modified by an inplace operation"},
  };
  for (const auto& row : table) {
    SplitGraph split;
    EXPECT_PRED2(contains, error_of([&] { split.backward(row.roots); }), row.error);
  }
  EXPECT_PRED2(contains, error_of([&] { SplitGraph().backward({{Throwing::apply(x).sum()}}); }), "Throwing");
}

TEST(LocalPass, a_local_backward_that_reaches_a_call_fails) {
  Tensor w = leaf({3});
  SplitGraph split;
  Tensor received = split.move(1, 0, w * 2);
  Tensor loss = (received * received).sum();
  EXPECT_EQ(
      error_of([&] { loss.backward({}, /*retain_graph=*/true); }),
      "a local backward reached a tensor that came from worker \"worker1\" by a call; its gradient belongs there: "
      "use context.backward()");
  // Up to the call it is an ordinary graph.
  expect_same(torch::autograd::grad({loss}, {received}, {}, true)[0], received.detach() * 2, 0, "received");
  EXPECT_FALSE(received.is_leaf());
}

MessageGradients all_reached(variable_list gradients) {
  std::vector<bool> reached(gradients.size(), true);
  return {.gradients = std::move(gradients), .reached = std::move(reached)};
}

TEST(LocalPass, gradients_that_do_not_fit_their_send_are_errors) {
  Tensors sent = {leaf({3}), leaf({3})};
  auto send = make_send(sent);
  GradientMap map;
  LocalPass pass(map, {});
  auto deliver = [](auto&&...) { FAIL(); };
  const Tensor one = at::ones({3}, at::kDouble);
  EXPECT_PRED2(contains, error_of([&] { pass.add_arrived(send, all_reached({one, one})); }), "takes no part");
  pass.add_sends(std::vector{send, send});
  EXPECT_PRED2(contains, error_of([&] { pass.add_arrived(send, all_reached({one})); }),
               "got 1 gradients where 2 are expected");
  pass.add_arrived(send, all_reached({one, {}}));
  EXPECT_PRED2(contains, error_of([&] { pass.add_arrived(send, all_reached({one, {}})); }), "arrived twice");
  pass.run(deliver);
  EXPECT_PRED2(contains, error_of([&] { pass.add_sends({}); }), "already flow");
  EXPECT_EQ(pass.waiting(), 0u);
  EXPECT_EQ(map.all().size(), 1u);
  expect_same(map.get(sent[0]), one, 0, "the first");

  LocalPass wrong_shape(map, {});
  wrong_shape.add_sends(std::vector{send});
  wrong_shape.add_arrived(send, all_reached({at::ones({4}, at::kDouble), one}));
  EXPECT_PRED2(contains, error_of([&] { wrong_shape.run(deliver); }), "holdfast::SendFunction");
}

// x -> a -> b; a and b were sent.
struct TwoSends {
  Tensor x = leaf({3});
  Tensor a = x * 2;
  Tensor b = a * 3;
  std::shared_ptr<SendFunction> send_a = make_send(std::vector{a});
  std::shared_ptr<SendFunction> send_b = make_send(std::vector{b});
  const Tensor one = at::ones({3}, at::kDouble);
  GradientMap map;
  LocalPass pass{map, {}};

  void run(bool settled) {
    pass.run([](auto&&...) { FAIL(); }, settled);
  }
  // Only b's send has been added and has its gradient, but a's may follow.
  void run_first_half() {
    pass.add_sends(std::vector{send_b});
    pass.foresee(std::vector{send_a, send_b});
    pass.add_arrived(send_b, all_reached({one}));
    run(false);
    EXPECT_TRUE(pass.holds());
    EXPECT_EQ(pass.waiting(), 2u);  // b's function has run, a's and x wait
    EXPECT_FALSE(map.get(x).defined());
  }
};

TEST(LocalPass, holds_what_a_foreseen_send_leads_to_until_that_has_its_gradient) {
  TwoSends graph;
  graph.run_first_half();
  graph.pass.add_sends(std::vector{graph.send_a});
  EXPECT_FALSE(graph.pass.holds());
  graph.run(false);
  EXPECT_FALSE(graph.map.get(graph.x).defined());
  graph.pass.add_arrived(graph.send_a, all_reached({graph.one}));
  graph.run(false);
  EXPECT_EQ(graph.pass.waiting(), 0u);
  expect_same(graph.map.get(graph.x), graph.one * 8, 0, "both");
}

TEST(LocalPass, runs_what_it_holds_when_no_send_is_added_any_more) {
  TwoSends graph;
  graph.run_first_half();
  graph.run(true);
  EXPECT_FALSE(graph.pass.holds());
  EXPECT_EQ(graph.pass.waiting(), 0u);
  expect_same(graph.map.get(graph.x), graph.one * 6, 0, "one");
  EXPECT_PRED2(contains, error_of([&] { graph.pass.add_sends(std::vector{graph.send_a}); }), "already flow");
}

TEST(LocalPass, a_send_that_was_not_foreseen_cannot_lead_to_what_has_run) {
  TwoSends graph;
  graph.pass.add_sends(std::vector{graph.send_b});
  graph.pass.add_arrived(graph.send_b, all_reached({graph.one}));
  graph.run(false);
  EXPECT_EQ(graph.pass.waiting(), 0u);
  EXPECT_PRED2(contains, error_of([&] { graph.pass.add_sends(std::vector{graph.send_a}); }), "already flow");
}

TEST(LocalPass, names_what_waits) {
  Tensor x = leaf({3});
  Tensor h = x.tanh();
  auto send = make_send(std::vector{h.sin()});
  GradientMap map;
  LocalPass pass(map, {});
  pass.add_roots(std::vector<Root>{{(h * h).sum()}});
  pass.add_sends(std::vector{send});
  pass.run([](auto&&...) { FAIL(); });
  // The two roots' functions have run.
  EXPECT_EQ(pass.waiting(), 4u);
  EXPECT_EQ(pass.waiting_names(),
            "TanhBackward0, torch::autograd::AccumulateGrad, holdfast::SendFunction, SinBackward0");
  EXPECT_FALSE(map.get(x).defined());
}

TEST(LocalPass, stops_when_the_pass_has_ended) {
  Tensor x = leaf({3});
  auto ended = std::make_shared<std::atomic<bool>>(false);
  Tensor h = x * 2;
  h.register_hook([&](const Tensor&) { *ended = true; });
  GradientMap map;
  LocalPass pass(map, {.ended = ended});
  pass.add_roots(std::vector<Root>{{h.sum()}});
  pass.run([](auto&&...) { FAIL(); });
  EXPECT_EQ(pass.waiting(), 1u);
  EXPECT_FALSE(map.get(x).defined());
}

TEST(LocalPass, refuses_to_run_inside_grad) {
  struct Nested : torch::autograd::Function<Nested> {
    static Tensor forward(AutogradContext*, Tensor x) { return x.clone(); }
    static variable_list backward(AutogradContext*, variable_list gradients) {
      at::AutoGradMode grad_mode(true);
      SplitGraph().backward({{leaf({3}).tanh().sum()}});
      return gradients;
    }
  };
  Tensor x = leaf({3});
  EXPECT_PRED2(contains, error_of([&] { torch::autograd::grad({Nested::apply(x).sum()}, {x}); }), "cannot run inside");
  Nested::apply(x).sum().backward();
  expect_same(x.grad(), at::ones({3}, at::kDouble), 0, "inside backward()");
}

// The gradients come back while the pass runs, and nobody else holds on to the graph.
TEST(LocalPass, a_worker_can_send_to_itself) {
  Tensor x = leaf({3});
  auto send = make_send(std::vector{x * 2});
  GradientMap map;
  LocalPass pass(map, {});
  {
    Tensor received = at::ones({3}, at::kDouble).set_requires_grad(true);
    make_recv(std::vector{received}, {});
    EXPECT_EQ(pass.add_roots(std::vector<Root>{{(received.tanh() * received).sum()}}).size(), 1u);
  }
  EXPECT_EQ(pass.add_sends(std::vector{send}).size(), 0u);
  pass.run([&](const LocalPass::RecvPtr&, const MessageGradients& gradients) { pass.add_arrived(send, gradients); });
  EXPECT_EQ(pass.waiting(), 0u);
  EXPECT_TRUE(map.get(x).defined());
}

TEST(Functions, nothing_is_recorded_without_need) {
  Tensor x = leaf({3});
  EXPECT_EQ(make_send(std::vector{x.detach(), at::tensor({1})}), nullptr);
  at::NoGradGuard no_grad;
  EXPECT_EQ(make_send(std::vector{x}), nullptr);
}

// ---- long graphs and threads ----

// On a stack where one frame per function would not fit.
void run_on_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 512 << 10), 0);
  auto call = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(LocalPass, long_chains_need_no_stack) {
  constexpr int kLength = 40'000;
  run_on_small_stack([] {
    Tensor x = leaf({2});
    {
      SplitGraph split;
      Tensor y = x;
      for (int i = 0; i < kLength; ++i) y = y + 1;
      split.backward({{y.sum()}});
      expect_same(split.gradient(x), at::ones({2}, at::kDouble), 0, "on one worker");
    }
    SplitGraph split;
    Tensor y = x;
    for (uint32_t i = 0; i < kLength; ++i) y = split.move(i % 2, 1 - i % 2, y);
    split.backward({{y.sum()}});
    EXPECT_EQ(split.messages(), size_t{kLength});
    expect_same(split.gradient(x), at::ones({2}, at::kDouble), 0, "between workers");
  });
}

TEST(LocalPass, many_threads_use_the_same_parameters) {
  constexpr int kThreads = 4, kRounds = 50;
  Tensor x = leaf({3}), w = leaf({3});
  GradientMap common;
  std::barrier start(kThreads);
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      for (int round = 0; round < kRounds; ++round) {
        SplitGraph split(round);
        split.backward({{(split.move(1, 0, split.move(0, 1, x) * w) * (t + 1)).sum()}});
        expect_same(split.gradient(x), w.detach() * (t + 1), 0, "own map");
        LocalPass pass(common, {});
        pass.add_roots(std::vector<Root>{{(x * 1).sum()}});
        pass.run([](auto&&...) { FAIL(); });
      }
    });
  }
  threads.clear();
  expect_same(common.get(x), at::ones({3}, at::kDouble) * kThreads * kRounds, 0, "common map");
}

// The starting thread's state holds for functions and hooks, whichever thread runs them; grad mode is off.
TEST(LocalPass, restores_the_thread_local_state) {
  constexpr auto kKind = c10::DebugInfoKind::TEST_INFO;
  Tensor y = leaf({3}) * 2;
  bool grad_mode = true;
  c10::DebugInfoBase* seen = nullptr;
  y.register_hook([&](const Tensor&) {
    grad_mode = at::GradMode::is_enabled();
    seen = c10::ThreadLocalDebugInfo::get(kKind);
  });
  auto info = std::make_shared<c10::DebugInfoBase>();
  GradientMap map;
  std::optional<LocalPass> pass;
  {
    c10::DebugInfoGuard guard(kKind, info);
    pass.emplace(map, LocalPassOptions{});
  }
  pass->add_roots(std::vector<Root>{{y.sum()}});
  std::jthread([&] {
    pass->run([](auto&&...) { FAIL(); });
    EXPECT_TRUE(at::GradMode::is_enabled());
    EXPECT_EQ(c10::ThreadLocalDebugInfo::get(kKind), nullptr);
  }).join();
  EXPECT_FALSE(grad_mode);
  EXPECT_EQ(seen, info.get());
}

}  // namespace
}  // namespace holdfast::autograd
