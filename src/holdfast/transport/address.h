// Addresses: numeric endpoints, names, interfaces, and the listening socket of a worker.
//
// All functions are free of shared state and may be called from any thread. resolve() asks the system's
// resolver and may block for as long as that takes; everything else answers at once.
// Failures say which address, what the system said, and what to do about it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <holdfast/base/error.h>

struct sockaddr_storage;

namespace holdfast {

// A numeric IPv4 or IPv6 address with a port.
struct Endpoint {
  std::array<uint8_t, 16> address = {};  // IPv4 uses the first four bytes
  bool is_v6 = false;
  uint16_t port = 0;
  uint32_t scope = 0;  // IPv6 link-local: which interface

  friend bool operator==(const Endpoint&, const Endpoint&) = default;

  // "127.0.0.1:80" or "[::1]:80"; nothing else, no names.
  static Result<Endpoint> parse(std::string_view text);
  std::string host_text() const;  // "127.0.0.1", "::1"
  std::string text() const;       // "127.0.0.1:80", "[::1]:80"
  bool is_wildcard() const;       // 0.0.0.0 or ::
};

bool is_loopback(const Endpoint& endpoint);

// "name:port", "127.0.0.1:80" or "[::1]:80" to a numeric endpoint. Of several addresses the first IPv4 one
// is taken, else the first: "localhost" then means what a worker without options binds.
Result<Endpoint> resolve(const std::string& host_port);

// The local address that the kernel would use to reach `peer`, without a port; "" if there is no route.
std::string address_towards(const Endpoint& peer);

struct ListenOptions {
  // An address, the name of an interface ("eth0"), or "" for 127.0.0.1.
  std::string bind;
  // What peers dial: a host name or address; with a port ("host:port") only where that differs from the one
  // that is listened on, behind a port forwarding. "": the bound address; where that is 0.0.0.0 or ::, this
  // machine's first address that is not loopback.
  std::string advertise;
  // 0: any free port. Otherwise the ports from first to last are tried in order; last 0 means only first.
  uint16_t port_first = 0;
  uint16_t port_last = 0;
};

struct Listener {
  int fd = -1;  // the caller closes it
  Endpoint bound;
  std::string advertised;  // "host:port"
};

Result<Listener> open_listener(const ListenOptions& options);

// For the sockets of this layer: fills `out`, answers its length.
uint32_t fill_sockaddr(const Endpoint& endpoint, sockaddr_storage& out);
Endpoint from_sockaddr(const sockaddr_storage& in);
// What the system says an errno means.
std::string errno_text(int error);

}  // namespace holdfast
