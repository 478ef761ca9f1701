// Controls: what the reference protocol has to say to other workers, gathered per peer until it is sent. None of it is
// urgent, so it waits a little for company; only a fork request must arrive before anything later that uses the fork.
//
// Protocol code, owned by References, guarded by the driver's lock.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/rref/messages.h>

namespace holdfast {

// How control messages leave. Implemented by References.
class ControlPost {
 public:
  virtual ~ControlPost() = default;
  virtual void send_control(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message) = 0;
};

class Controls {
 public:
  explicit Controls(ControlPost& post) : post_(post) {}

  void request(Step& step, const WorkerPtr& owner, const ForkRequest& request);
  void accept(Step& step, const WorkerPtr& user, const ForkId& fork);
  void child_accept(Step& step, const WorkerPtr& parent, const ForkId& fork);
  void user_delete(Step& step, const WorkerPtr& owner, const ForkId& fork);

  // Something else goes to this peer next: requests go first.
  void before_send(Step& step, const WorkerId& to);
  void on_time(Step& step);
  Time next_wakeup() const { return waiting_.empty() ? kNever : send_at_; }
  bool empty() const { return waiting_.empty(); }
  void forget(const WorkerId& peer);

  // Whether a control message with this number, from this peer, is new. Call once for each that arrives.
  bool is_new(const WorkerId& from, uint64_t number);

  uint64_t messages_sent() const { return messages_sent_; }

 private:
  // From the first word to or from a peer until that peer is lost.
  struct PeerControls {
    WorkerPtr worker;
    bool waiting = false;  // listed in waiting_
    std::vector<ForkRequest> requests;
    std::vector<ForkId> accepts;
    std::vector<ForkId> child_accepts;
    std::vector<ForkId> deletes;
    uint64_t last_sent = 0;
    uint64_t last_received = 0;
  };

  PeerControls& gather(Step& step, const WorkerPtr& peer);
  void send(Step& step, PeerControls& peer);
  void send_requests(Step& step, PeerControls& peer);
  void send_forks(Step& step, PeerControls& peer, Kind kind, std::vector<ForkId>& forks);
  void count(Step& step, PeerControls& peer, size_t length);

  ControlPost& post_;
  std::unordered_map<WorkerId, PeerControls> peers_;
  std::vector<WorkerId> waiting_;  // peers with something to say to, in the order in which they got it
  Time send_at_ = kNever;
  size_t requests_waiting_ = 0;
  uint64_t messages_sent_ = 0;
};

}  // namespace holdfast
