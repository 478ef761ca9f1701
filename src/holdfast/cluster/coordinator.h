// Coordinator: the one authority on who is in the job and who is alive. Lives in the launcher, or in rank 0's
// process. Protocol code: no I/O, no clock; whoever hosts it (CoordinatorServer, the simulator) guards it and
// carries out its Steps.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/cluster/messages.h>
#include <holdfast/cluster/outbox.h>
#include <holdfast/link/step.h>

namespace holdfast {

struct CoordinatorOptions {
  std::string job;
  uint32_t world_size = 1;
  // The job starts when so many are there, and the others may come later or not at all; 0: when all are.
  uint32_t start_at = 0;
  Duration lease = std::chrono::seconds(10);
  Duration progress_every = std::chrono::seconds(1);  // how often those who wait are told for whom
  Duration handshake_timeout = std::chrono::seconds(5);
};

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options) : options_(std::move(options)) {}

  void on_accepted(Step& step, ConnectionId connection);
  void on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames);
  void on_closed(Step& step, ConnectionId connection);
  void collect(ConnectionId connection, std::vector<OutFrame>& out) { outbox_.collect(connection, out); }
  void on_time(Step& step);
  Time next_wakeup() const;

  // The launcher saw the process of that rank end: no need to wait for the lease. `returns`: it starts it again, and
  // nobody is released before that one has joined.
  void declare_lost(Step& step, Rank rank, const std::string& reason, bool returns = false);

  bool ready() const { return ready_; }
  bool released() const { return released_; }
  // Workers that are in the job now (not lost, not left).
  size_t member_count() const { return members_.size(); }

 private:
  // One live worker: from ACCEPTED until it is lost or leaves.
  struct Member {
    WorkerInfo info;
    uint64_t instance = 0;
    ConnectionId connection;  // none while it is cut off
    Time last_heard{};
    bool leaving = false;  // it is in shutdown
    bool quiet = false;
    uint64_t activity = 0;
    uint64_t confirmed_round = 0;  // the last round it answered quiet with the same activity
    // Up to this loss, all that it received before hearing of the loss is confirmed. Never more than there are losses.
    uint64_t losses_settled = 0;
    std::optional<DeviceFacts> devices;  // as in its JOIN
  };

  void on_frame(Step& step, ConnectionId connection, InFrame& frame);
  void on_join(Step& step, ConnectionId connection, const Join& join);
  std::string why_not(const Join& join, Rank rank, const std::string& name) const;
  // Into the tables, and out of them.
  Member& add(const Join& join, Rank rank, const std::string& name);
  Member take_out(Rank rank);
  void refuse(Step& step, ConnectionId connection, const std::string& text);
  void welcome(Step& step, ConnectionId connection, Member& member);
  void try_start(Step& step);
  // The job does not start: all who are here are refused and forgotten.
  void refuse_all(Step& step, const std::string& text);
  void accept(Step& step, ConnectionId connection, Member& member, uint64_t losses_seen);
  // What is wrong with the device maps of that one; with those, and those of others for it.
  std::string problem_of_maps_of(const Member& member) const;
  std::string problem_of_newcomer(const Member& member) const;
  // Who has a device map for it.
  const std::set<Rank>& mappers_of(const Member& member) const;
  // With the device maps that others have for it.
  MessagePtr ready_message(const Member& member) const;
  void tell_device_maps_of(Step& step, const Member& newcomer);
  void tell_losses(Step& step, ConnectionId connection, uint64_t losses_seen);
  void tell_settled(Step& step, ConnectionId connection, uint64_t settled_heard);
  void on_heartbeat(Step& step, Member& member, const Heartbeat& heartbeat);
  void on_lookup(Step& step, ConnectionId connection, const Lookup& lookup);
  void on_quiet(Step& step, Member& member, const Quiet& quiet);
  enum class Farewell { none, fence };
  void remove(Step& step, Rank rank, const std::string& why, Farewell farewell);
  void set_quiet(Member& member, bool quiet);
  void check_leases(Step& step);
  void try_release(Step& step);
  void try_settle(Step& step);
  void tell_progress(Step& step);
  std::string missing_ranks() const;
  std::string present_names() const;
  template <class T>
  bool decode(Step& step, ConnectionId connection, const InFrame& frame, T& out);
  void broadcast(Step& step, const MessagePtr& message);
  void close(Step& step, ConnectionId connection, Failure why);

  const CoordinatorOptions options_;
  Outbox outbox_;
  std::map<Rank, Member> members_;
  // The same members by name, by instance, and by each name that their device maps have; entries come and go with
  // members_.
  std::unordered_map<std::string, Rank> names_;
  std::unordered_map<uint64_t, Rank> instances_;
  std::unordered_map<std::string, std::set<Rank>> mapped_by_;
  Rank lowest_free_;  // no rank below is free
  // Connections that have joined, until they close.
  struct Joined {
    Rank rank;
    uint64_t instance = 0;
  };
  std::unordered_map<ConnectionId, Joined> joined_;
  // Connections that are closed at their deadline: those that have not joined, and those of the fenced.
  void expect_end(Step& step, ConnectionId connection);
  std::unordered_map<ConnectionId, Time> strangers_;
  std::deque<std::pair<Time, ConnectionId>> stranger_deadlines_;
  // Instances that were declared lost, with the reason: they are told FENCED if they come back.
  std::unordered_map<uint64_t, std::string> fenced_;
  // Instances that were accepted and then refused, with the reason: one may have been cut off when it was said.
  std::unordered_map<uint64_t, std::string> refused_;
  // Every LOST so far, for members that were cut off when it was said. lost_[i] has number i + 1.
  std::vector<MessagePtr> lost_;
  size_t settled_count_ = 0;  // members whose losses_settled is the latest loss
  uint64_t settled_ = 0;      // the last SETTLED that was said
  // Lost, and being started again: until they join.
  std::set<Rank> returning_;
  uint32_t last_incarnation_ = 0;
  uint64_t frame_bytes_max_ = 0;  // that of those who are here
  bool ready_ = false;            // the world was complete once
  bool released_ = false;         // everybody may go
  size_t quiet_count_ = 0;
  bool checking_ = false;  // CHECK of round_ is under way
  uint64_t round_ = 0;
  size_t confirmed_count_ = 0;    // members whose confirmed_round is round_
  Time lease_check_at_ = kNever;  // not later than the first lease that may run out
  Time progress_at_ = kNever;
};

}  // namespace holdfast
