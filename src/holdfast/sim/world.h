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
#include <holdfast/sim/repeater.h>
#include <holdfast/transport/faulty.h>
#include <holdfast/transport/sim_network.h>

namespace holdfast::sim {

struct WorldOptions {
  uint64_t seed = 1;
  uint32_t workers = 3;
  SimOptions network;  // its seed is replaced
  Duration lease = std::chrono::seconds(10);
  Duration handler_delay_max = std::chrono::microseconds(200);
  uint64_t inflight_bytes_max = 64 << 20;
  LinkOptions link;       // what is not said elsewhere here
  double repetition = 0;  // of control messages of references: see repeater.h
  FaultOptions faults;    // of every worker; what makes no sense in them throws in World's constructor
};

class World;

// One life of one worker.
class SimWorker final : private TransportEvents, public Host {
 public:
  SimWorker(World& world, uint32_t rank, uint32_t life);
  ~SimWorker() override;

  // Its calls fail with Overloaded where a real caller would wait for room.
  Peer peer(const WorkerPtr& worker) { return {peer_state(worker), call_timeout()}; }

  bool alive() const { return alive_; }
  bool joined() const { return joined_; }
  const WorkerPtr& self() const override { return node_.self(); }
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

  std::shared_ptr<Host> share() override { return {std::shared_ptr<void>(), this}; }  // the World owns it
  const std::string& name() const override { return address_; }
  Duration call_timeout() const override { return std::chrono::seconds(60); }
  std::shared_ptr<const rpc_detail::PeerState> peer_state(WorkerPtr worker) override;
  Protocol& protocol(size_t index) override { return *protocols_.at(index); }
  void start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message, Duration timeout,
                  Completion completion, FutureStateBase& state) override;
  void start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                       Duration timeout, Refused refused) override;
  void run_step(void (*run)(void*, Step&), void* argument) override;
  Time now() override;
  Executor* executor() override { return nullptr; }
  void* worker() override { return this; }
  bool begin(ServedCall& call, Time now) override;
  void respond(ServedCall& call, std::shared_ptr<Message> reply) override;

  std::unique_ptr<Transport> make_transport();
  FaultPlan frame_faults(ConnectionId connection) const;
  template <class F>
  void step_node(F&& with_node);
  void perform(Step& step);
  void set_timer();
  void die();

  World& world_;
  const uint32_t rank_;
  const std::string address_;
  bool alive_ = true;
  bool joined_ = false;
  std::unique_ptr<Node> node_owned_;  // goes before the protocols
  Node& node_;
  const std::unique_ptr<Repeater> repeater_;  // before the protocols: it sees their messages first
  const std::vector<std::unique_ptr<Protocol>> protocols_;
  FaultyTransport* faulty_ = nullptr;  // inside transport_; null: no faults for frames
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
  Repetition& repetition() { return repetition_; }

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

  // ---- by hand: see explore.h
  // From now on nothing happens by itself: whoever drives this world picks each arrival (SimNetwork::arrivals), each
  // handler and each worker's timers.
  void take_over();
  // Handlers that have not run.
  struct WaitingWork {
    uint32_t rank = 0;
    std::shared_ptr<Work> work;
  };
  const std::map<uint64_t, WaitingWork>& waiting_work() const { return work_; }
  void run_work(uint64_t id);
  // The clock moves by that much, and what is due on this worker happens; on others it is late.
  void fire_timers(uint32_t rank, Duration ahead);

 private:
  friend class SimWorker;
  class SimCoordinator;

  // Runs user code later, in its own event.
  void run_later(uint32_t rank, std::shared_ptr<Work> work);

  const WorldOptions options_;
  Random random_;
  Repetition repetition_;
  SimNetwork network_;
  std::unique_ptr<SimCoordinator> coordinator_;
  // Every life of every rank; the dead ones stay, so that late events find them dead rather than gone.
  std::vector<std::vector<std::unique_ptr<SimWorker>>> workers_;
  // Handlers that have not run yet.
  std::map<uint64_t, WaitingWork> work_;
  uint64_t last_work_ = 0;
  bool taken_over_ = false;
};

}  // namespace holdfast::sim
