// World: many workers and their coordinator in one thread, on a simulated network and clock. They run the same
// Node and Coordinator as production; only the driver differs. One seed makes one history: the same seed gives
// the same messages at the same times, and the same trace hash.
//
// Owned by a test or a tool. Handlers run after a random delay, as events of their own. Nothing blocks: use
// async() and then(), and run() the world until what you wait for has happened.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <holdfast/cluster/coordinator.h>
#include <holdfast/rpc/node.h>
#include <holdfast/rpc/peer.h>
#include <holdfast/transport/sim_network.h>

namespace holdfast::sim {

struct WorldOptions {
  uint64_t seed = 1;
  uint32_t workers = 3;
  SimOptions network;  // its seed is replaced
  Duration lease = std::chrono::seconds(10);
  Duration handler_delay_max = std::chrono::microseconds(200);
  uint64_t inflight_bytes_max = 64 << 20;
};

class World;

// One life of one worker.
class SimWorker final : private TransportEvents, private CallHost {
 public:
  SimWorker(World& world, uint32_t rank, uint32_t life);
  ~SimWorker() override;

  // Like Peer::async. Fails with Overloaded where a real caller would wait for room.
  template <auto F, class... Args>
  Future<typename Registered<F>::Result> async(const WorkerPtr& to, Duration timeout, const Args&... args) {
    using Result = typename Registered<F>::Result;
    std::shared_ptr<Message> message = rpc_detail::begin_call(Registered<F>::entry);
    wire::Writer writer(*message);
    rpc_detail::encode_arguments(writer, static_cast<typename Registered<F>::Arguments*>(nullptr), args...);
    Promise<Result> promise;
    Future<Result> future = promise.future();
    start_call(
        to, Registered<F>::entry, std::move(message), timeout,
        [promise = std::move(promise)](holdfast::Result<Message> result) mutable {
          rpc_detail::complete(promise, std::move(result));
        },
        *future.state());
    return future;
  }

  bool alive() const { return alive_; }
  bool joined() const { return joined_; }
  const WorkerPtr& self() const { return node_.self(); }
  const Node& node() const { return node_; }
  void shutdown(Duration timeout, Member::Done done);

 private:
  friend class World;

  void on_accepted(ConnectionId connection) override;
  void on_connected(ConnectionId connection) override;
  void on_frames(ConnectionId connection, std::vector<InFrame>& frames) override;
  void on_progress(ConnectionId connection) override;
  void on_closed(ConnectionId connection, const Failure& why) override;
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) override;

  Time now() override;
  Executor* executor() override { return nullptr; }
  void* worker() override { return this; }
  bool begin(ServedCall& call) override;
  void respond(ServedCall& call, MessagePtr reply) override;

  void start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message, Duration timeout,
                  Completion completion, FutureStateBase& state);
  template <class F>
  void step(F&& with_node);
  void perform(Step& step);
  void set_timer();
  void die();

  World& world_;
  const std::string address_;
  bool alive_ = true;
  bool joined_ = false;
  Node node_;
  std::unique_ptr<Transport> transport_;
  Time timer_at_ = kNever;
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Runs until everybody has joined; false if that takes longer than `limit`.
  bool join(Duration limit = std::chrono::seconds(30));
  // Runs until `done` says so; false if the world's clock passes `limit` first.
  bool run(const std::function<bool()>& done, Duration limit);

  // The current life of that rank.
  SimWorker& worker(uint32_t rank) { return *workers_.at(rank).back(); }
  size_t size() const { return workers_.size(); }
  SimNetwork& network() { return network_; }
  Random& random() { return random_; }
  Time now() const { return network_.now(); }
  const WorldOptions& options() const { return options_; }

  // The process dies: nothing of it is heard any more.
  void kill(uint32_t rank);
  // A new life takes its place, once the coordinator has seen the death.
  SimWorker& restart(uint32_t rank);
  // As a launcher that sees its child exit.
  void declare_lost(uint32_t rank, const std::string& reason);
  void cut(uint32_t a, uint32_t b);
  void partition(uint32_t a, uint32_t b);
  void cut_from_coordinator(uint32_t rank);
  void partition_from_coordinator(uint32_t rank);

 private:
  friend class SimWorker;
  class SimCoordinator;

  // Runs user code later, in its own event.
  void run_later(std::shared_ptr<Work> work);

  const WorldOptions options_;
  Random random_;
  SimNetwork network_;
  std::unique_ptr<SimCoordinator> coordinator_;
  // Every life of every rank; the dead ones stay, so that late events find them dead rather than gone.
  std::vector<std::vector<std::unique_ptr<SimWorker>>> workers_;
  // Handlers that have not run yet.
  std::map<uint64_t, std::shared_ptr<Work>> work_;
  uint64_t last_work_ = 0;
};

}  // namespace holdfast::sim
