// Reinforcement learning with actors and a learner. Each actor balances poles on carts, several at a time; it has no
// policy of its own and asks the learner what to do. The learner gathers the questions of all actors, answers them with
// one pass through its network, and after some hundred moves improves it by what they were worth (policy gradient with
// the mean return as the baseline). An actor that waits holds no thread of the learner. Start it with
//   holdfast run -n 4 build/release/bin/actor_learner
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include <array>
#include <cmath>
#include <mutex>
#include <random>

#include "example.h"

namespace hf = holdfast;
using torch::Tensor;

// A cart on a rail with a pole hinged to it, pushed left or right 50 times a second. It has failed when the pole leans
// more than 12 degrees, or the cart is 2.4 m from the middle; after 500 moves it has done well enough.
class Cart {
 public:
  explicit Cart(uint64_t seed) : random_(seed) { reset(); }
  const std::array<float, 4>& state() const { return state_; }
  // Returns 0; or, if that was the last move of a try, how many it had. Then a new pole stands there.
  int push(bool right) {
    constexpr double kGravity = 9.8, kPoleMass = 0.1, kMass = 1.1, kHalfPole = 0.5, kTick_s = 0.02;
    auto& [place, speed, lean, turn] = state_;
    const double sine = std::sin(lean), cosine = std::cos(lean), lever = kPoleMass * kHalfPole;
    const double forward = ((right ? 10.0 : -10.0) + lever * turn * turn * sine) / kMass;
    const double twist =
        (kGravity * sine - cosine * forward) / (kHalfPole * (4.0 / 3 - kPoleMass * cosine * cosine / kMass));
    const double thrust = forward - lever * twist * cosine / kMass;
    place += static_cast<float>(kTick_s * speed);
    speed += static_cast<float>(kTick_s * thrust);
    lean += static_cast<float>(kTick_s * turn);
    turn += static_cast<float>(kTick_s * twist);
    ++moves_;
    const bool over = std::abs(place) > 2.4 || std::abs(lean) > 12 * M_PI / 180 || moves_ == 500;
    if (!over) return 0;
    const int moves = moves_;
    reset();
    return moves;
  }

 private:
  void reset() {
    std::uniform_real_distribution<float> near(-0.05f, 0.05f);
    for (float& value : state_) value = near(random_);
    moves_ = 0;
  }
  std::mt19937_64 random_;
  std::array<float, 4> state_{};  // place, speed, lean, speed of leaning
  int moves_ = 0;
};

class Learner {
 public:
  Learner(uint64_t seed, int64_t actors)
      : seeded_((torch::manual_seed(seed), true)),
        waiting_(static_cast<size_t>(actors)),
        optimizer_({hidden_->weight, hidden_->bias, output_->weight, output_->bias}, 0.01) {}

  // `states`: [carts, 4]. The answer, [carts], 1 for a push to the right, comes when every actor has asked.
  hf::Future<Tensor> choose(int64_t actor, Tensor states) {
    hf::Promise<Tensor> promise;
    hf::Future<Tensor> answer = promise.future();
    std::vector<Question> asked;
    Tensor choices;
    {
      const std::lock_guard lock(mutex_);
      waiting_.at(static_cast<size_t>(actor)) = {std::move(states), std::move(promise)};
      if (++asked_ == waiting_.size()) {
        choices = choose_for_all();
        asked = std::exchange(waiting_, std::vector<Question>(waiting_.size()));
        asked_ = 0;
      }
    }
    int64_t first = 0;
    for (Question& question : asked) {
      const int64_t carts = question.states.size(0);
      question.answer.set_value(choices.narrow(0, first, carts));
      first += carts;
    }
    return answer;
  }
  // `ends`: for each move that was chosen since the last time, [moves, all carts], what push() returned.
  void learn(Tensor ends) {
    const std::lock_guard lock(mutex_);
    const Tensor going_on = ends.eq(0).to(torch::kFloat);
    Tensor returns = torch::empty_like(ends), later = torch::zeros({ends.size(1)});
    for (int64_t t = ends.size(0) - 1; t >= 0; --t) returns[t] = later = 1 + 0.98 * later * going_on[t];
    returns = (returns - returns.mean()) / (returns.std() + 1e-6);
    const Tensor chances = torch::log_softmax(scores(torch::stack(states_)), 2);
    const Tensor chosen = chances.gather(2, torch::stack(choices_).unsqueeze(2)).squeeze(2);
    optimizer_.zero_grad();
    (-(chosen * returns).mean()).backward();
    optimizer_.step();
    states_.clear();
    choices_.clear();
  }

