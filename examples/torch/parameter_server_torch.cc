// A parameter server with libtorch. Worker 0 owns the model and the optimizer; every other worker is a trainer with
// data of its own, from which it computes gradients. The server waits for the gradients of all trainers, takes one step
// with their average, and answers them all with the new parameters: so the trainers go in step, and nobody polls. A
// trainer that waits for its answer holds no thread of the server. Start it with
//   holdfast run -n 4 build/release/bin/parameter_server_torch
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <cmath>
#include <mutex>

#include "example.h"

namespace hf = holdfast;
using torch::Tensor;

// Tells to which of two spirals, one inside the other, a point belongs.
struct Model : torch::nn::Module {
  explicit Model(uint64_t seed) {
    torch::manual_seed(seed);
    first = register_module("first", torch::nn::Linear(2, 64));
    second = register_module("second", torch::nn::Linear(64, 64));
    output = register_module("output", torch::nn::Linear(64, 2));
  }
  Tensor forward(const Tensor& points) { return output(torch::tanh(second(torch::tanh(first(points))))); }
  torch::nn::Linear first{nullptr}, second{nullptr}, output{nullptr};
};

struct Points {
  Tensor places, spirals;
};
Points make_points(uint64_t seed, int64_t count) {
  torch::manual_seed(seed);
  const Tensor spirals = torch::randint(2, {count}, torch::kLong);
  const Tensor turn = torch::rand({count}).sqrt() * 1.5 * 2 * M_PI;
  const Tensor angle = turn + spirals * M_PI;
  const Tensor radius = turn / (3 * M_PI) + 0.01 * torch::randn({count});
  return {torch::stack({radius * torch::cos(angle), radius * torch::sin(angle)}, 1), spirals};
}

class Server {
 public:
  Server(uint64_t seed, int64_t trainers, double rate)
      : trainers_(static_cast<size_t>(trainers)), model_(seed), optimizer_(model_.parameters(), rate) {}

  std::vector<Tensor> parameters() {
    const std::lock_guard lock(mutex_);
    return copies();
  }
  // The answer comes when all trainers have pushed. Calls come at the same time, on several threads.
  hf::Future<std::vector<Tensor>> push(std::vector<Tensor> gradients) {
    hf::Promise<std::vector<Tensor>> promise;
    hf::Future<std::vector<Tensor>> answer = promise.future();
    std::vector<hf::Promise<std::vector<Tensor>>> answered;
    std::vector<Tensor> fresh;
    {
      const std::lock_guard lock(mutex_);
      gradients_.push_back(std::move(gradients));
      waiting_.push_back(std::move(promise));
      if (waiting_.size() == trainers_) {
        step();
        fresh = copies();
        answered.swap(waiting_);
      }
    }
    for (hf::Promise<std::vector<Tensor>>& each : answered) each.set_value(fresh);  // these are the answers
    return answer;
  }
  double accuracy(uint64_t seed) {
    const Points points = make_points(seed, 2000);
    const std::lock_guard lock(mutex_);
    const torch::NoGradGuard no_grad;
    return model_.forward(points.places).argmax(1).eq(points.spirals).to(torch::kDouble).mean().item<double>();
  }

 private:
  void step() {
    const std::vector<Tensor> parameters = model_.parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      Tensor sum = torch::zeros_like(parameters[i]);
      for (const std::vector<Tensor>& of_trainer : gradients_) sum += of_trainer.at(i);
      parameters[i].mutable_grad() = sum / static_cast<double>(trainers_);
    }
    optimizer_.step();
    gradients_.clear();
  }
  // Copies, since answers may still be on their way when the next step changes the originals.
  std::vector<Tensor> copies() {
    std::vector<Tensor> result;
    for (const Tensor& parameter : model_.parameters()) result.push_back(parameter.detach().clone());
    return result;
  }

  const size_t trainers_;
  std::mutex mutex_;  // guards what follows
  Model model_;
  torch::optim::Adam optimizer_;
  std::vector<std::vector<Tensor>> gradients_;
  std::vector<hf::Promise<std::vector<Tensor>>> waiting_;
};

// Runs on each trainer. Returns the mean loss of the last tenth.
double train(hf::RRef<Server> server, int64_t steps, int64_t batch, uint64_t seed) {
  const Points points = make_points(seed, 1000);
  Model model(0);  // a place for the parameters that the server sends
  const std::vector<Tensor> own = model.parameters();
  std::vector<Tensor> fresh = server.call<&Server::parameters>();
  double loss_sum = 0;
  for (int64_t i = 0; i < steps; ++i) {
    for (size_t k = 0; k < own.size(); ++k) own[k].set_data(fresh.at(k));
    model.zero_grad();
    const Tensor rows = torch::randint(points.places.size(0), {batch}, torch::kLong);
    const Tensor loss = torch::cross_entropy_loss(model.forward(points.places.index_select(0, rows)),
                                                  points.spirals.index_select(0, rows));
    loss.backward();
    std::vector<Tensor> gradients;
    for (const Tensor& parameter : own) gradients.push_back(parameter.grad());
    fresh = server.call<&Server::push>(gradients);
    if (i >= steps - (steps + 9) / 10) loss_sum += loss.item<double>();
  }
  return loss_sum / static_cast<double>((steps + 9) / 10);
}

int lead(hf::Worker& worker, example::Arguments& arguments) {
  const int64_t steps = arguments.number("steps", 600);
  const int64_t batch = arguments.number("batch", 64);
  const auto seed = static_cast<uint64_t>(arguments.number("seed", 1, 0));
  arguments.finish();
  const int64_t trainers = worker.world_size() - 1;
  const hf::RRef<Server> server = worker.self().make<Server>(seed, trainers, 0.01);
  const uint64_t unseen = seed + 1000;
  std::printf("before: %.1f %% of unseen points right\n", 100 * server.call<&Server::accuracy>(unseen));
  const example::Stopwatch watch;
  std::vector<hf::Future<double>> losses;
  for (int rank = 1; rank <= trainers; ++rank) {
    losses.push_back(worker.peer(rank)
                         .with_timeout(hf::kForever)
                         .async<train>(server, steps, batch, seed + static_cast<uint64_t>(rank)));
  }
  for (size_t i = 0; i < losses.size(); ++i) std::printf("worker%zu: loss %.4f at the end\n", i + 1, losses[i].get());
  std::printf("after %ld steps of %ld trainers: %.1f %% of unseen points right, %.0f samples/s\n",
              static_cast<long>(steps), static_cast<long>(trainers), 100 * server.call<&Server::accuracy>(unseen),
              static_cast<double>(steps * batch * trainers) / watch.seconds());
  return 0;
}

int main(int argc, char** argv) { return example::run("parameter_server_torch", 2, argc, argv, lead); }
