// Protocol: the part of a layer above rpc (references, autograd) that lives in each worker's Node and speaks with its
// like on other workers in message kinds of its own. Each such layer registers with the program, like functions do,
// and then every worker of that program has it.
//
// Protocol code: called under the driver's lock.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <holdfast/cluster/messages.h>
#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

class Host;
class Node;

class Protocol {
 public:
  virtual ~Protocol() = default;
  virtual Status on_message(Step& step, const WorkerPtr& from, Message message) = 0;
  // Something else is about to be sent there: what must arrive earlier has to go now.
  virtual void before_send(Step&, const WorkerPtr&) {}
  virtual void on_worker_lost(Step&, const WorkerInfo&, [[maybe_unused]] uint64_t loss) {}
  // Nothing that the workers of the losses up to this one sent is on its way any more, to anybody.
  virtual void on_settled(Step&, [[maybe_unused]] uint64_t loss) {}
  // See MemberEvents; for the one that told its node of devices.
  virtual void on_device_maps(Step&, const std::vector<PeerDeviceMap>&) {}
  virtual void on_time(Step&) {}
  virtual Time next_wakeup() const { return kNever; }
  // The names of its messages, by which faults are asked for.
  virtual std::span<const KindName> kinds() const { return {}; }
  // Nothing is under way: a condition of the end of a job.
  virtual bool idle() const = 0;
  // What is under way, for people; empty if nothing.
  virtual std::string describe() const { return {}; }
  // What others still hold of this worker at the common end of the job, and what it holds itself; empty if nothing.
  virtual std::string leftovers() const { return {}; }
  // This worker's life is over; handlers may still run.
  virtual void stop(Step&) {}
  // No handler runs any more: what they may have used can go.
  virtual void ended(Step&) {}
};

// Makes the protocol for one worker, and adds it to its node.
using MakeProtocol = std::unique_ptr<Protocol> (*)(Node& node, Host& host);
// Before main(). Returns the index for Host::protocol.
size_t register_protocol(MakeProtocol make);
std::vector<std::unique_ptr<Protocol>> make_protocols(Node& node, Host& host);

// The first use of index() registers P, which has a static function make. A function and not a variable, so that it is
// right whatever else is initialised before main().
template <class P>
struct RegisteredProtocol {
  static size_t index() {
    static const size_t index = register_protocol(&P::make);
    return index;
  }
};

}  // namespace holdfast
