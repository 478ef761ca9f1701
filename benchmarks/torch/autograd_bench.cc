// ./bench autograd: one training step (forward, backward, optimizer) of a model on two workers with small tensors,
// beside the same with torch.distributed.rpc, and the messages that a pass takes.
#include <holdfast/backward/backwards.h>
#include <holdfast/torch.h>

#include <ATen/Parallel.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tanh.h>
#include <fmt/format.h>
#include <torch/optim/sgd.h>

#include "../benchmarks.h"
#include "../peer_process.h"
#include "../worker_pair.h"

namespace holdfast::bench {

namespace {

struct Layer {
  Layer(int64_t inputs, int64_t outputs) : weight(at::rand({inputs, outputs}).set_requires_grad(true)) {}
  at::Tensor forward(const at::Tensor& x) { return at::tanh(at::matmul(x, weight)); }
  RRef<at::Tensor> parameter() { return current_worker().own(weight); }
  at::Tensor weight;
};

uint64_t pass_messages_sent_here() { return Backwards::of(current_worker().host()).messages_sent(); }

}  // namespace

void run_autograd(const Settings& settings, Report& report) {
  WorkerPair pair([](Options&) { at::set_num_threads(1); });
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
  steps_per_second(autograd::Mode::smart, 100);  // warm up
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
