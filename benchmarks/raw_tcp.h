// The floor: 64 bytes there and back over a plain TCP socket on loopback, by threads that sleep while they wait, or by
// threads that ask the socket again and again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness.h"

namespace holdfast::bench {

// Serves one connection: every 64 bytes that come are sent back.
class RawTcpEcho {
 public:
  enum class Waiting { sleeps, spins };
  explicit RawTcpEcho(Waiting waiting);  // listens, and dials itself once serve() runs elsewhere
  ~RawTcpEcho();
  // In the child.
  void serve() const;
  // In the parent.
  void connect();
  void ping_pong(size_t count, Latencies& latencies) const;

 private:
  const Waiting waiting_;
  int listener_ = -1;
  int socket_ = -1;
  uint16_t port_ = 0;
};

}  // namespace holdfast::bench
