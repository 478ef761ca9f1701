// A parameter server: rank 0 owns the model; the others get a reference to it, and each fits it to data of its own by
// calling functions on it, where it is. Start it with `holdfast run -n 4 parameter_server`.
#include <holdfast/holdfast.h>

#include <cstdio>
#include <exception>
#include <mutex>
#include <random>
#include <vector>

namespace hf = holdfast;

// A line y = weight * x + bias. It lives on its owner, and calls from several workers run at the same time.
class Model {
 public:
  std::vector<double> pull() {
    std::lock_guard lock(mutex_);
    return {weight_, bias_};
  }
  void push(double weight_gradient, double bias_gradient) {
    std::lock_guard lock(mutex_);
    weight_ -= 0.05 * weight_gradient;
    bias_ -= 0.05 * bias_gradient;
  }

 private:
  std::mutex mutex_;
  double weight_ = 0, bias_ = 0;
};

// Runs on each of the others: points near y = 3x + 1, the same ones in every run.
double train(hf::RRef<Model> model, int steps) {
  std::mt19937 random(static_cast<unsigned>(hf::current_worker().rank()));
  std::uniform_real_distribution<double> place(-1, 1);
  std::normal_distribution<double> noise(0, 0.05);
  double loss = 0;
  for (int step = 0; step < steps; ++step) {
    const double x = place(random), y = 3 * x + 1 + noise(random);
    const std::vector<double> parameters = model.call<&Model::pull>();
    const double error = parameters[0] * x + parameters[1] - y;
    model.call<&Model::push>(2 * error * x, 2 * error);
    loss += error * error;
  }
  return loss / steps;
}

int main() try {
  hf::Worker worker(hf::Options::from_env());
  if (worker.rank() == 0) {
    hf::RRef<Model> model = worker.self().make<Model>();
    std::vector<hf::Future<double>> losses;
    for (int rank = 1; rank < worker.world_size(); ++rank) {
      losses.push_back(worker.peer(rank).async<train>(model, 500));
    }
    for (size_t i = 0; i < losses.size(); ++i) std::printf("worker%zu: mean loss %.4f\n", i + 1, losses[i].get());
    const std::vector<double> fitted = model.call<&Model::pull>();
    std::printf("fitted: y = %.1f x + %.1f\n", fitted[0], fitted[1]);
  }
  worker.shutdown();  // also says which objects are still referred to
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "parameter_server: %s\n", error.what());
  return 1;
}
