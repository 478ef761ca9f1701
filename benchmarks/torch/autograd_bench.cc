// ./bench autograd: one training step (forward, backward, optimizer) of a model on two workers with small tensors,
// beside the same with torch.distributed.rpc, and the messages that a pass takes. Then a model of three layers, each on
// a worker of its own with 1 ms of work, beside the same in one process.
#include <holdfast/backward/backwards.h>
#include <holdfast/base/awake_cores.h>
#include <holdfast/torch.h>

#include <cmath>
#include <optional>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>
#include <torch/optim/sgd.h>

#include "../benchmarks.h"
#include "../peer_process.h"
#include "../worker_crowd.h"
#include "../worker_pair.h"

namespace holdfast::bench {

namespace {

// Seconds that a step takes.
template <class Step>
double time_of(Step&& step, size_t count = 1) {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(count);
}

struct Layer {
  // Small enough that tanh does not saturate: its gradients would be denormal numbers, which are slow.
  Layer(int64_t inputs, int64_t outputs)
      : weight(at::rand({inputs, outputs}).sub(0.5).div(std::sqrt(double(inputs))).set_requires_grad(true)) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y;
    forward_seconds += time_of([&] { y = at::tanh(at::matmul(x, weight)); });
    return y;
  }
  RRef<at::Tensor> parameter() { return current_worker().own(weight); }
  double take_forward_seconds() { return std::exchange(forward_seconds, 0); }
  at::Tensor weight;
  double forward_seconds = 0;  // all together
};

// Three layers one after the other, here and over three workers. The ideal is what the work takes without them.
class ThreeWorkers {
 public:
  ThreeWorkers() : crowd_(3, {.before_join = [] { at::set_num_threads(1); }}) {}

  void run(const Settings& settings, Report& report) {
    crowd_.start();
    Worker& worker = crowd_.worker();
    Layer first(kWidth, kWidth), second(kWidth, kWidth), third(kWidth, kWidth);
    torch::optim::SGD sgd({first.weight, second.weight, third.weight}, 0.01);
    RRef<Layer> there[] = {worker.peer(1).make<Layer>(kWidth, kWidth), worker.peer(2).make<Layer>(kWidth, kWidth)};
    optim::DistributedOptimizer<torch::optim::SGD> optimizer(
        worker, {worker.own(first.weight), there[0].call<&Layer::parameter>(), there[1].call<&Layer::parameter>()},
        {/*lr=*/0.01});

    at::Tensor x;
    const auto alone = [&] {
      sgd.zero_grad();
      third.forward(second.forward(first.forward(x))).sum().backward();
      sgd.step();
    };
    double call_seconds = 0;  // of the second layer's forward, all together
    const auto together = [&] {
      autograd::Context context(worker);
      const at::Tensor first_y = first.forward(x);
      at::Tensor second_y;
      call_seconds += time_of([&] { second_y = there[0].call<&Layer::forward>(first_y); });
      const at::Tensor y = there[1].call<&Layer::forward>(second_y);
      context.backward({y.sum()});
      optimizer.step(context);
    };
    // As many rows as take 3 ms.
    int64_t rows = 64;
    x = at::rand({rows, kWidth});
    time_of(alone, 20);
    rows = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(rows) * 3e-3 / time_of(alone, 100)));
    x = at::rand({rows, kWidth});
    time_of(together, 50);
    std::vector<double> ideal, seen, part, seen_awake, part_awake, layer_alone, layer_there, call;
    std::string why_asleep;
    const size_t count = settings.scaled(300);
    const auto us_each = [&](double seconds) { return seconds / static_cast<double>(count) * 1e6; };
    second.take_forward_seconds();
    there[0].call<&Layer::take_forward_seconds>();
    for (size_t round = 0; round < settings.rounds(); ++round) {
      call_seconds = 0;
      ideal.push_back(time_of(alone, count) * 1e3);
      seen.push_back(time_of(together, count) * 1e3);
      part.push_back(ideal.back() / seen.back());
      layer_alone.push_back(us_each(second.take_forward_seconds()));
      layer_there.push_back(us_each(there[0].call<&Layer::take_forward_seconds>()));
      call.push_back(us_each(call_seconds));
      Result<std::unique_ptr<AwakeCores>> awake = AwakeCores::keep();
      if (!awake) {
        why_asleep = awake.failure().message;
        continue;
      }
      const double ideal_awake = time_of(alone, count) * 1e3;
      seen_awake.push_back(time_of(together, count) * 1e3);
      part_awake.push_back(ideal_awake / seen_awake.back());
      second.take_forward_seconds();
      there[0].call<&Layer::take_forward_seconds>();
    }
    report.add("a step of three layers in one process", "ms", ideal, 2);
    report.add("the same, each layer on a worker of its own", "ms", seen, 2);
    report.add("ideal / seen (aim 0.95)", "ratio", part, 2);
    report.add("of it, forward of one layer, in one process", "us", layer_alone, 0);
    report.add("of it, forward of one layer, on a worker of its own", "us", layer_there, 0);
    report.add("of it, the call around that", "us", call, 0);
    if (why_asleep.empty()) {
      report.add("each layer on a worker of its own, cores kept awake", "ms", seen_awake, 2);
      report.add("ideal / seen, cores kept awake (aim 0.95)", "ratio", part_awake, 2);
    } else {
      fmt::print("  not measured with cores kept awake: {}\n", why_asleep);
    }
    for (RRef<Layer>& layer : there) layer = {};
  }

 private:
  static constexpr int64_t kWidth = 256;
  WorkerCrowd crowd_;
};

