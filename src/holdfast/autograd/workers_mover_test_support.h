// For tests: a Mover between real workers. What moves is an argument of a call, in the name of the worker that sends,
// in one context. The test's thread plays all workers, so it goes on with what their handlers have received.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include <holdfast/autograd/context.h>
#include <holdfast/autograd/context_state.h>
#include <holdfast/autograd/split_graph_test_support.h>

namespace holdfast::autograd {

// Tensors that handlers have received and the test has not taken, by the number of their message.
class Stash {
 public:
  void put(int64_t number, Tensors tensors) {
    std::lock_guard lock(mutex_);
    arrived_[number] = std::move(tensors);
  }
  Tensors take(int64_t number) {
    std::lock_guard lock(mutex_);
    auto node = arrived_.extract(number);
    return node.empty() ? Tensors() : std::move(node.mapped());
  }
  int64_t next_number() { return ++last_number_; }

 private:
  std::mutex mutex_;
  std::map<int64_t, Tensors> arrived_;
  std::atomic<int64_t> last_number_{0};
};
inline Stash stash;

inline void receive(int64_t number, Tensors tensors) { stash.put(number, std::move(tensors)); }

class WorkersMover : public Mover {
 public:
  using Wait = std::function<void(const Future<void>&)>;
  // The context is of the first host's. `wait` until the future is ready.
  WorkersMover(std::vector<Host*> hosts, const ContextId& context, Wait wait)
      : hosts_(std::move(hosts)), context_(context), wait_(std::move(wait)) {}

  using Mover::move;
  Tensors move(uint32_t from, uint32_t to, const Tensors& tensors) override {
    if (!find(from)) send(0, from, {});  // it learns of the context
    return send(from, to, tensors);
  }

  // On whichever worker it is; at most one may have it.
  Tensor gradient(const Tensor& leaf) const {
    Tensor result;
    for (uint32_t rank = 0; rank < hosts_.size(); ++rank) {
      const auto state = find(rank);
      Tensor gradient = state ? state->gradients.get(leaf) : Tensor();
      if (!gradient.defined()) continue;
      EXPECT_FALSE(result.defined());
      result = gradient;
    }
    return result;
  }

  // Whether FAST must fail: a worker that takes part has recorded a send which these roots, of the first worker, do not
  // need. Found by a walk of its own.
  bool starves(const std::vector<Root>& roots) const {
    std::vector<torch::autograd::Node*> to_walk;
    for (const Root& root : roots) to_walk.push_back(torch::autograd::impl::gradient_edge(root.tensor).function.get());
    std::unordered_set<torch::autograd::Node*> seen;
    std::map<uint32_t, std::set<uint64_t>> needed{{0, {}}};  // sends, by worker
    while (!to_walk.empty()) {
      torch::autograd::Node* function = to_walk.back();
      to_walk.pop_back();
      if (!seen.insert(function).second) continue;
      if (const auto* recv = dynamic_cast<RecvFunction*>(function)) {
        const uint32_t rank = recv->origin.sender->rank.value;
        needed[rank].insert(recv->origin.number.value);
        to_walk.push_back(find(rank)->send(recv->origin.number).get());
      }
      for (const auto& edge : function->next_edges()) {
        if (edge.is_valid()) to_walk.push_back(edge.function.get());
      }
    }
    for (const auto& [rank, sends] : needed) {
      const auto state = find(rank);
      if (state && state->send_count() > sends.size()) return true;
    }
    return false;
  }

 private:
  std::shared_ptr<ContextState> find(uint32_t rank) const {
    return std::static_pointer_cast<ContextState>(Backwards::of(*hosts_[rank]).find_context(context_));
  }

  Tensors send(uint32_t from, uint32_t to, const Tensors& tensors) {
    const int64_t number = stash.next_number();
    AmbientScope scope({.cancelled = {}, .flow = find(from)});
    const Future<void> done =
        Peer(hosts_[from]->peer_state(hosts_[to]->self()), kForever).async<receive>(number, tensors);
    wait_(done);
    done.get();
    return stash.take(number);
  }

  const std::vector<Host*> hosts_;
  const ContextId context_;
  const Wait wait_;
};

}  // namespace holdfast::autograd
