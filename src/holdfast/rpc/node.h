// Node: the whole protocol of one worker - links, membership, calls, what stands above - as one state machine. Events
// and the time go in, Steps come out. The production Runtime and the simulator drive the same class.
//
// Not thread-safe: the driver holds its lock around every call.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <holdfast/cluster/member.h>
#include <holdfast/link/links.h>
#include <holdfast/rpc/calls.h>
#include <holdfast/rpc/message_faults.h>
#include <holdfast/rpc/protocol.h>

namespace holdfast {

struct NodeOptions {
  MemberOptions member;
  LinkOptions link;
  uint64_t frame_bytes_max = 1 << 30;
  uint64_t seed = 0;
};

class Node final : private LinkReceiver, private MemberEvents, private Post, private FaultsPost {
 public:
  Node(NodeOptions options, CallHost& host);

  Calls& calls() { return calls_; }
  const Calls& calls() const { return calls_; }
  Member& member() { return member_; }
  const Member& member() const { return member_; }
  const Links& links() const { return links_; }
  const WorkerPtr& self() const { return self_; }
  uint64_t frame_bytes_max() const { return options_.frame_bytes_max; }

  // From now on messages fail, wait, or end the process: `kill` is called for that, outside the lock. Call it when all
  // protocols are there. Fails for kinds that none of them knows, and other nonsense.
  Status inject_faults(const FaultOptions& faults, std::function<void()> kill);
  const MessageFaults* faults() const { return faults_.get(); }
  // The names of all messages that are sent to other workers.
  KindNames kind_names() const;

  // Messages of the kinds first to last go to this protocol, which outlives the node.
  void add_protocol(Kind first, Kind last, Protocol& protocol);
  // Who takes the cargo of calls and replies that arrive.
  void set_cargo_unloader(CargoUnloader& unloader) { unloader_ = &unloader; }
  // What this worker says of its devices when it joins, and who hears of the device maps of others; before join.
  void set_devices(DeviceFacts devices, Protocol& reader);
  bool has_devices() const { return device_maps_reader_ != nullptr; }
  // What stands above rpc has nothing left to confirm from before this loss: see Member::report_settled.
  void report_settled(Step& step, uint64_t loss) { member_.report_settled(step, loss); }
  bool is_lost(const WorkerId& worker) const { return links_.is_lost(worker); }
  std::string lost_name(const WorkerId& worker) const { return links_.lost_name(worker); }
  bool is_self(const WorkerId& worker) const { return self_ && worker == self_->id(); }

  // Sends to any worker, this one included. 0: that worker is lost.
  uint64_t send(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message, bool windowed) override;
  // Whether a call of that size may be started now; if not, wait for Step::room_opened.
  bool has_room(const WorkerId& to, uint64_t bytes) const;
  // Starts a call if it may be started: not when shut down, lost, over the limit.
  CallId start_call(Step& step, WorkerPtr to, const Function& function, std::shared_ptr<Message> message, Term term,
                    Completion completion);
  // The same for a call whose result stays there. Returns why it was not started.
  std::optional<Failure> start_kept_call(Step& step, const WorkerPtr& to, const Function& function,
                                         std::shared_ptr<Message> message, Time deadline);
  // A call of some protocol's own kind has arrived: first its cargo, then the rest.
  Status unload(Step& step, const WorkerPtr& from, Message& message);
  Status receive_call(Step& step, const WorkerPtr& from, Message&& message, std::shared_ptr<Keeper> keeper);
  bool begin(Step& step, ServedCall& call);
  void respond(Step& step, ServedCall& call, std::shared_ptr<Message> reply);

  // The graceful end: `done` runs when nothing is under way anywhere, or at the deadline with what it waited for.
  void shutdown(Step& step, Time deadline, Member::Done done);
  // The end: calls fail, connections close, nothing new starts.
  void stop(Step& step, const std::string& why);
  // After that, when no handler runs any more.
  void ended(Step& step);
  bool stopped() const { return stopped_; }
  // In shutdown, and the coordinator takes this worker for busy. A protocol that falls idle outside any event then
  // wants its on_time() called. (Servers are in shutdown for most of their lives, and quiet as far as the coordinator
  // knows.)
  bool owes_quiet() const { return member_.leaving() && !reported_quiet_; }

  void on_accepted(Step& step, ConnectionId connection);
  void on_connected(Step& step, ConnectionId connection);
  void on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames);
  void on_progress(Step& step, ConnectionId connection);
  void on_closed(Step& step, ConnectionId connection, const Failure& why);
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out);
  void on_time(Step& step);
  Time next_wakeup() const;

 private:
  struct Registered {
    Kind first;
    Kind last;
    Protocol* protocol = nullptr;
  };

  // LinkReceiver
  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  void on_fenced(Step& step, const std::string& text) override;
  // MemberEvents (on_fenced above serves both)
  void on_accepted(Step& step, const WorkerInfo& self) override;
  void on_device_maps(Step& step, const std::vector<PeerDeviceMap>& maps) override;
  void on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason, uint64_t number) override;
  void on_settled(Step& step, uint64_t number) override;
  void on_check(Step& step, uint64_t round) override;
  // Post
  bool maybe_sent(const WorkerId& to, uint64_t number) const override;
  void grant_credit(Step& step, const WorkerId& from, uint64_t bytes) override;

  // FaultsPost
  void send_late(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) override;

  // Hands it to the link, or to the faults.
  uint64_t send_away(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed);
  void load(Step& step, const WorkerPtr& to, Message& message);
  std::optional<Failure> why_not_start(const Step& step, const WorkerInfo& to, const Function& function,
                                       const Message& message, Time deadline);
  bool quiet() const;
  // In shutdown: tells the coordinator when this worker, which it takes for busy, has fallen quiet.
  void follow_quiet(Step& step);
  // Unchanged means that nothing happened: calls, and messages of other protocols.
  uint64_t activity() const { return calls_.activity() + protocol_messages_; }

  const NodeOptions options_;
  ConnectionIds ids_;
  Links links_;
  Member member_;
  Calls calls_;
  std::vector<Registered> protocols_;
  CargoUnloader* unloader_ = nullptr;
  std::unique_ptr<MessageFaults> faults_;  // null: none
  std::function<void()> kill_;
  Protocol* device_maps_reader_ = nullptr;
  WorkerPtr self_;
  uint64_t local_inflight_bytes_ = 0;  // of calls to oneself that have not begun
  uint64_t protocol_messages_ = 0;     // sent and received
  bool reported_quiet_ = false;        // to the coordinator, in shutdown
  bool fenced_ = false;
  bool stopped_ = false;
  std::string stop_reason_;
};

}  // namespace holdfast
