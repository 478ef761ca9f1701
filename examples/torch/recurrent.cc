// A recurrent network whose large parts live elsewhere: the embedding table on worker1, the decoder on worker2, the GRU
// between them here, on worker0. It learns to repeat a stream of random symbols, each some steps later, so it must
// remember. Backward goes through the calls; it is cut after each segment (truncated back-propagation through time):
// the state goes on, its history does not. Start it with
//   holdfast run -n 3 build/release/bin/recurrent
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <cmath>

#include "example.h"

namespace hf = holdfast;
using torch::Tensor;

constexpr int64_t kFeatures = 32;
constexpr int64_t kHidden = 64;

struct Table : torch::nn::Module {
  Table(uint64_t seed, int64_t symbols) {
    torch::manual_seed(seed);
    table = register_module("table", torch::nn::Embedding(symbols, kFeatures));
  }
  Tensor look_up(Tensor symbols) { return table(symbols); }
  torch::nn::Embedding table{nullptr};
};

struct Decoder : torch::nn::Module {
  Decoder(uint64_t seed, int64_t symbols) {
    torch::manual_seed(seed);
    output = register_module("output", torch::nn::Linear(kHidden, symbols));
  }
  Tensor decode(Tensor states) { return output(states); }
  torch::nn::Linear output{nullptr};
};

// On whichever worker the module is: references to its parameters, which stay there.
std::vector<hf::RRef<Tensor>> parameters_of(torch::nn::Module& module) {
  std::vector<hf::RRef<Tensor>> references;
  for (const Tensor& parameter : module.parameters()) references.push_back(hf::current_worker().own(parameter));
  return references;
}

struct Network {
  Network(hf::Worker& worker, uint64_t seed, int64_t symbols)
      : table(worker.peer(1).make<Table>(seed + 1, symbols)), decoder(worker.peer(2).make<Decoder>(seed + 2, symbols)) {
    torch::manual_seed(seed);
    gru = torch::nn::GRU(kFeatures, kHidden);
  }
  std::vector<hf::RRef<Tensor>> parameters(hf::Worker& worker) const {
    std::vector<hf::RRef<Tensor>> all = table.call<parameters_of>();
    for (const hf::RRef<Tensor>& parameter : decoder.call<parameters_of>()) all.push_back(parameter);
    for (const Tensor& parameter : gru->parameters()) all.push_back(worker.own(parameter));
    return all;
  }
  // [time, batch] symbols in, [time, batch, symbols] guesses out. `state` is carried on.
  Tensor run(const Tensor& symbols, Tensor& state) {
    auto [states, last] = gru(table.call<&Table::look_up>(symbols), state);
    state = last;
    return decoder.call<&Decoder::decode>(states);
  }
  hf::RRef<Table> table;
  hf::RRef<Decoder> decoder;
  torch::nn::GRU gru{nullptr};
};

int lead(hf::Worker& worker, example::Arguments& arguments) {
  const int64_t segments = arguments.number("segments", 300);
  const int64_t length = arguments.number("length", 12);
  const int64_t delay = arguments.number("delay", 3);
  const int64_t symbols = arguments.number("symbols", 8, 2);
  const int64_t batch = arguments.number("batch", 32);
  const auto seed = static_cast<uint64_t>(arguments.number("seed", 1, 0));
  arguments.finish();

  Network network(worker, seed, symbols);
  hf::optim::DistributedOptimizer<torch::optim::Adam> optimizer(worker, network.parameters(worker), {/*lr=*/0.01});
  // One long stream for each row of the batch. What is to be said at a time is what was heard `delay` steps before.
  torch::manual_seed(seed);
  const Tensor stream = torch::randint(symbols, {delay + segments * length, batch}, torch::kLong);
  std::printf("worker1: embedding of %ld symbols; worker0: GRU; worker2: decoder\n", static_cast<long>(symbols));
  std::fflush(stdout);

  Tensor state = torch::zeros({1, batch, kHidden});
  example::Progress progress("recurrent", segments);
  const example::Stopwatch watch;
  double first_loss = 0, loss = 0, accuracy = 0;
  for (int64_t i = 0; i < segments; ++i) {
    const Tensor heard = stream.narrow(0, delay + i * length, length), wanted = stream.narrow(0, i * length, length);
    state = state.detach();  // the history ends here, and with it the last segment's context
    hf::autograd::Context context(worker);
    const Tensor guesses = network.run(heard, state).flatten(0, 1);
    const Tensor segment_loss = torch::cross_entropy_loss(guesses, wanted.flatten());
    context.backward({segment_loss});
    optimizer.step(context);

    const double share = std::max(0.05, 1.0 / static_cast<double>(i + 1));
    loss += share * (segment_loss.item<double>() - loss);
    accuracy += share * (guesses.argmax(1).eq(wanted.flatten()).to(torch::kDouble).mean().item<double>() - accuracy);
    if (i == 0) first_loss = loss;
    char note[100];
    std::snprintf(note, sizeof note, "loss %.3f  accuracy %5.1f %%  %6.0f symbols/s", loss, 100 * accuracy,
                  static_cast<double>((i + 1) * length * batch) / watch.seconds());
    progress.show(i + 1, note);
  }
  std::printf("a delay of %ld: loss %.3f at first (guessing has %.3f), %.3f at last; %.1f %% right\n",
              static_cast<long>(delay), first_loss, std::log(static_cast<double>(symbols)), loss, 100 * accuracy);
  return 0;
}

int main(int argc, char** argv) { return example::run("recurrent", 3, argc, argv, lead); }
