// A parameter server in C++ for trainers in Python (trainer.py): `holdfast run -n 3 ./run`. Rank 0 is the server.
//
// Trainers call "ps.pull" and "ps.push" by name; the server calls "trainer.loss" of each when they are done.
#include <cstdio>
#include <mutex>

#include <ATen/ops/zeros.h>

#include <holdfast/torch.h>

namespace hf = holdfast;

namespace {

std::mutex mutex;  // guards the model
at::Tensor weights = at::zeros({8});

at::Tensor pull() {
  std::lock_guard lock(mutex);
  return weights.clone();
}

void push(const at::Tensor& gradient, double rate) {
  std::lock_guard lock(mutex);
  weights = weights - gradient * rate;
}

int64_t finished = 0;
hf::Promise<void> all_finished;

void finish(int64_t trainers) {
  std::lock_guard lock(mutex);
  if (++finished == trainers) all_finished.set_value();
}

}  // namespace

HOLDFAST_EXPORT_AS(pull, "ps.pull");
HOLDFAST_EXPORT_AS(push, "ps.push");
HOLDFAST_EXPORT_AS(finish, "ps.finish");

int main() {
  hf::Worker worker(hf::Options::from_env());
  hf::Future<void> done = all_finished.future();
  done.wait();
  bool learnt = true;
  for (int rank = 1; rank < worker.world_size(); ++rank) {
    const auto loss = worker.peer(rank).call_named<double>("trainer.loss", pull());
    std::printf("%s: loss %.4f\n", worker.peer(rank).name().c_str(), loss);
    learnt = learnt && loss < 0.5;
  }
  worker.shutdown();
  return learnt ? 0 : 1;
}
