// Trains one model that is split over three workers. It reads Holdfast's own documents and learns to guess the next
// character from the sixteen before it:
//   worker1  the embedding: what each character means
//   worker2  the middle: two layers over the sixteen
//   worker3  the head: a guess, and the loss
//   worker0  has the text, and leads
// Parameters never leave their owners, and what one part computes goes to the next one directly. Then worker0 trains
// the same model alone, in one process: the losses must be the same. Start it, in the root of the repository, with
//   holdfast run -n 4 build/release/bin/train
// Only what is used of <torch/torch.h>, which takes half as long again to compile.
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "example.h"

namespace hf = holdfast;
using torch::Tensor;

constexpr int64_t kWindow = 16;  // characters that the model sees
constexpr int64_t kFeatures = 24;
constexpr int64_t kHidden = 128;

// The parts: ordinary modules, which know nothing of workers. The seed makes them the same wherever they are made.
struct Embedding : torch::nn::Module {
  Embedding(uint64_t seed, int64_t characters) {
    torch::manual_seed(seed);
    table = register_module("table", torch::nn::Embedding(characters, kFeatures));
  }
  Tensor forward(Tensor windows) { return table(windows).flatten(1); }
  torch::nn::Embedding table{nullptr};
};

struct Middle : torch::nn::Module {
  explicit Middle(uint64_t seed) {
    torch::manual_seed(seed + 1);
    first = register_module("first", torch::nn::Linear(kWindow * kFeatures, kHidden));
    second = register_module("second", torch::nn::Linear(kHidden, kHidden));
  }
  Tensor forward(Tensor x) { return torch::tanh(second(torch::tanh(first(x)))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

struct Outcome {
  Tensor loss;
  int64_t correct = 0;  // guesses
  HOLDFAST_FIELDS(Outcome, loss, correct)
};

struct Head : torch::nn::Module {
  Head(uint64_t seed, int64_t characters) {
    torch::manual_seed(seed + 2);
    output = register_module("output", torch::nn::Linear(kHidden, characters));
  }
  Tensor forward(Tensor hidden) { return output(hidden); }
  Outcome compare(Tensor hidden, Tensor next) {
    const Tensor guesses = forward(hidden);
    return {torch::cross_entropy_loss(guesses, next), guesses.argmax(1).eq(next).sum().item<int64_t>()};
  }
  torch::nn::Linear output{nullptr};
};

// These run where the part is. What the part before has computed comes from there, not from worker0.
Tensor pass_on(Middle& middle, hf::RRef<Tensor> input) { return middle.forward(input.to_here()); }
Tensor guess(Head& head, hf::RRef<Tensor> hidden) { return head.forward(hidden.to_here()); }
Outcome compare(Head& head, hf::RRef<Tensor> hidden, Tensor next) { return head.compare(hidden.to_here(), next); }
std::vector<hf::RRef<Tensor>> parameters_of(torch::nn::Module& part) {
  std::vector<hf::RRef<Tensor>> references;
  for (const Tensor& parameter : part.parameters()) references.push_back(hf::current_worker().own(parameter));
  return references;
}

// The model as worker0 has it: three references.
struct SplitModel {
  SplitModel(hf::Worker& worker, uint64_t seed, int64_t characters)
      : embedding(worker.peer(1).make<Embedding>(seed, characters)),
        middle(worker.peer(2).make<Middle>(seed)),
        head(worker.peer(3).make<Head>(seed, characters)) {}
  hf::RRef<Tensor> hidden(const Tensor& windows) const {
    return middle.remote<pass_on>(embedding.remote<&Embedding::forward>(windows));
  }
  Outcome run(const Tensor& windows, const Tensor& next) const { return head.call<compare>(hidden(windows), next); }
  std::vector<hf::RRef<Tensor>> parameters() const {
    std::vector<hf::RRef<Tensor>> all;
    for (auto& part : {embedding.call<parameters_of>(), middle.call<parameters_of>(), head.call<parameters_of>()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }
  hf::RRef<Embedding> embedding;
  hf::RRef<Middle> middle;
  hf::RRef<Head> head;
};

// The text as numbers, one for each different character.
struct Text {
  explicit Text(const std::filesystem::path& root) {
    std::vector<std::filesystem::path> files{root / "README.md", root / "ARCHITECTURE.md", root / "CONTRIBUTING.md"};
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(root / "docs", error)) {
      if (entry.path().extension() == ".md") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    std::stringstream all;
    for (const auto& file : files) all << std::ifstream(file).rdbuf();
    const std::string text = all.str();
    if (text.size() < 10'000) {
      throw std::invalid_argument("there is little to read in README.md and docs/*.md below " + root.string() +
                                  ": start this in the root of the repository, or say --text FOLDER");
    }
    alphabet.assign(text.begin(), text.end());
    std::sort(alphabet.begin(), alphabet.end());
    alphabet.erase(std::unique(alphabet.begin(), alphabet.end()), alphabet.end());
    std::vector<int64_t> numbers;
    for (const char c : text) numbers.push_back(static_cast<int64_t>(alphabet.find(c)));
    const Tensor windows = torch::tensor(numbers).unfold(0, kWindow + 1, 1);
    const int64_t kept_back = windows.size(0) / 20;
    training = windows.narrow(0, 0, windows.size(0) - kept_back);
    unseen = windows.narrow(0, windows.size(0) - kept_back, kept_back);
  }
  std::string alphabet;
  Tensor training, unseen;  // each row: a window, and the character after it
};

struct Settings {
  int64_t steps, batch;
  uint64_t seed;
  hf::autograd::Mode mode;
};
struct Run {
  std::vector<double> losses;
  double samples_per_s = 0;
};

// The loop is the same for both models. `step` trains on one batch.
template <class Step>
Run train(const std::string& title, const Text& text, const Settings& settings, Step step) {
  torch::manual_seed(settings.seed);  // the same batches each time
  example::Progress progress(title, settings.steps);
  const example::Stopwatch watch;
  Run run;
  double loss = 0, accuracy = 0;  // averages of the last steps
  for (int64_t i = 1; i <= settings.steps; ++i) {
    const Tensor rows =
        text.training.index_select(0, torch::randint(text.training.size(0), settings.batch, torch::kLong));
    const Outcome outcome = step(rows.narrow(1, 0, kWindow), rows.select(1, kWindow));
    run.losses.push_back(outcome.loss.template item<double>());
    const double share = std::max(0.02, 1.0 / static_cast<double>(i));
    loss += share * (run.losses.back() - loss);
    accuracy += share * (static_cast<double>(outcome.correct) / static_cast<double>(settings.batch) - accuracy);
    run.samples_per_s = static_cast<double>(i * settings.batch) / watch.seconds();
    char note[100];
    std::snprintf(note, sizeof note, "step %4ld  loss %.3f  accuracy %4.1f %%  %6.0f samples/s", static_cast<long>(i),
                  loss, 100 * accuracy, run.samples_per_s);
    progress.show(i, note);
  }
  return run;
}

template <class Optimizer, class Options>
Run train_split(hf::Worker& worker, const SplitModel& model, const Text& text, const Settings& settings,
                Options options) {
  hf::optim::DistributedOptimizer<Optimizer> optimizer(worker, model.parameters(), options);
  return train("4 workers ", text, settings, [&](const Tensor& windows, const Tensor& next) {
    hf::autograd::Context context(worker);  // what is computed from here on is recorded, on every worker
    const Outcome outcome = model.run(windows, next);
    context.backward({outcome.loss}, {.mode = settings.mode});
    optimizer.step(context);  // each owner changes its own parameters
    return outcome;
  });
}

template <class Optimizer, class Options>
Run train_alone(const Text& text, const Settings& settings, Options options) {
  Embedding embedding(settings.seed, static_cast<int64_t>(text.alphabet.size()));
  Middle middle(settings.seed);
  Head head(settings.seed, static_cast<int64_t>(text.alphabet.size()));
  std::vector<Tensor> parameters = embedding.parameters();
  for (const Tensor& parameter : middle.parameters()) parameters.push_back(parameter);
  for (const Tensor& parameter : head.parameters()) parameters.push_back(parameter);
  Optimizer optimizer(parameters, options);
  return train("1 process ", text, settings, [&](const Tensor& windows, const Tensor& next) {
    optimizer.zero_grad();
    const Outcome outcome = head.compare(middle.forward(embedding.forward(windows)), next);
    outcome.loss.backward();
    optimizer.step();
    return outcome;
  });
}

void show_what_it_learned(const SplitModel& model, const Text& text) {
  const Tensor rows = text.unseen;
  const Outcome outcome = model.run(rows.narrow(1, 0, kWindow), rows.select(1, kWindow));
  std::printf("On %ld characters that it never saw: loss %.3f, %.1f %% right\n", static_cast<long>(rows.size(0)),
              outcome.loss.item<double>(),
              100.0 * static_cast<double>(outcome.correct) / static_cast<double>(rows.size(0)));
  std::string sample;
  Tensor window = rows.narrow(1, 0, kWindow)[0].unsqueeze(0);
  for (int i = 0; i < 160; ++i) {
    const Tensor chances = torch::softmax(model.head.call<guess>(model.hidden(window)).detach() / 0.6, 1);
    const Tensor next = torch::multinomial(chances, 1);
    window = torch::cat({window.narrow(1, 1, kWindow - 1), next}, 1);
    const char c = text.alphabet[static_cast<size_t>(next.item<int64_t>())];
    sample += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  std::printf("What it writes itself: ...%s...\n", sample.c_str());
}

// The arithmetic is the same and in the same order, so on one machine the losses are the same to the last bits. Workers
// on processors of different kinds may round differently, and training makes more of it with each step: hence 1e-4.
constexpr double kTolerance = 1e-4;

int report(const Run& split, const Run& alone) {
  double largest = 0;
  for (size_t i = 0; i < split.losses.size(); ++i) {
    largest = std::max(largest, std::abs(split.losses[i] - alone.losses[i]) / alone.losses[i]);
  }
  const bool same = largest <= kTolerance;  // false for NaN, too
  std::printf("Loss: %.3f at the first step, %.3f at the last; %.0f samples/s with 4 workers, %.0f in one process\n",
              split.losses.front(), split.losses.back(), split.samples_per_s, alone.samples_per_s);
  std::printf("The losses of both: largest relative difference %.1e: %s (tolerance %.0e)\n", largest,
              same ? "the same" : "NOT the same", kTolerance);
  return same ? 0 : 1;
}

template <class Optimizer, class Options>
int compare_runs(hf::Worker& worker, const Text& text, const Settings& settings, Options options) {
  const SplitModel model(worker, settings.seed, static_cast<int64_t>(text.alphabet.size()));
  const Run split = train_split<Optimizer>(worker, model, text, settings, options);
  const Run alone = train_alone<Optimizer>(text, settings, options);
  show_what_it_learned(model, text);
  return report(split, alone);
}

int lead(hf::Worker& worker, example::Arguments& arguments) {
  const std::string folder = arguments.text("text", ".");
  Settings settings;
  settings.steps = arguments.number("steps", 800);
  settings.batch = arguments.number("batch", 64);
  settings.seed = static_cast<uint64_t>(arguments.number("seed", 1, 0));
  const std::string optimizer = arguments.choice("optimizer", {"adam", "sgd"});
  settings.mode =
      arguments.choice("mode", {"smart", "fast"}) == "fast" ? hf::autograd::Mode::fast : hf::autograd::Mode::smart;
  arguments.finish();
  const Text text(folder);
  std::printf("%ld characters to learn from, %zu different ones: the documents of Holdfast (BSD 3-Clause)\n",
              static_cast<long>(text.training.size(0)), text.alphabet.size());
  std::printf("worker1: embedding; worker2: two layers; worker3: head and loss; worker0: text and progress\n");
  std::fflush(stdout);
  if (optimizer == "adam") {
    return compare_runs<torch::optim::Adam>(worker, text, settings, torch::optim::AdamOptions(0.002));
  }
  return compare_runs<torch::optim::SGD>(worker, text, settings, torch::optim::SGDOptions(0.05).momentum(0.9));
}

int main(int argc, char** argv) { return example::run("train", 4, argc, argv, lead); }
