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

#include <holdfast/base/ambient.h>
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
  // The same for the same things: how fault injection knows a call again.
  virtual uint64_t fingerprint() const { return 0; }
};

class CargoUnloader {
 public:
  virtual ~CargoUnloader() = default;
  // Of a message of that kind. `bytes` are a peer's: anything. A failure closes the connection.
  virtual Result<std::shared_ptr<Cargo>> unload(Step& step, const WorkerPtr& from, Kind kind, ByteView bytes) = 0;
};

// What the codecs of a layer above gather while the values of one message are encoded, or share while they are decoded.
class Gathered {
 public:
  virtual ~Gathered() = default;
};
class GatheredToSend : public Gathered {
 public:
  // All values are encoded: adds attachments to the message, and returns the bytes of the section that describes them.
  virtual Bytes finish(Message& message) = 0;
};

// Given to the Writer of a call's arguments or a result.
class SendContext final : public WireContext {
 public:
  SendContext(CallHost& host, const WorkerPtr& to, Kind kind) : host(host), to(to), kind(kind) {}
  // All values are encoded: completes the message.
  void finish(Message& message) {
    if (tensors || current_flow()) finish_more(message);
    message.cargo = std::move(cargo);
  }

  CallHost& host;  // of the worker that sends
  const WorkerPtr& to;
  const Kind kind;                       // kReply, or a call of some kind
  std::shared_ptr<OutgoingCargo> cargo;  // made by the first codec that needs it, as are
  std::unique_ptr<GatheredToSend> tensors;

 private:
  void finish_more(Message& message);
};

// Given to the Reader of what arrived.
class ReceiveContext final : public WireContext {
 public:
  ReceiveContext(CallHost& host, const WorkerPtr& from, const Message& message)
      : host(host), from(from), message(message), cargo(message.cargo.get()) {}

  CallHost& host;
  const WorkerPtr& from;
  const Message& message;
  Cargo* const cargo;                 // null: the message has none
  std::unique_ptr<Gathered> tensors;  // made by the first codec that needs them
};

}  // namespace holdfast