uint64_t pass_messages_sent_here() { return Backwards::of(current_worker().host()).messages_sent(); }

}  // namespace

void run_autograd(const Settings& settings, Report& report) {
  // Both fork, so both before this process has any thread.
  std::optional<ThreeWorkers> three(std::in_place);
  WorkerPair pair([](Options&) { at::set_num_threads(1); });
  at::set_num_threads(1);
  three->run(settings, report);
  three.reset();  // before others are here to be compared with: they would be in its way
  PeerProcess original({"autograd_original.py"}, "python3-torch and python3-numpy");
  pair.start();
  Worker& worker = pair.worker();
  const Peer peer = pair.peer();

  RRef<Layer> layer = peer.make<Layer>(int64_t{16}, int64_t{16});
  const at::Tensor x = at::rand({8, 16});
  const at::Tensor head = at::rand({16, 4}).set_requires_grad(true);
  optim::DistributedOptimizer<torch::optim::SGD> optimizer(worker, {layer.call<&Layer::parameter>(), worker.own(head)},
                                                           {/*lr=*/0.01});
  const auto step = [&](autograd::Mode mode) {
    autograd::Context context(worker);
    const at::Tensor loss = at::matmul(layer.call<&Layer::forward>(x), head).sum();
    context.backward({loss}, {.mode = mode});
    optimizer.step(context);
  };
  const auto steps_per_second = [&](autograd::Mode mode, size_t count) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < count; ++i) step(mode);
    return static_cast<double>(count) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };

  const auto messages_per_step = [&](autograd::Mode mode) {
    const auto sent = [&] {
      return Backwards::of(worker.host()).messages_sent() + peer.call<pass_messages_sent_here>();
    };
    const uint64_t before = sent();
    constexpr size_t kSteps = 100;
    for (size_t i = 0; i < kSteps; ++i) step(mode);
    return static_cast<double>(sent() - before) / kSteps;
  };

  std::vector<double> smart, fast, theirs, ratio;
  // Warm up; the original first, as its start, which takes seconds, would be in our way.
  if (original.there()) original.ask("steps 20");
  steps_per_second(autograd::Mode::smart, 100);
  for (size_t round = 0; round < settings.rounds(); ++round) {
    smart.push_back(steps_per_second(autograd::Mode::smart, settings.scaled(2000)));
    fast.push_back(steps_per_second(autograd::Mode::fast, settings.scaled(2000)));
    if (!original.there()) continue;
    theirs.push_back(original.ask(fmt::format("steps {}", settings.scaled(200))));
    ratio.push_back(smart.back() / theirs.back());
  }
  report.add("training steps, SMART", "per second", smart, 0);
  report.add("training steps, FAST", "per second", fast, 0);
  if (original.there()) {
    report.add("the same with torch.distributed.rpc (Python)", "per second", theirs, 0);
    report.add("SMART / torch.distributed.rpc (aim 10)", "ratio", ratio, 1);
  } else {
    fmt::print("  torch.distributed.rpc is not here to compare with: {}\n", original.why_not());
  }
  report.add("a pass and its context's end, SMART", "messages", {messages_per_step(autograd::Mode::smart)}, 2);
  report.add("a pass and its context's end, FAST", "messages", {messages_per_step(autograd::Mode::fast)}, 2);
  layer = {};
}

}  // namespace holdfast::bench
