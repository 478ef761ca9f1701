// A pipeline: a deep model in stages, one on each worker but the first. The batch is cut into micro-batches; while one
// is in the second stage the next is in the first. Worker 0 starts all of it without waiting: what is not there yet is
// waited for by whoever needs it. Then the same without the pipeline: the whole batch in the first stage, then the
// whole batch in the second. Loss and gradients are the same; the times differ. Start it with
//   holdfast run -n 4 build/release/bin/pipeline
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cmath>
#include <mutex>

#include "example.h"

namespace hf = holdfast;
using torch::Tensor;

// A few layers. It has one device, so to speak: one micro-batch at a time.
class Stage {
 public:
  Stage(uint64_t seed, int64_t width, int64_t layers) {
    torch::manual_seed(seed);
    for (int64_t i = 0; i < layers; ++i) layers_.push_back(torch::nn::Linear(width, width));
  }
  // A coroutine: while the stage before is still at work on the input, no thread waits here.
  hf::Task<Tensor> forward(hf::RRef<Tensor> input) {
    Tensor x = co_await input.fetch();
    const std::lock_guard lock(mutex_);
    for (torch::nn::Linear& layer : layers_) x = torch::relu(layer(x)) + x;
    co_return x;
  }
  // Of the gradients that the caller's context has gathered here.
  double gradient_norm() {
    double squares = 0;
    for (torch::nn::Linear& layer : layers_) {
      for (const Tensor& parameter : layer->parameters()) {
        squares += hf::autograd::current_context().gradient(parameter).square().sum().item<double>();
      }
    }
    return std::sqrt(squares);
  }

 private:
  std::mutex mutex_;
  std::vector<torch::nn::Linear> layers_;
};

struct Measured {
  double seconds = 0, loss = 0, gradient_norm = 0;
};

// Forward and backward of one batch in that many pieces. Each piece goes through all stages; only then come the losses.
Measured step(hf::Worker& worker, const std::vector<hf::RRef<Stage>>& stages, const Tensor& batch, int64_t pieces) {
  const example::Stopwatch watch;
  hf::autograd::Context context(worker);
  std::vector<hf::Future<Tensor>> outputs;
  for (const Tensor& piece : batch.chunk(pieces)) {
    hf::RRef<Tensor> x = worker.own(piece);
    for (const hf::RRef<Stage>& stage : stages) x = stage.remote<&Stage::forward>(x);  // returns at once
    outputs.push_back(x.fetch());
  }
  Measured result;
  std::vector<Tensor> losses;
  for (const hf::Future<Tensor>& output : outputs) {
    losses.push_back(output.get().square().sum() / batch.numel());
    result.loss += losses.back().item<double>();
  }
  context.backward(losses);  // the pipeline runs backwards as well: gradients leave a stage as they are made
  result.seconds = watch.seconds();
  result.gradient_norm = stages.front().call<&Stage::gradient_norm>();
  return result;
}

int lead(hf::Worker& worker, example::Arguments& arguments) {
  const int64_t batch_size = arguments.number("batch", 512);
  const int64_t pieces = arguments.number("micro-batches", 8);
  const int64_t width = arguments.number("width", 256);
  const int64_t layers = arguments.number("layers", 4);
  const int64_t rounds = arguments.number("rounds", 5);
  arguments.finish();
  if (pieces > batch_size) throw std::invalid_argument("more micro-batches than rows in the batch");

  std::vector<hf::RRef<Stage>> stages;
  for (int rank = 1; rank < worker.world_size(); ++rank)
    stages.push_back(worker.peer(rank).make<Stage>(rank, width, layers));
  torch::manual_seed(0);
  const Tensor batch = torch::randn({batch_size, width});
  step(worker, stages, batch, pieces);  // the first one pays for connections and memory

  example::Progress progress("pipeline", rounds);
  Measured whole, pipelined;  // the fastest of each: they take turns, so that both meet the same noise
  double difference = 0;
  for (int64_t round = 1; round <= rounds; ++round) {
    const Measured one = step(worker, stages, batch, 1), many = step(worker, stages, batch, pieces);
    if (round == 1 || one.seconds < whole.seconds) whole = one;
    if (round == 1 || many.seconds < pipelined.seconds) pipelined = many;
    difference = std::max({difference, std::abs(one.loss - many.loss) / one.loss,
                           std::abs(one.gradient_norm - many.gradient_norm) / one.gradient_norm});
    progress.show(round, "round " + std::to_string(round));
  }
  std::printf("%zu stages of %ld layers, %ld rows of %ld numbers\n", stages.size(), static_cast<long>(layers),
              static_cast<long>(batch_size), static_cast<long>(width));
  std::printf("one stage after the other: %.1f ms\n", 1e3 * whole.seconds);
  std::printf("pipeline, %ld micro-batches: %.1f ms\n", static_cast<long>(pieces), 1e3 * pipelined.seconds);
  std::printf("ratio: %.2f (the most is the number of stages, or of cores)\n", whole.seconds / pipelined.seconds);
  const bool same = difference < 1e-4;  // sums of floats in another order
  std::printf("loss and gradients: largest relative difference %.1e: %s\n", difference,
              same ? "the same" : "NOT the same");
  return same ? 0 : 1;
}

int main(int argc, char** argv) { return example::run("pipeline", 2, argc, argv, lead); }
