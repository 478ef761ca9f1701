// Flow: what the work of a call belongs to, beyond its values: the context of a distributed backward pass. It is
// current in the caller (Ambient::flow), travels in a section of the CALL, and is current again in the handler. Of what
// kind it is, only the layer above knows that claims it for the whole program.
#pragma once

#include <memory>

#include <holdfast/rpc/cargo.h>

namespace holdfast {

// Any thread, outside locks.
class FlowHooks {
 public:
  virtual ~FlowHooks() = default;
  // The values of a call or a reply are encoded, in the name of the flow that is current here. Returns the section of
  // the message; empty: none.
  virtual Bytes on_send(SendContext& context) = 0;
  // A call arrived with these bytes: the flow of its handler.
  virtual Result<std::shared_ptr<void>> on_call(CallHost& host, const WorkerPtr& from, ByteView bytes) = 0;
};

// Before main().
void set_flow_hooks(FlowHooks& hooks);

// The flow of a call's handler; null: none.
Result<std::shared_ptr<void>> enter_flow(CallHost& host, const WorkerPtr& from, const Message& message);

}  // namespace holdfast
