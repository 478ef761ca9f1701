// Cargo: what goes with the values of a call or a reply and is more than bytes: references, which the sender and the
// receiver must enter in their tables. A message without any has none of this.
//
// The values are encoded on the sender's thread; a codec that meets such a thing adds it to the SendContext's cargo
// and writes only its index. When the message gets its place on a link, under the driver's lock, the cargo is loaded:
// turned into bytes that travel as the last attachment. At the receiver those bytes are unloaded as soon as the
// message arrives, before anything is decoded; the object that comes out stays with the message, and the codecs find
// it in their ReceiveContext.
#pragma once

#include <memory>

#include <holdfast/link/step.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/wire/wire_context.h>

namespace holdfast {

class CallHost;

class OutgoingCargo : public Cargo {
 public:
  // The message goes to `to`, next on that link. Not called if it is not sent after all.
  virtual Bytes load(Step& step, const WorkerPtr& to) = 0;
  // No more than so many come out of load(): a message that may become too large is refused before.
  virtual uint64_t bytes_max() const = 0;
};

class CargoUnloader {
 public:
  virtual ~CargoUnloader() = default;
  // Of a message of that kind. `bytes` are a peer's: anything. A failure closes the connection.
  virtual Result<std::shared_ptr<Cargo>> unload(Step& step, const WorkerPtr& from, Kind kind, ByteView bytes) = 0;
};

// Given to the Writer of a call's arguments or a result.
class SendContext final : public WireContext {
 public:
  explicit SendContext(CallHost& host) : host(host) {}
  CallHost& host;                        // of the worker that sends
  std::shared_ptr<OutgoingCargo> cargo;  // made by the first codec that needs it
};

// Given to the Reader of what arrived.
class ReceiveContext final : public WireContext {
 public:
  explicit ReceiveContext(Cargo* cargo) : cargo(cargo) {}
  Cargo* const cargo;  // null: the message has none
};

}  // namespace holdfast
