// Runtime: what drives a Node in production: a TCP transport, a thread that waits for the network, an executor for
// handlers, the real clock. docs/threading.md tells the whole story.
//
// One lock guards the Node. Every entry follows the same pattern: lock, step the Node, unlock, perform the Step.
// Lock order: a connection's read lock or write turn, then mutex_. Nothing is called out while mutex_ is held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include <holdfast/base/executor.h>
#include <holdfast/base/future.h>
#include <holdfast/base/mutex.h>
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/rpc/carrier.h>
#include <holdfast/rpc/io_threads.h>
#include <holdfast/rpc/node.h>
#include <holdfast/rpc/options.h>
#include <holdfast/rpc/peer.h>
#include <holdfast/rpc/worker.h>
#include <holdfast/transport/tcp.h>

namespace holdfast {

class Runtime final : public std::enable_shared_from_this<Runtime>, private TransportEvents, public Host {
 public:
  // Both throw. `worker` is what handlers get as current_worker().
  Runtime(Options options, Worker* worker);
  void join();
  ~Runtime() override;

  const WorkerPtr& self() const override { return self_; }
  const Options& options() const { return options_; }
  Executor& handlers() { return executor_; }
  WorkerStats stats() const;

  std::shared_ptr<const rpc_detail::PeerState> find_peer(const std::string& name, Rank rank);
  // On a thread that waits for a call to `worker`: reads what comes from there until the state is ready.
  void help(const WorkerId& worker, FutureStateBase& state, Time until);

  void shutdown(Duration timeout);
  // Ends everything; idempotent.
  void stop(const std::string& why);

 private:
  class StepScope;

  // TransportEvents: called inside poll() or a HelpSession, on the thread that reads.
  void on_accepted(ConnectionId connection) override;
  void on_connected(ConnectionId connection) override;
  void on_frames(ConnectionId connection, std::vector<InFrame>& frames) override;
  void on_progress(ConnectionId connection) override;
  void on_closed(ConnectionId connection, const Failure& why) override;
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) override;

  // Host: public there
  std::shared_ptr<Host> share() override { return shared_from_this(); }
  // Before it has joined, and if it never does, what it wants to be called.
  const std::string& name() const override { return self_ ? self_->name : options_.name; }
  Duration call_timeout() const override { return options_.timeout; }
  const Options* options_if_any() const override { return &options_; }
  std::shared_ptr<const rpc_detail::PeerState> peer_state(WorkerPtr worker) override;
  Protocol& protocol(size_t index) override { return *protocols_.at(index); }
  void start_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message, Duration timeout,
                  Completion completion, FutureStateBase& state) override;
  void start_kept_call(const WorkerPtr& to, const Function& function, std::shared_ptr<Message> message,
                       Duration timeout, Refused refused) override;
  void run_step(void (*run)(void*, Step&), void* argument) override;
  Time now() override { return steady_now(); }
  Executor* executor() override { return &executor_; }
  void* worker() override { return worker_; }
  bool runs_quick_work_now() override { return io_.has_role(); }
  bool begin(ServedCall& call, Time now) override;
  void respond(ServedCall& call, std::shared_ptr<Message> reply) override;

  // Locks, steps, unlocks, performs.
  template <class F>
  auto step(F&& with_node);
  void perform(Step& step);
  void dispatch(std::vector<std::shared_ptr<Work>>& work);
  // Runs it, and then quick_work_, on this thread, as long as it has the role.
  void run_inline(std::shared_ptr<Work> work);
  // One turn of the thread that waits for the network.
  void turn();
  // Of Options::faults, for the frames of one connection.
  FaultPlan frame_faults(ConnectionId connection);
  // Frames that are held back may be due before the waiting thread wakes.
  void wake_for_held_frames();
  // mutex_ held: the waiting thread sleeps past what the Node now wants.
  bool overslept() const {
    const Time until = sleeping_until_;
    return until != Time::min() && node_.next_wakeup() < until;
  }
  // Messages may wait a little so that several go out in one write. All with mutex_ held: whether a call that was
  // just started may wait; leave a step's flushes for later; take what was left.
  bool may_defer();
  void defer(Step& step);
  void take_deferred(Step& step);
  // Writes what was left. Without mutex_.
  void flush_deferred();
  // Waits for room, then runs `start(Step&, deadline)` under the lock; false if there was none in time.
  template <class Start>
  bool start_with_room(const WorkerPtr& to, uint64_t bytes, Duration timeout, Start&& start);
  Failure no_room(const Function& function, const WorkerInfo& to) const;
  bool wait_for_room(std::unique_lock<Mutex>& lock, const WorkerId& to, uint64_t bytes, Time deadline);
  void cancel(CallId call);
  void report_held(const std::string& leftovers) const;

  // Constant after join(). The coordinator first: its address goes into the options.
  std::unique_ptr<CoordinatorServer> coordinator_;
  const Options options_;
  Worker* const worker_;
  WorkerPtr self_;

  mutable Mutex mutex_;  // guards the Node and what follows
  Node node_;
  const std::vector<std::unique_ptr<Protocol>> protocols_;  // of the layers above; guarded like the Node
  // What the thread in poll() was told; min: nobody sleeps. It is set under mutex_, so that whoever changes the Node
  // afterwards sees it, and reset without: who misses that wakes a thread in vain, no more.
  std::atomic<Time> sleeping_until_ = Time::min();
  // Connections with messages that wait for company. Whoever gets the network role takes them first, so they do
  // not depend on the thread that left them.
  std::deque<std::shared_ptr<Work>> quick_work_;  // that the thread with the role will run itself
  std::vector<ConnectionId> deferred_;
  size_t deferred_calls_ = 0;
  std::atomic<size_t> room_waiters_ = 0;  // changes under mutex_; read without it when room may have opened
  std::condition_variable_any room_;
  std::condition_variable_any left_;  // the connection to the coordinator has ended
  std::unordered_map<WorkerId, std::weak_ptr<const rpc_detail::PeerState>> peers_;

  Carrier carrier_;
  TcpTransport& transport_;  // inside it
  Executor executor_;
  IoThreads io_;

  std::mutex stop_mutex_;  // one stop() at a time; held while handlers end
  bool stopped_ = false;
  bool shut_down_ = false;  // guarded by stop_mutex_
};

}  // namespace holdfast
