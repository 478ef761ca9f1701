// Member: a worker's side of the cluster protocol: joining, heartbeats, looking peers up, hearing who is lost,
// and the end of the job. Keeps one connection to the coordinator and dials it anew when it breaks.
//
// Protocol code, guarded by the driver's lock. If the coordinator is out of reach for a lease, this worker
// counts as lost and everything it does fails with WorkerLost.
#pragma once

#include <map>
#include <string>
#include <unordered_map>

#include <holdfast/base/random.h>
#include <holdfast/cluster/messages.h>
#include <holdfast/cluster/outbox.h>

namespace holdfast {

struct MemberOptions {
  std::string job;
  std::string name;
  std::optional<uint32_t> rank;
  uint32_t world_size = 1;
  std::string coordinator;  // "host:port", numeric
  uint64_t frame_bytes_max = 1 << 30;
  Duration dial_timeout = std::chrono::seconds(5);
  Duration dial_backoff_max = std::chrono::milliseconds(500);
  Duration repeat_every = std::chrono::seconds(1);  // what was not answered is said again
};

// What stands above. Protocol code too: called under the driver's lock.
class MemberEvents {
 public:
  virtual ~MemberEvents() = default;
  virtual void on_accepted(Step& step, const WorkerInfo& self) = 0;
  // The device maps of others for this worker, if there are any: before the join completes, those of all; later that of
  // a newcomer, or those of all once more.
  virtual void on_device_maps(Step&, const std::vector<PeerDeviceMap>&) {}
  // Losses are numbered from 1; each is heard once, in order. A newcomer hears of those before its time too.
  virtual void on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason, uint64_t number) = 0;
  // All losses up to this number are settled: nothing that those workers sent is on its way to anybody any more.
  // The number grows each time, and on_worker_lost has run for every loss up to it.
  virtual void on_settled(Step& step, uint64_t number) = 0;
  // This worker was declared lost, or must assume so.
  virtual void on_fenced(Step& step, const std::string& reason) = 0;
  // The coordinator asks whether this worker is quiet; see report_quiet.
  virtual void on_check(Step& step, uint64_t round) = 0;
};

class Member {
 public:
  using Done = UniqueFunction<void(Status)>;
  using FoundWorker = UniqueFunction<void(Result<WorkerInfo>)>;

  Member(MemberOptions options, MemberEvents& events, ConnectionIds& ids, Random random);

  // Before join(): see Join. In bytes no more than kDeviceFactsBytesMax.
  void set_devices(DeviceFacts devices);
  // Starts to join; `done` runs when the world is complete, when the coordinator refuses, or at `deadline`
  // with a text that says who is missing.
  void join(Step& step, std::string address, Time deadline, Done done);
  // By name, or by rank where the name is empty. Answers from memory where it can.
  void lookup(Step& step, const std::string& name, Rank rank, Time deadline, FoundWorker found);
  // Waits until no call is under way anywhere; `done` runs when the coordinator releases everybody.
  void leave_together(Step& step, Time deadline, Done done);
  void report_quiet(Step& step, uint64_t round, bool quiet, uint64_t activity);
  // Everything this worker received before it heard of loss `number` is confirmed. Must have heard of that loss.
  void report_settled(Step& step, uint64_t number);
  // Leaves without waiting for anybody.
  void leave(Step& step, const std::string& text);

  bool leaving() const { return static_cast<bool>(left_); }
  // There is a connection to the coordinator.
  bool connected() const { return connected_; }
  bool fenced() const { return state_ == State::fenced; }
  const std::string& fenced_reason() const { return fenced_reason_; }
  const WorkerInfo& self() const { return self_; }
  uint32_t world_size() const { return options_.world_size; }
  // A peer that is known without asking, and not lost.
  const WorkerInfo* known(Rank rank) const;
  void learn(const WorkerInfo& worker) { known_[worker.rank] = worker; }
  // What the coordinator last said it waits for.
  const std::string& waiting_for() const { return waiting_; }

  bool owns(ConnectionId connection) const { return connection_.value != 0 && connection == connection_; }
  void on_connected(Step& step);
  void on_frames(Step& step, std::vector<InFrame>& frames);
  void on_closed(Step& step, const Failure& why);
  void collect(ConnectionId connection, std::vector<OutFrame>& out) { outbox_.collect(connection, out); }
  void on_time(Step& step);
  Time next_wakeup() const;
  // Nothing waits to be written to the coordinator.
  bool flushed() const { return outbox_.empty(); }

 private:
  enum class State { outside, joining, accepted, ready, fenced, left };

  struct PendingLookup {
    Lookup lookup;
    Time deadline;
    FoundWorker found;
  };

  void dial(Step& step);
  void send(Step& step, MessagePtr message);
  Status on_frame(Step& step, InFrame& frame);
  void on_accepted(Step& step, const Accepted& accepted);
  Status on_ready(Step& step, const Ready& ready);
  void on_join_refused(Step& step, const std::string& text);
  void on_found(Step& step, Found found);
  void on_lost(Step& step, const Lost& lost);
  void on_settled(Step& step, uint64_t number);
  void become_fenced(Step& step, const std::string& reason);
  void say_join(Step& step);
  void say_heartbeat(Step& step);
  void repeat(Step& step);
  bool awaits_answer() const;
  void finish_join(Step& step, Status status);
  void finish_leave(Step& step, Status status);
  void fail_lookups(Step& step, const Failure& failure);
  // The state ends here, one way or another: no more dialling, heartbeats or waiting.
  void stop_timers();
  // When the oldest unanswered heartbeat has waited so long that the connection must be dead: half a lease, which
  // leaves time for another connection.
  Time silent_at() const;
  Failure over() const;

  MemberOptions options_;
  MemberEvents& events_;
  ConnectionIds& ids_;
  Random random_;
  const uint64_t instance_;
  Outbox outbox_;

  State state_ = State::outside;
  std::string address_;
  std::optional<DeviceFacts> devices_;
  WorkerInfo self_;
  std::string waiting_;
  std::string last_problem_;  // why the coordinator is out of reach
  std::string fenced_reason_;

  ConnectionId connection_;
  bool connected_ = false;
  bool greeted_ = false;  // ACCEPTED came over this connection
  uint32_t failed_attempts_ = 0;
  Time dial_at_ = kNever;
  Time attempt_until_ = kNever;  // from dialling until ACCEPTED
  Time join_sent_{};             // the first JOIN on this connection

  Time repeat_at_ = kNever;
  uint64_t losses_seen_ = 0;
  uint64_t losses_settled_ = 0;  // see report_settled; for a newcomer, from the losses before its time
  uint64_t settled_heard_ = 0;   // never more than losses_seen_
  Duration lease_{};
  Time lease_until_ = kNever;
  Time heartbeat_at_ = kNever;  // never while there is no connection that was greeted
  uint64_t heartbeat_ = 0;
  // When each heartbeat on this connection that is not answered yet was sent; the first few, if there are many.
  std::map<uint64_t, Time> heartbeats_;

  Time join_deadline_ = kNever;
  Done joined_;
  Time leave_deadline_ = kNever;
  Done left_;
  std::optional<Quiet> last_quiet_;  // said again after a reconnect

  // Peers heard of, by rank; an entry goes when its life is over.
  std::unordered_map<Rank, WorkerInfo> known_;
  // The newest life of each rank that is over.
  std::unordered_map<Rank, Incarnation> lost_;
  // From lookup() until FOUND or the deadline.
  std::map<uint64_t, PendingLookup> lookups_;
  uint64_t last_lookup_ = 0;
};

}  // namespace holdfast
