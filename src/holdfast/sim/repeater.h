// Repeater: hands control messages of the reference protocol to their receiver a second time, some time after they
// were delivered. Links never do that; the protocol must bear it all the same, and so does not rest on them alone.
//
// Protocol code of one simulated worker: it stands before the References, which get every message through it.
#pragma once

#include <cstdint>

#include <holdfast/base/random.h>
#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/node.h>
#include <holdfast/transport/sim_network.h>

namespace holdfast::sim {

// Shared by the workers of one world.
struct Repetition {
  double chance = 0;
  uint64_t count = 0;
  Random random{0};
};

class Repeater final : public Protocol {
 public:
  // All of these outlive it.
  Repeater(Node& node, Host& host, SimNetwork& network, Repetition& repetition);

  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  bool idle() const override { return true; }

 private:
  Node& node_;
  Host& host_;
  SimNetwork& network_;
  Repetition& repetition_;
};

}  // namespace holdfast::sim
