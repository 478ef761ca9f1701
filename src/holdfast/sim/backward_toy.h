// Toy graphs for the protocol of backward passes: functions of whole numbers, spread over workers, whose gradients are
// sums over paths. The tables here are global, which a real program cannot have: from them the reference computes
// what a pass must give, while ToyGraph does the same on each worker with what it has and what arrives.
//
// Owned by a simulated world, used by its one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <holdfast/backward/graph.h>
#include <holdfast/base/closure.h>

namespace holdfast::sim {

// An output of a function.
struct ToyValue {
  size_t function = 0;
  size_t slot = 0;
};

struct ToyEdge {
  ToyValue input;
  uint64_t weight = 1;
};

// Which functions a context has, on all workers. The gradient of an output that was not used is nothing, not zero.
struct ToyFunction {
  enum class Kind : uint8_t { leaf, op, send, recv };
  Kind kind = Kind::leaf;
  WorkerId worker;
  size_t slots = 1;            // outputs; of a send: what it sends
  std::vector<ToyEdge> edges;  // of a send: one for each slot
  SendNumber send;             // of a send
  size_t counterpart = 0;      // of a recv: the send
  bool throws = false;
};

using ToyGradient = std::vector<std::optional<uint64_t>>;  // by slot

struct ToyProgram {
  ContextId id;
  WorkerPtr creator;
  std::vector<ToyFunction> functions;
  std::map<WorkerId, WorkerPtr> workers;  // everyone that has functions
  std::map<WorkerId, uint64_t> last_send;
  bool chain = false;   // every value leads to the last one: FAST succeeds
  bool frozen = false;  // it has passes: the forward is over
  bool ended = false;
};

// What the leaves got in one pass. A leaf that is not in it got nothing.
using LeafGradients = std::map<size_t, uint64_t>;

struct ToyRoot {
  ToyValue value;
  uint64_t seed = 1;
};

struct Expected {
  LeafGradients leaves;
  uint64_t starved = 0;            // FAST only: functions that wait for ever
  std::set<std::string> throwers;  // the names of workers on which something throws
  std::set<WorkerId> workers;      // that take part
};
Expected expect(const ToyProgram& program, const std::vector<ToyRoot>& roots, PassMode mode);

// What the graphs on all workers report of one pass.
struct ToyRecord {
  LeafGradients leaves;
  std::set<WorkerId> begun;  // where it has a part, or had one
  std::vector<std::string> violations;
};

// What one worker has of a program.
class ToyContext final : public ContextData {
 public:
  using Poster = std::function<void(Closure)>;
  using Records = std::map<PassId, ToyRecord>;
  // All of these outlive it.
  ToyContext(ToyProgram& program, WorkerPtr self, Records& records, Poster poster)
      : program(program), self(std::move(self)), records(records), poster_(std::move(poster)) {}

  std::shared_ptr<PassGraph> begin_pass(const PassInfo& pass) override;
  std::shared_ptr<PassGraph> begin_root(const PassInfo& pass, std::vector<ToyRoot> roots);
  void post(Closure run) override { poster_(std::move(run)); }

  size_t add(ToyFunction function);
  SendNumber add_send(const std::vector<ToyValue>& values);
  // A message has arrived whose send is that function.
  size_t add_recv(size_t send);

  ToyProgram& program;
  const WorkerPtr self;
  Records& records;
  std::vector<ToyValue> values;        // on this worker, oldest first
  std::map<SendNumber, size_t> sends;  // recorded here

 private:
  Poster poster_;
};

}  // namespace holdfast::sim
