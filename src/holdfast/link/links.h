// Links: all links of one worker, the connections they use, and the connections that have not said who they
// are. Decides which connection belongs to which link and refuses strangers.
//
// Protocol code, guarded by the driver's lock. Messages that arrive are handed to a LinkReceiver at once.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include <holdfast/base/timer_queue.h>
#include <holdfast/link/link.h>

namespace holdfast {

// What stands above the links. Protocol code too: it is called under the driver's lock.
class LinkReceiver {
 public:
  virtual ~LinkReceiver() = default;
  // A failure (the message does not decode) closes the connection.
  virtual Status on_message(Step& step, const WorkerPtr& from, Message message) = 0;
  // A peer says that the coordinator has declared this worker lost.
  virtual void on_fenced(Step& step, const std::string& text) = 0;
};

class Links {
 public:
  // `receiver` and `ids` outlive this.
  Links(LinkOptions options, LinkReceiver& receiver, ConnectionIds& ids, Random random);
  ~Links();

  // After joining; before that every HELLO is answered with `busy`.
  void set_self(WorkerInfo self) { self_ = std::move(self); }
  const WorkerInfo& self() const { return self_; }

  // Sends over the link to that life of that worker, which is made if need be. Returns the message's number,
  // or 0 if that life is known to be over (nothing is sent then).
  uint64_t send(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed);
  bool has_room(const WorkerId& to, uint64_t bytes) const;
  bool maybe_sent(const WorkerId& to, uint64_t sequence) const;
  void grant_credit(Step& step, const WorkerId& from, uint64_t bytes);
  // The coordinator says that this life is over. Its link goes; later messages from it are refused. `why` has its name.
  void lose(Step& step, const WorkerId& worker, const Failure& why);
  bool is_lost(const WorkerId& worker) const;
  // What a lost worker was called, for people.
  std::string lost_name(const WorkerId& worker) const;

  // Transport events. owns() tells whether a connection is one of ours.
  void on_accepted(Step& step, ConnectionId connection);
  bool owns(ConnectionId connection) const;
  void on_connected(Step& step, ConnectionId connection);
  void on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames);
  void on_progress(Step& step, ConnectionId connection);
  void on_closed(Step& step, ConnectionId connection, const Failure& why);
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out);

  void on_time(Step& step);
  Time next_wakeup() const;
  // This worker's life is over: every link goes, and nothing is sent or accepted any more.
  void close_all(Step& step, const Failure& why);

  // Nothing waits for an acknowledgement.
  bool settled() const;
  // Nor need anything: see Link::hurry.
  void hurry(Step& step);
  size_t link_count() const { return links_.size(); }
  size_t connection_count() const { return connections_.size() + strangers_.size(); }
  const Link* find(const WorkerId& worker) const;
  // Whose link uses this connection; null: nobody's.
  const WorkerInfo* peer_of(ConnectionId connection) const;
  // The connection that replies from this worker will come over; nothing while there is none.
  ConnectionId connection_to(const WorkerId& worker) const;

 private:
  // An accepted connection before its HELLO, or after it was refused.
  struct Stranger {
    Time until;
    MessagePtr answer;  // REFUSED, not sent yet
  };

  Link& link_to(const WorkerPtr& peer);
  // Follows the link's connection and deadline after anything was done to it.
  void settle(Link& link, ConnectionId before);
  void on_stranger_frame(Step& step, ConnectionId connection, InFrame& frame);
  void refuse(Step& step, ConnectionId connection, Refused refused);
  Status on_link_frame(Step& step, Link& link, InFrame& frame);
  Status on_greeting_frame(Step& step, Link& link, InFrame& frame);

  const LinkOptions options_;
  LinkReceiver& receiver_;
  ConnectionIds& ids_;
  Random random_;
  WorkerInfo self_;

  // From the first message in either direction until lose().
  std::unordered_map<WorkerId, std::unique_ptr<Link>> links_;
  // A link's current connection, from dialling or adoption until the link lets go of it.
  std::unordered_map<ConnectionId, Link*> connections_;
  // From on_accepted until HELLO is accepted, or on_closed.
  std::unordered_map<ConnectionId, Stranger> strangers_;
  std::deque<std::pair<Time, ConnectionId>> stranger_deadlines_;
  // The newest life of each rank that is known to be over.
  struct Lost {
    Incarnation newest;
    std::string name;
  };
  std::unordered_map<Rank, Lost> lost_;
  TimerQueue<Link*> timers_;
  bool closed_ = false;  // after close_all
};

}  // namespace holdfast
