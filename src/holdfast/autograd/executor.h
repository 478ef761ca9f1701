// LocalPass: one worker's part of one backward pass. It runs the functions of libtorch's graph itself, because
// libtorch's engine cannot run a graph of which a part is elsewhere: it knows neither which functions will get
// gradients from other workers nor when a function has got all of its own.
//
// 1. The pass is given the places where gradients enter this worker: the roots, and the sends whose messages took part.
//    From there it walks the graph once and counts how many gradients each function will get. Walking tells which recvs
//    are reached: their gradients will leave this worker, and their sends enter the same pass where they are.
// 2. Gradients flow: those of the roots, those that arrive for sends. run() runs every function that has got all of its
//    gradients, and delivers what has reached a recv. More sends may be added meanwhile, if foresee() knows of them:
//    functions that they lead to are held until they are added, or until it is certain that they will not be.
//
// What libtorch's engine does for a function is done here: hooks, checks of what the function returned, freeing of what
// it has saved. The order is its own: what entered first goes through to where it leaves, so that others can go on with
// it; on that way the function that was recorded last goes first, as there. Gradients are the same as those of
// one local graph, and so is what has no gradient. It differs in that leaves accumulate into a GradientMap. Gradients
// of gradients (create_graph) are not offered. Work on an accelerator is queued on the running thread's current
// streams.
//
// Owned by whoever drives the pass: one thread at a time, not always the same one. Nothing blocks. Sends, recvs and
// leaves stay alive while the pass does. Errors are exceptions; what a function throws comes out of run() as a
// holdfast::Error that names the function. The pass is then over, and can only be destroyed.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include <holdfast/autograd/functions.h>
#include <holdfast/autograd/gradients.h>

namespace holdfast::autograd {

struct Root {
  at::Tensor tensor;
  at::Tensor gradient = {};  // undefined: ones, for a tensor with one element
};

// The gradients of the tensors of one message, from its recv to its send. A tensor that no path of the pass leads to
// is not reached: what it was computed from is left alone, and hooks there are not called, as if it had not been sent.
// A tensor that is reached may still have an undefined gradient, because a function gave none.
struct MessageGradients {
  torch::autograd::variable_list gradients;
  std::vector<bool> reached;  // one for each; where false, the gradient is undefined
};

struct LocalPassOptions {
  bool retain_graph = false;  // keep what functions have saved, so that another pass can run them again
  // Once true, run() returns before the next function. May be null.
  std::shared_ptr<const std::atomic<bool>> ended = nullptr;
};

class LocalPass {
 public:
  using variable_list = torch::autograd::variable_list;
  using RecvPtr = std::shared_ptr<RecvFunction>;
  using SendPtr = std::shared_ptr<SendFunction>;
  // The gradients for the send that the recv belongs to. Undefined ones are no gradient, and must arrive as such.
  // Called from run(), as soon as they are complete, while other functions still wait for their turn.
  using Deliver = std::function<void(const RecvPtr& recv, MessageGradients gradients)>;

  // The thread-local state of the constructing thread (except grad mode, which is off) holds for every run().
  LocalPass(GradientMap& gradients, LocalPassOptions options);
  ~LocalPass();
  LocalPass(const LocalPass&) = delete;
  LocalPass& operator=(const LocalPass&) = delete;

  // Walking. Both return the recvs that were not reached before. A send is walked once; again does nothing. After the
  // first run() only for sends that were foreseen.
  std::vector<RecvPtr> add_roots(std::span<const Root> roots);
  std::vector<RecvPtr> add_sends(std::span<const SendPtr> sends);
  // Sends that may be added later; those that have been are left out. Before the first run().
  void foresee(std::span<const SendPtr> sends);

  // The gradients for a send that was added; the next run() uses them, or the one that is at work, if called from
  // Deliver. InvalidArgument if their number is wrong, the send was not added, or has got its gradients already.
  void add_arrived(const SendPtr& send, MessageGradients arrived);
  // Runs everything that is ready. `settled`: no sends will be added any more. May be called any number of times. Not
  // from a function that libtorch's engine runs.
  void run(const Deliver& deliver, bool settled = true);
  // Functions have got all their gradients, and would run if no foreseen send were added any more.
  bool holds() const;

