// The floor: 64 bytes there and back over a plain TCP socket on loopback or a Unix socket, by threads that sleep while
// they wait, or by threads that ask the socket again and again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "harness.h"

namespace holdfast::bench {

// Small writes go out at once.
void set_nodelay(int fd);

// Serves one connection: every 64 bytes that come are sent back.
class RawSocketEcho {
 public:
  struct Kind {
    bool unix_socket = false;  // else TCP
    bool spins = false;        // else it sleeps
  };
  explicit RawSocketEcho(const Kind& kind);  // listens, and dials itself once serve() runs elsewhere
  ~RawSocketEcho();
  // In the child.
  void serve() const;
  // In the parent.
  void connect();
  void ping_pong(size_t count, Latencies& latencies) const;

 private:
  const Kind kind_;
  int listener_ = -1;  // of a Unix socket: the server's end
  int socket_ = -1;
  uint16_t port_ = 0;
};

}  // namespace holdfast::bench
