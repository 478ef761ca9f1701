// Transport: frames between two processes, over connections that may break at any moment.
//
// The contract, checked by transport/contract_test.cc over every transport:
// - Frames of one connection arrive in order, each at most once, until it closes. (A transport whose
//   `reliable()` is false may also lose, repeat and reorder them; links cope.)
// - on_closed comes exactly once for every connection that connect() or on_accepted named, and nothing
//   comes after it, collect() included. A failed connect is an on_closed without on_connected.
// - Events of one connection never overlap, and no event is ever called from inside connect(), flush() or
//   close(): they come from poll() (or a HelpSession, or the simulator's step), so a caller must not expect
//   an answer before it returns. The exception is collect(), which flush() calls on the calling thread.
// - Locks: an event is called with that connection's read lock (collect: its write lock) held, and takes the
//   driver's own lock inside it. So flush(), which may call collect(), is never called with the driver's
//   lock held, nor from inside an event. connect(), close() and trust() take no such lock: they may be
//   called from anywhere, events included.
// - Bytes that are not frames, or that go over a limit, close that connection with Code::corrupt.
//   Before trust() the limit is kUntrustedFrameBytesMax; after it, the transport's own option.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <holdfast/base/error.h>
#include <holdfast/base/ids.h>
#include <holdfast/base/time.h>
#include <holdfast/wire/frame.h>

namespace holdfast {

inline constexpr size_t kUntrustedFrameBytesMax = 64 * 1024;

// What the transport tells its user. Implementations must be quick and must not block: they step protocol
// code and note what follows from it. They never run user code.
class TransportEvents {
 public:
  virtual ~TransportEvents() = default;
  virtual void on_accepted(ConnectionId connection) = 0;
  virtual void on_connected(ConnectionId connection) = 0;
  // May move the frames out; the vector is the transport's and is reused.
  virtual void on_frames(ConnectionId connection, std::vector<InFrame>& frames) = 0;
  // A part of a large frame has moved, in either direction: the peer is alive though no frame is complete.
  virtual void on_progress(ConnectionId connection) = 0;
  virtual void on_closed(ConnectionId connection, const Failure& why) = 0;
  // The transport can write: append what is to be sent next, about `bytes_max` of it (at least one frame
  // if there is any). Called under the connection's write lock, possibly from flush().
  virtual void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Starts to dial `address` (what the peer's transport advertised). `connection` is the caller's choice:
  // even, never used before.
  virtual void connect(ConnectionId connection, const std::string& address) = 0;
  // There is something to collect. Writes what the other side takes now, the rest when it can.
  virtual void flush(ConnectionId connection) = 0;
  // What was collected and not yet written may be lost. on_closed follows.
  virtual void close(ConnectionId connection, Failure why) = 0;
  // The peer has proved who it is: full frame size allowed, from the next frame on. Call it from inside the
  // on_frames that brought the proof: the large frame that follows may already have arrived. (Until then
  // frames are delivered one at a time, so there is always a moment to do so.)
  virtual void trust(ConnectionId connection) = 0;
  virtual bool reliable() const = 0;
};

}  // namespace holdfast
