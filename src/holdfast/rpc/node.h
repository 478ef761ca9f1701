// Node: the whole protocol of one worker - links, membership, calls - as one state machine. Events and the time
// go in, Steps come out. The production Runtime and the simulator drive the same class.
//
// Not thread-safe: the driver holds its lock around every call.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <holdfast/cluster/member.h>
#include <holdfast/link/links.h>
#include <holdfast/rpc/calls.h>

namespace holdfast {

struct NodeOptions {
  MemberOptions member;
  LinkOptions link;
  uint64_t frame_bytes_max = 1 << 30;
  uint64_t seed = 0;
};

// A layer above rpc with message kinds of its own (references, autograd). Protocol code: under the driver's lock.
class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual Status on_message(Step& step, const WorkerPtr& from, Message message) = 0;
  virtual void on_worker_lost(Step& step, const WorkerInfo& worker) = 0;
  // Nothing is under way: a condition of the end of a job.
  virtual bool idle() const = 0;
};

class Node final : private LinkReceiver, private MemberEvents, private Post {
 public:
  Node(NodeOptions options, CallHost& host);

  Calls& calls() { return calls_; }
  const Calls& calls() const { return calls_; }
  Member& member() { return member_; }
  const Member& member() const { return member_; }
  const Links& links() const { return links_; }
  const WorkerPtr& self() const { return self_; }

  // Messages of the kinds first to last go to this protocol, which outlives the node.
  void add_protocol(Kind first, Kind last, Protocol& protocol);

  // Sends to any worker, this one included. 0: that worker is lost.
  uint64_t send(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) override;
  // Whether a call of that size may be started now; if not, wait for Step::room_opened.
  bool has_room(const WorkerId& to, uint64_t bytes) const;
  // Starts a call if it may be started: not when shut down, lost, over the limit.
  CallId start_call(Step& step, WorkerPtr to, const Function& function, std::shared_ptr<Message> message, Time deadline,
                    Completion completion);
  bool begin(Step& step, ServedCall& call);
  void respond(Step& step, ServedCall& call, MessagePtr reply);

  // The graceful end: `done` runs when nothing is under way anywhere, or at the deadline with what it waited for.
  void shutdown(Step& step, Time deadline, Member::Done done);
  // The end: calls fail, connections close, nothing new starts.
  void stop(Step& step, const std::string& why);
  bool stopped() const { return stopped_; }

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
  void on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason) override;
  void on_check(Step& step, uint64_t round) override;
  // Post
  bool maybe_sent(const WorkerId& to, uint64_t number) const override;
  void grant_credit(Step& step, const WorkerId& from, uint64_t bytes) override;

  bool quiet() const;
  // In shutdown: tells the coordinator when this worker falls quiet or gets busy again.
  void follow_quiet(Step& step);
  // Unchanged means that nothing happened: calls, and messages of other protocols.
  uint64_t activity() const { return calls_.activity() + protocol_messages_; }
  bool is_self(const WorkerId& worker) const { return self_ && worker == self_->id(); }

  const NodeOptions options_;
  ConnectionIds ids_;
  Links links_;
  Member member_;
  Calls calls_;
  std::vector<Registered> protocols_;
  WorkerPtr self_;
  uint64_t local_inflight_bytes_ = 0;  // of calls to oneself that have not begun
  uint64_t protocol_messages_ = 0;     // sent and received
  bool reported_quiet_ = false;
  uint64_t reported_activity_ = 0;
  bool fenced_ = false;
  bool stopped_ = false;
  std::string stop_reason_;
};

}  // namespace holdfast