 private:
  struct Question {
    Tensor states;
    hf::Promise<Tensor> answer;
  };
  Tensor scores(const Tensor& states) { return output_(torch::tanh(hidden_(states))); }
  // One pass for the questions of all actors. Kept, for learning.
  Tensor choose_for_all() {
    std::vector<Tensor> all;
    for (const Question& question : waiting_) all.push_back(question.states);
    const torch::NoGradGuard no_grad;
    states_.push_back(torch::cat(all));
    choices_.push_back(torch::multinomial(torch::softmax(scores(states_.back()), 1), 1).squeeze(1));
    return choices_.back();
  }

  const bool seeded_;  // first, so that the network is the same in every run
  std::mutex mutex_;   // guards what follows
  std::vector<Question> waiting_;
  size_t asked_ = 0;
  torch::nn::Linear hidden_{4, 64}, output_{64, 2};
  torch::optim::Adam optimizer_;
  std::vector<Tensor> states_, choices_;
};

class Actor {
 public:
  Actor(int64_t number, int64_t carts, uint64_t seed) : number_(number) {
    for (int64_t i = 0; i < carts; ++i) carts_.emplace_back(seed + static_cast<uint64_t>(number * carts + i));
  }
  // A coroutine. Returns, [moves, carts], what push() returned.
  hf::Task<Tensor> play(hf::RRef<Learner> learner, int64_t moves) {
    const auto count = static_cast<int64_t>(carts_.size());
    Tensor ends = torch::zeros({moves, count});
    for (int64_t move = 0; move < moves; ++move) {
      Tensor states = torch::empty({count, 4});
      for (int64_t i = 0; i < count; ++i) {
        std::copy_n(carts_[static_cast<size_t>(i)].state().data(), 4, states.data_ptr<float>() + 4 * i);
      }
      const Tensor choices = co_await learner.async<&Learner::choose>(number_, states);
      for (int64_t i = 0; i < count; ++i) {
        const int moved = carts_[static_cast<size_t>(i)].push(choices[i].item<int64_t>() == 1);
        ends.data_ptr<float>()[move * count + i] = static_cast<float>(moved);
      }
    }
    co_return ends;
  }

 private:
  const int64_t number_;
  std::vector<Cart> carts_;
};

int lead(hf::Worker& worker, example::Arguments& arguments) {
  const int64_t rounds = arguments.number("rounds", 40);
  const int64_t moves = arguments.number("moves", 250);
  const int64_t carts = arguments.number("carts", 8);
  const auto seed = static_cast<uint64_t>(arguments.number("seed", 1, 0));
  arguments.finish();
  const int64_t count = worker.world_size() - 1;
  const hf::RRef<Learner> learner = worker.self().make<Learner>(seed, count);
  std::vector<hf::RRef<Actor>> actors;
  for (int64_t i = 0; i < count; ++i) {
    actors.push_back(worker.peer(static_cast<int>(i) + 1).make<Actor>(i, carts, seed));
  }
  std::printf("worker0: learner; %ld actors with %ld carts each\n", static_cast<long>(count), static_cast<long>(carts));
  std::fflush(stdout);

  example::Progress progress("actor_learner", rounds);
  const example::Stopwatch watch;
  double first = 0, reward = 0;
  for (int64_t round = 1; round <= rounds; ++round) {
    std::vector<hf::Future<Tensor>> playing;
    for (const hf::RRef<Actor>& actor : actors) {
      playing.push_back(actor.with_timeout(hf::kForever).async<&Actor::play>(learner, moves));
    }
    std::vector<Tensor> ends;
    for (const hf::Future<Tensor>& actor : playing) ends.push_back(actor.get());
    const Tensor all = torch::cat(ends, 1);
    learner.call<&Learner::learn>(all);
    // A move is worth 1: the reward of a try is its length. Of the tries that have ended in this round:
    const double tries = all.gt(0).sum().item<double>();
    if (tries > 0) reward = all.sum().item<double>() / tries;
    if (round == 1) first = reward;
    char note[100];
    std::snprintf(note, sizeof note, "round %3ld  average reward %6.1f  %6.0f moves/s", static_cast<long>(round),
                  reward, static_cast<double>(round * all.numel()) / watch.seconds());
    progress.show(round, note);
  }
  std::printf("average reward: %.1f in the first round, %.1f in the last\n", first, reward);
  return 0;
}

int main(int argc, char** argv) { return example::run("actor_learner", 2, argc, argv, lead); }
