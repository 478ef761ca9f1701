// MessageFaults: decides which of a worker's messages fail, leave late, or end the process, and keeps those that wait.
// It stands between the calls and protocols of a Node and its links, so it works over every transport and in the
// simulator. docs/faults.md is its description.
//
// Protocol code, owned by the Node, guarded by the driver's lock. A worker without such faults has none of this.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include <holdfast/base/random.h>
#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/rpc/fault_options.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

// How a message goes on when it has waited long enough. Implemented by Node.
class FaultsPost {
 public:
  virtual ~FaultsPost() = default;
  virtual void send_late(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) = 0;
};

class MessageFaults {
 public:
  // The options have been checked with the same names.
  MessageFaults(FaultOptions options, KindNames names);

  // A call is about to be made: the error that it gets instead. `content` tells it from others of its kind.
  std::optional<Failure> fail_call(const WorkerInfo& self, const WorkerInfo& to, Kind kind, const std::string& function,
                                   uint64_t content);
  // This process is to end now.
  bool kills(const WorkerInfo& self, const WorkerInfo& to);
  // A message is about to be sent. 0: send it. Otherwise it was taken, and waits; the number is for has_left().
  // Only messages that are no calls can fail here: calls did so before.
  uint64_t hold(Time now, const WorkerInfo& self, const WorkerPtr& to, const MessagePtr& message, bool windowed);

  bool has_left(const WorkerId& to, uint64_t number) const;
  // Whether so many bytes of calls may wait, too.
  bool has_room(const WorkerId& to, uint64_t bytes, uint64_t bytes_max) const;
  bool idle() const { return waiting_count_ == 0; }
  void on_time(Step& step, FaultsPost& post);
  Time next_wakeup() const;
  // The messages to that worker, or to everybody, will not be sent any more.
  void forget(Step& step, const WorkerId& to);
  void forget_all(Step& step);

  // Failures, delays and kills so far.
  uint64_t count() const { return count_; }

 private:
  // One kind's fate on the way to one worker.
  struct KindFaults {
    uint32_t fails = 0;
    Duration delay{};
  };
  struct Waiting {
    Time at;
    MessagePtr message;
    bool windowed = false;
    uint32_t fails_left = 0;
    Duration backoff{};
  };
  // From the first message to a worker until that worker is lost.
  struct ToPeer {
    ToPeer(const PeerFaults& faults, const KindNames& names, Random random);
    std::unordered_map<uint16_t, KindFaults> kinds;
    double kill = 0;
    Random random;
    WorkerPtr worker;
    std::deque<Waiting> waiting;  // in the order in which they were sent; none overtakes another
    uint64_t last_number = 0;     // of those that have waited, from 1
    uint64_t windowed_bytes = 0;  // of calls in `waiting`
    // Calls that have failed, and how often: until they pass.
    std::unordered_map<uint64_t, uint32_t> failed_calls;
  };

  // Null: this worker makes no faults.
  ToPeer* find(const WorkerInfo& self, const WorkerInfo& to);

  const FaultOptions options_;
  const KindNames names_;
  std::map<WorkerId, ToPeer> peers_;  // ordered: what is due at one time leaves in the same order in every run
  size_t waiting_count_ = 0;
  uint64_t count_ = 0;
};

}  // namespace holdfast
