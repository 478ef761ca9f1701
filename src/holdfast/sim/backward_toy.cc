#include <holdfast/sim/backward_toy.h>

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include <holdfast/backward/messages.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::sim {

namespace {

using ToyKind = ToyFunction::Kind;

// Functions reached by a walk, what they wait for, and what they have got. For the reference it spans all workers, for
// a graph one.
class Execution {
 public:
  explicit Execution(const ToyProgram& program) : program_(program) {}

  // Something from outside will come to this function.
  void expect_from_outside(size_t function, std::vector<size_t>& new_recvs) {
    ++dependencies_[function];
    visit(function, new_recvs);
  }
  void visit(size_t start, std::vector<size_t>& new_recvs) {
    std::vector<size_t> stack{start};
    while (!stack.empty()) {
      const size_t at = stack.back();
      stack.pop_back();
      if (!visited_.insert(at).second) continue;
      const ToyFunction& function = program_.functions[at];
      if (function.kind == ToyKind::recv) new_recvs.push_back(at);
      for (const ToyEdge& edge : function.edges) {
        if (executed_.contains(edge.input.function)) throw std::logic_error("a function ran before it was walked to");
        ++dependencies_[edge.input.function];
        held_.erase(edge.input.function);
        if (foreseen_.contains(at)) --unsure_[edge.input.function];
        stack.push_back(edge.input.function);
      }
    }
  }
  // That function may be walked from later: what it leads to is not certain until then.
  void foresee(size_t start) {
    std::vector<size_t> stack{start};
    while (!stack.empty()) {
      const size_t at = stack.back();
      stack.pop_back();
      if (visited_.contains(at) || !foreseen_.insert(at).second) continue;
      for (const ToyEdge& edge : program_.functions[at].edges) {
        ++unsure_[edge.input.function];
        stack.push_back(edge.input.function);
      }
    }
  }
  // Nothing is walked any more.
  void settle() {
    if (settled_) return;
    settled_ = true;
    for (const size_t function : held_) ready_.insert(function);
    held_.clear();
  }
  bool held() const { return !held_.empty(); }
  bool has_ready() const { return !ready_.empty(); }

  void deliver(size_t function, size_t slot, std::optional<uint64_t> gradient) {
    ToyGradient& buffer = buffers_[function];
    buffer.resize(program_.functions[function].slots);
    if (gradient) buffer[slot] = buffer[slot].value_or(0) + *gradient;
    arrived(function);
  }
  void deliver_all(size_t function, const ToyGradient& gradient) {
    ToyGradient& buffer = buffers_[function];
    buffer.resize(program_.functions[function].slots);
    for (size_t slot = 0; slot < buffer.size(); ++slot) {
      if (gradient[slot]) buffer[slot] = buffer[slot].value_or(0) + *gradient[slot];
    }
    arrived(function);
  }
  // The next function that has all it waits for, and its gradient; the latest first.
  std::optional<std::pair<size_t, ToyGradient>> next() {
    if (ready_.empty()) return std::nullopt;
    const size_t function = *std::prev(ready_.end());
    ready_.erase(function);
    executed_.insert(function);
    return std::pair(function, std::move(buffers_[function]));
  }
  // Passes the gradient of an op or a send on to its inputs.
  void pass_on(size_t at, const ToyGradient& gradient) {
    const ToyFunction& function = program_.functions[at];
    for (size_t i = 0; i < function.edges.size(); ++i) {
      const ToyEdge& edge = function.edges[i];
      const std::optional<uint64_t>& mine = gradient[function.kind == ToyKind::send ? i : 0];
      deliver(edge.input.function, edge.input.slot, mine ? std::optional(*mine * edge.weight) : std::nullopt);
    }
  }
  size_t waiting() const { return visited_.size() - executed_.size(); }
  size_t waiting_on(const std::set<WorkerId>& workers, const std::set<size_t>& executed) const {
    size_t count = 0;
    for (const size_t at : visited_) count += workers.contains(program_.functions[at].worker) && !executed.contains(at);
    return count;
  }

 private:
  void arrived(size_t function) {
    if (!visited_.contains(function)) throw std::logic_error("a gradient for a function that was not reached");
    size_t& left = dependencies_[function];
    if (left == 0) throw std::logic_error("one gradient too many");
    if (--left > 0) return;
    (settled_ || unsure_[function] == 0 ? ready_ : held_).insert(function);
  }

  const ToyProgram& program_;
  std::set<size_t> visited_;
  std::map<size_t, size_t> dependencies_;
  std::map<size_t, ToyGradient> buffers_;
  std::set<size_t> foreseen_;
  std::map<size_t, size_t> unsure_;  // edges to it from functions that were foreseen and not visited
  bool settled_ = false;
  std::set<size_t> held_;  // have all they wait for, but are unsure
  std::set<size_t> ready_;
  std::set<size_t> executed_;
};

Bytes encode_gradient(const ToyGradient& gradient) { return std::move(wire::encode_message(kGradient, gradient).body); }

}  // namespace

Expected expect(const ToyProgram& program, const std::vector<ToyRoot>& roots, PassMode mode) {
  Execution execution(program);
  std::vector<size_t> recvs;
  for (const ToyRoot& root : roots) execution.expect_from_outside(root.value.function, recvs);
  if (mode == PassMode::fast) {
    for (size_t i = 0; i < program.functions.size(); ++i) {
      if (program.functions[i].kind == ToyKind::send) execution.expect_from_outside(i, recvs);
    }
  } else {
    while (!recvs.empty()) {
      const size_t recv = recvs.back();
      recvs.pop_back();
      execution.expect_from_outside(program.functions[recv].counterpart, recvs);
    }
  }
  Expected expected;
  for (const ToyRoot& root : roots) {
    expected.workers.insert(program.functions[root.value.function].worker);
    execution.deliver(root.value.function, root.value.slot, root.seed);
  }
  std::set<size_t> executed;
  while (auto next = execution.next()) {
    const auto& [at, gradient] = *next;
    const ToyFunction& function = program.functions[at];
    executed.insert(at);
    expected.workers.insert(function.worker);
    if (function.throws) expected.throwers.insert(program.workers.at(function.worker)->name);
    if (function.kind == ToyKind::recv) {
      execution.deliver_all(function.counterpart, gradient);
    } else if (function.kind == ToyKind::leaf) {
      if (gradient[0]) expected.leaves[at] = *gradient[0];
    } else {
      execution.pass_on(at, gradient);
    }
  }
  if (mode == PassMode::fast) expected.starved = execution.waiting_on(expected.workers, executed);
  return expected;
}

namespace {

class ToyGraph final : public PassGraph {
 public:
  ToyGraph(ToyContext& context, const PassInfo& pass, std::vector<ToyRoot> roots)
      : context_(context), pass_(pass), roots_(std::move(roots)), execution_(context.program) {}

  std::vector<RemoteSend> walk(const WalkFrom& from) override {
    std::vector<size_t> recvs;
    if (from.roots) {
      for (const ToyRoot& root : roots_) execution_.expect_from_outside(root.value.function, recvs);
    }
    if (from.all_sends) {
      for (const auto& [number, function] : context_.sends) execution_.expect_from_outside(function, recvs);
    }
    for (const SendNumber send : from.sends) execution_.expect_from_outside(find_send(send), recvs);
    if (!std::exchange(has_walked_, true) && !from.all_sends) {
      for (const auto& [number, function] : context_.sends) execution_.foresee(function);
    }
    std::vector<RemoteSend> reached;
    for (const size_t recv : recvs) {
      const ToyFunction& send = functions()[functions()[recv].counterpart];
      reached.push_back({.worker = context_.program.workers.at(send.worker), .send = send.send});
    }
    return reached;
  }

  RunResult run(bool roots, std::vector<ArrivedGradient> arrived, bool settled, const Leave& leave) override {
    if (pass_.ended->load()) violation("a run after the end");
    if (settled) execution_.settle();
    if (roots) {
      for (const ToyRoot& root : roots_) execution_.deliver(root.value.function, root.value.slot, root.seed);
    }
    for (const ArrivedGradient& one : arrived) {
      wire::Reader reader(one.gradient.body);
      ToyGradient gradient;
      wire::decode(reader, gradient);
      const size_t send = find_send(one.send);
      if (!reader.ok() || gradient.size() != functions()[send].slots) throw std::logic_error("a gradient that is none");
      execution_.deliver_all(send, gradient);
    }
    RunResult result;
    while (auto next = execution_.next()) {
      execute(next->first, next->second, result);
      if (!execution_.has_ready()) break;
      for (LeavingGradient& leaving : std::exchange(result.gradients, {})) leave(std::move(leaving));
    }
    result.held = execution_.held();
    result.waiting = execution_.waiting();
    if (result.waiting > 0) result.waiting_names = "toys";
    return result;
  }

 private:
  const std::vector<ToyFunction>& functions() const { return context_.program.functions; }

  size_t find_send(SendNumber send) const {
    auto found = context_.sends.find(send);
    if (found == context_.sends.end()) throw std::logic_error("a send that is not recorded");
    return found->second;
  }

  void execute(size_t at, const ToyGradient& gradient, RunResult& result) {
    const ToyFunction& function = functions()[at];
    if (function.worker != context_.self->id()) violation("a function runs on another worker than its own");
    if (function.throws) throw std::runtime_error("a toy breaks");
    if (function.kind == ToyKind::recv) {
      const ToyFunction& send = functions()[function.counterpart];
      result.gradients.push_back({.to = context_.program.workers.at(send.worker),
                                  .send = send.send,
                                  .gradient = {.body = encode_gradient(gradient), .attachments = {}}});
    } else if (function.kind != ToyKind::leaf) {
      execution_.pass_on(at, gradient);
    } else if (gradient[0] && !context_.records[pass_.id].leaves.emplace(at, *gradient[0]).second) {
      violation("a leaf got its gradient twice");
    }
  }

  void violation(const char* what) {
    context_.records[pass_.id].violations.push_back(fmt::format("{}: {}", text_of(pass_.id), what));
  }

  ToyContext& context_;  // the part of the pass holds it
  const PassInfo pass_;
  const std::vector<ToyRoot> roots_;
  bool has_walked_ = false;
  Execution execution_;
};

}  // namespace

std::shared_ptr<PassGraph> ToyContext::begin_pass(const PassInfo& pass) { return begin_root(pass, {}); }

std::shared_ptr<PassGraph> ToyContext::begin_root(const PassInfo& pass, std::vector<ToyRoot> roots) {
  ToyRecord& record = records[pass.id];
  if (!record.begun.insert(self->id()).second) {
    record.violations.push_back(fmt::format("{} begins a second time on {}", text_of(pass.id), self->name));
  }
  return std::make_shared<ToyGraph>(*this, pass, std::move(roots));
}

size_t ToyContext::add(ToyFunction function) {
  function.worker = self->id();
  program.workers.try_emplace(self->id(), self);
  const size_t at = program.functions.size();
  if (function.kind != ToyKind::send) {
    for (size_t slot = 0; slot < function.slots; ++slot) values.push_back({at, slot});
  }
  program.functions.push_back(std::move(function));
  return at;
}

SendNumber ToyContext::add_send(const std::vector<ToyValue>& sent) {
  ToyFunction function{.kind = ToyKind::send, .worker = {}, .slots = sent.size(), .edges = {}};
  for (const ToyValue& value : sent) function.edges.push_back({.input = value});
  function.send = {++program.last_send[self->id()]};
  const SendNumber number = function.send;
  sends[number] = add(std::move(function));
  return number;
}

size_t ToyContext::add_recv(size_t send) {
  ToyFunction function{.kind = ToyKind::recv, .worker = {}, .slots = program.functions[send].slots, .edges = {}};
  function.counterpart = send;
  return add(std::move(function));
}

}  // namespace holdfast::sim