  // In Deliver: run() has more to do.
  bool has_ready() const { return !ready_.empty() || !entered_.empty(); }

  // Functions that were walked and have not run; none are left when the worker's part is complete.
  size_t waiting() const { return waiting_; }
  // The names of a few of them, for people, in the order of the walk. Cheap, and cheap to ask again and again.
  std::string waiting_names() const;

 private:
  enum class Kind : uint8_t { interior, leaf, send, recv };
  static constexpr size_t kNoEntry = std::numeric_limits<size_t>::max();

  struct State {
    torch::autograd::Node* function = nullptr;
    uint64_t sequence = 0;    // when it was recorded, on its thread
    size_t entry = kNoEntry;  // the first to enter of the gradients that lead to it, so far
    Kind kind = Kind::interior;
    bool is_walked = false;
    bool is_foreseen = false;        // what it leads to was counted as unsure
    bool is_held = false;            // it stands in held_
    bool has_arrived = false;        // a send's gradients
    bool is_reached = false;         // by a gradient, though perhaps an undefined one: else it is passed over
    bool has_run = false;            // or was passed over
    uint64_t gradients_to_come = 0;  // from functions that were walked; 0: ready, unless some are unsure
    uint64_t gradients_unsure = 0;   // from functions that were foreseen and not walked
    variable_list inputs;            // the sums of what has come; empty before the first, and after the run
    std::vector<bool> reached;       // of a send or a recv: the tensors of its message
  };

  // A gradient that entered from outside and is not yet counted: counting must wait until everything is walked.
  struct Entered {
    State* state;
    uint32_t input;
    at::Tensor gradient;
  };

  // First what another worker waits for. Then what has entered first goes through to its end: sequences do not tell,
  // since each thread counts its own, and the micro-batches of a pipeline are recorded by several. Roots enter
  // together, so that where there is nothing else gradients add up in libtorch's order, to the last bit.
  struct LowerPriority {
    static auto priority(const State& state) {
      return std::tuple(state.kind == Kind::recv, kNoEntry - state.entry, state.sequence);
    }
    bool operator()(const State* a, const State* b) const { return priority(*a) < priority(*b); }
  };

  void check_walkable() const;
  State& visit(const std::shared_ptr<torch::autograd::Node>& function);
  std::vector<RecvPtr> walk();
  void take_entered();
  void receive(State& state, uint32_t input, at::Tensor gradient, bool is_reached = true);
  void keep_shared(const variable_list& outputs, const torch::autograd::edge_list& edges);
  void receive_at(const torch::autograd::Edge& edge, at::Tensor gradient, bool is_reached);
  void run_next(const Deliver& deliver);
  void pass_over(const State& state);
  void run_leaf(State& state, variable_list inputs);
  void run_interior(State& state, variable_list inputs);
  variable_list pass_recv(State& state, variable_list inputs);

  GradientMap& gradients_;
  const LocalPassOptions options_;
  at::ThreadLocalState thread_state_;

  bool is_settled_ = false;  // nothing is walked any more
  bool has_failed_ = false;
  size_t waiting_ = 0;
  variable_list shared_;  // gradients that several leaves get: kept, so that each copies them
  // Where the walk began: these keep the functions below them alive.
  std::vector<std::shared_ptr<torch::autograd::Node>> sources_;
  // Every function that was walked or foreseen; none is removed.
  std::unordered_map<const torch::autograd::Node*, State> states_;
  std::vector<const State*> walked_;  // those that were walked, in that order
  mutable size_t first_waiting_ = 0;  // in walked_: all before it have run
  std::vector<const State*> to_walk_;
  std::vector<RecvPtr> reached_;  // by this walk
  std::vector<Entered> entered_;
  size_t entries_ = 0;               // of sends, so far
  size_t current_entry_ = kNoEntry;  // of what is given on now
  std::vector<State*> held_;         // were ready once, but unsure
  std::priority_queue<State*, std::vector<State*>, LowerPriority> ready_;
};

}  // namespace holdfast::autograd
