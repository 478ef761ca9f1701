// For tests: one program, run as one local graph and as a graph that is cut between "workers" of the same process.
// A program moves its tensors with Mover::move. OneGraph copies them; SplitGraph puts a send and a recv there, and its
// backward drives one LocalPass per worker: it walks everything, then lets gradients arrive in a random order.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <holdfast/autograd/executor.h>

namespace holdfast::autograd {

using at::Tensor;
using Tensors = std::vector<Tensor>;
using torch::autograd::variable_list;

inline Tensor leaf(at::IntArrayRef sizes, at::ScalarType dtype = at::kDouble) {
  return at::randn(sizes, at::TensorOptions().dtype(dtype)).set_requires_grad(true);
}

inline Tensors three() { return {leaf({3, 3}), leaf({3, 3}), leaf({3, 3})}; }

class Mover {
 public:
  virtual ~Mover() = default;
  virtual Tensors move(uint32_t from, uint32_t to, const Tensors& tensors) = 0;
  Tensor move(uint32_t from, uint32_t to, const Tensor& tensor) { return move(from, to, Tensors{tensor})[0]; }
};

class OneGraph : public Mover {
 public:
  using Mover::move;
  Tensors move(uint32_t, uint32_t, const Tensors& tensors) override {
    Tensors copies;
    for (const Tensor& tensor : tensors) copies.push_back(tensor.clone());
    return copies;
  }
};

class SplitGraph : public Mover {
 public:
  explicit SplitGraph(uint64_t seed = 1) : random_(seed) {}

  using Mover::move;
  Tensors move(uint32_t from, uint32_t to, const Tensors& tensors) override {
    auto send = make_send(tensors);
    Tensors received;
    for (const Tensor& tensor : tensors) {
      received.push_back(tensor.detach().clone());
      if (send) received.back().set_requires_grad(tensor.requires_grad());
    }
    if (!send) return received;
    const SendNumber number{worker(from).sends.size()};
    worker(from).sends.push_back(send);
    worker(to);
    make_recv(received, {.context = {}, .sender = worker(from).info, .number = number});
    return received;
  }

  void backward(const std::vector<Root>& roots, bool retain_graph = false, uint32_t root_worker = 0) {
    worker(root_worker);
    for (auto& [rank, each] : workers_) {
      each.pass = std::make_unique<LocalPass>(each.gradients, LocalPassOptions{.retain_graph = retain_graph});
    }
    marks_.clear();
    in_flight_.clear();
    mark(worker(root_worker).pass->add_roots(roots));
    while (!marks_.empty()) {
      auto [rank, send] = take_any(marks_);
      mark(worker(rank).pass->add_sends(std::vector{send}));
    }
    run(worker(root_worker));
    while (!in_flight_.empty()) {
      InFlight arriving = take_any(in_flight_);
      arrive(arriving);
      if (random_() % 3 != 0) run(worker(arriving.to));
      // Else with what arrives next, or below.
      if (!in_flight_.empty()) continue;
      for (auto& [rank, each] : workers_) run(each);
    }
    for (auto& [rank, each] : workers_) {
      EXPECT_EQ(each.pass->waiting(), 0u) << each.info->name << ": " << each.pass->waiting_names();
      EXPECT_EQ(each.pass->waiting_names(), "");
    }
    for (auto& [rank, each] : workers_) each.pass.reset();
  }

  // On whichever worker it is; at most one may have it.
  Tensor gradient(const Tensor& leaf) {
    Tensor result;
    for (auto& [rank, each] : workers_) {
      Tensor gradient = each.gradients.get(leaf);
      if (!gradient.defined()) continue;
      EXPECT_FALSE(result.defined());
      result = gradient;
    }
    return result;
  }

  std::shared_ptr<SendFunction> send(uint32_t rank, size_t number) { return worker(rank).sends.at(number); }
  size_t messages() const { return messages_; }

 private:
  struct Worker {
    WorkerPtr info;
    std::vector<std::shared_ptr<SendFunction>> sends;
    GradientMap gradients;
    std::unique_ptr<LocalPass> pass;
  };
  struct InFlight {
    uint32_t to;
    std::shared_ptr<SendFunction> send;
    variable_list gradients;  // the memory that is being sent
    MessageGradients copies;  // as they were when sending began
  };

  Worker& worker(uint32_t rank) {
    Worker& result = workers_[rank];
    if (!result.info) {
      result.info = std::make_shared<WorkerInfo>(
          WorkerInfo{.name = "worker" + std::to_string(rank), .rank = {rank}, .incarnation = {}, .address = {}});
    }
    return result;
  }

  template <class T>
  T take_any(std::vector<T>& from) {
    std::swap(from[random_() % from.size()], from.back());
    T taken = std::move(from.back());
    from.pop_back();
    return taken;
  }

  void mark(const std::vector<LocalPass::RecvPtr>& recvs) {
    for (const auto& recv : recvs) {
      const uint32_t rank = recv->origin.sender->rank.value;
      marks_.emplace_back(rank, worker(rank).sends.at(recv->origin.number.value));
    }
  }

  void run(Worker& runner) {
    runner.pass->run([this](const LocalPass::RecvPtr& recv, MessageGradients message) {
      ++messages_;
      const uint32_t rank = recv->origin.sender->rank.value;
      MessageGradients copies{.gradients = {}, .reached = message.reached};
      for (const Tensor& gradient : message.gradients) {
        copies.gradients.push_back(gradient.defined() ? gradient.clone() : Tensor());
      }
      auto send = worker(rank).sends.at(recv->origin.number.value);
      in_flight_.push_back({rank, send, std::move(message.gradients), std::move(copies)});
    });
  }

  void arrive(const InFlight& arriving) {
    for (size_t i = 0; i < arriving.gradients.size(); ++i) {
      const Tensor& sent = arriving.gradients[i];
      if (!sent.defined() || sent.is_sparse()) continue;
      EXPECT_TRUE(at::equal(sent, arriving.copies.gradients[i])) << "a gradient was changed while it was being sent";
    }
    worker(arriving.to).pass->add_arrived(arriving.send, arriving.copies);
  }

  std::mt19937_64 random_;
  std::map<uint32_t, Worker> workers_;
  std::vector<std::pair<uint32_t, std::shared_ptr<SendFunction>>> marks_;
  std::vector<InFlight> in_flight_;
  size_t messages_ = 0;
};

// `tolerance` 0: the same bits.
inline void expect_same(const Tensor& actual, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what << ": one has no gradient, which is not a zero gradient";
  if (!actual.defined()) return;
  ASSERT_EQ(actual.layout(), expected.layout()) << what;
  ASSERT_EQ(actual.scalar_type(), expected.scalar_type()) << what;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const Tensor a = actual.is_sparse() ? actual.to_dense() : actual;
  const Tensor b = expected.is_sparse() ? expected.to_dense() : expected;
  EXPECT_TRUE(tolerance == 0 ? at::equal(a, b) : a.allclose(b, tolerance, tolerance)) << what << "\n" << a << "\n" << b;
}

}  // namespace holdfast::autograd
