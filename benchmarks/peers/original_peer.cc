// A peer for ./bench peers: the agent below torch.distributed.rpc, from C++ and without Python. What it can serve by
// itself are operators of libtorch, so a call is one of those. It goes the shortest way there is: to the agent, past
// the recording for autograd.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/rpc/request_callback_no_python.h>
#include <torch/csrc/distributed/rpc/script_call.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/distributed/rpc/utils.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <unistd.h>

#include <deque>

#include "rounds.h"

namespace {

namespace rpc = torch::distributed::rpc;
using torch::jit::Operator;

// As many threads as the peer in Python has.
constexpr int kThreads = 4;

c10::intrusive_ptr<c10d::TCPStore> store_at(uint16_t port, bool is_server) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = is_server;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

// Returns when both processes have theirs.
std::shared_ptr<rpc::TensorPipeAgent> start_agent(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  at::set_num_threads(1);
  auto agent = std::make_shared<rpc::TensorPipeAgent>(
      store, "worker" + std::to_string(rank), static_cast<rpc::worker_id_t>(rank), 2,
      rpc::TensorPipeRpcBackendOptions(kThreads, {}, {}, rpc::kDefaultRpcTimeoutSeconds, ""),
      std::unordered_map<std::string, rpc::DeviceMap>(), std::vector<c10::Device>(),
      std::make_unique<rpc::RequestCallbackNoPython>());
  // For classes of scripts, of which there are none here.
  agent->setTypeResolver(std::make_shared<rpc::TypeResolver>(
      [](const c10::QualifiedName&) { return c10::StrongTypePtr(nullptr, nullptr); }));
  rpc::RpcAgent::setCurrentRpcAgent(agent);
  agent->start();
  return agent;
}

void serve(const std::function<void(uint16_t)>& say_port) {
  const auto store = store_at(0, true);
  say_port(store->getPort());
  const auto agent = start_agent(store, 1);
  while (true) pause();  // its threads do the work
}

std::shared_ptr<Operator> operator_of(const std::string& schema) {
  const auto parsed = torch::jit::parseSchema(schema);
  for (const auto& one : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(parsed.name()))) {
    if (one->schema().overload_name() == parsed.overload_name()) return one;
  }
  throw std::runtime_error("libtorch has no operator " + schema);
}

class OriginalRounds final : public holdfast::bench::Rounds {
 public:
  explicit OriginalRounds(uint16_t port)
      : agent_(start_agent(store_at(port, false), 0)), server_(agent_->getWorkerInfo("worker1")) {}

  double latency_us(size_t bytes, size_t count) override {
    const at::Tensor data = tensor_of(bytes);
    return holdfast::bench::median_us(count, [&] { result_of(start(back_, data)); });
  }
  double calls_per_second(size_t bytes, size_t count, size_t in_flight) override {
    return static_cast<double>(count) / many(back_, tensor_of(bytes), count, in_flight);
  }
  double gigabytes_per_second(size_t bytes, size_t count, size_t in_flight) override {
    return static_cast<double>(bytes * count) / 1e9 / many(take_, tensor_of(bytes), count, in_flight);
  }

 private:
  using Reply = c10::intrusive_ptr<rpc::JitFuture>;

  static at::Tensor tensor_of(size_t bytes) { return at::ones({static_cast<int64_t>(bytes)}, at::kByte); }

  Reply start(const std::shared_ptr<Operator>& what, const at::Tensor& data) {
    return agent_->send(server_, rpc::ScriptCall(what, {data}).toMessage());
  }
  static c10::IValue result_of(const Reply& reply) {
    reply->waitAndThrow();
    return rpc::deserializeRespToIValue(*reply->value().toCustomClass<rpc::Message>());
  }
  double many(const std::shared_ptr<Operator>& what, const at::Tensor& data, size_t count, size_t in_flight) {
    return holdfast::bench::seconds_of([&] {
      std::deque<Reply> waiting;
      for (size_t i = 0; i < count; ++i) {
        if (waiting.size() == in_flight) {
          result_of(waiting.front());
          waiting.pop_front();
        }
        waiting.push_back(start(what, data));
      }
      for (const Reply& one : waiting) result_of(one);
    });
  }

  const std::shared_ptr<rpc::TensorPipeAgent> agent_;
  const rpc::WorkerInfo& server_;
  // Neither computes anything: the tensor itself, and how large it is.
  const std::shared_ptr<Operator> back_ = operator_of("aten::detach(Tensor(a) self) -> Tensor(a)");
  const std::shared_ptr<Operator> take_ = operator_of("aten::numel(Tensor self) -> int");
};

}  // namespace

int main() {
  const uint16_t port = holdfast::bench::start_server(serve);
  OriginalRounds rounds(port);
  const int result = holdfast::bench::answer(rounds);
  std::fflush(stdout);
  _exit(result);  // the agent would wait for one that only ends with us
}
