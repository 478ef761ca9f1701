// The Unix sockets by which workers of one host and one user find each other and pass on the memory that they will
// share. docs/shared_memory.md has the names and the bytes.
//
// Free of shared state; any thread. Nothing here blocks.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include <holdfast/base/error.h>
#include <holdfast/transport/address.h>

namespace holdfast {

// A listening socket under the name that belongs to the address; -1 if there is none to be had. The caller closes it.
int listen_local(const Endpoint& bound);
// A socket to the worker that listens at `target`, if it runs on this host, as this user, and has such a socket;
// else -1. The caller closes it.
int dial_local(const Endpoint& target);

// The number of the process at the other end (0 if it cannot be seen from here); nullopt if it is not this user's.
std::optional<int> peer_process(int fd);

// What the dialler sends first.
struct Offer {
  int memory_fd = -1;
  bool tls = false;  // a handshake follows
};
// False: the other side is not there any more.
bool send_offer(int fd, const Offer& offer);
// nullopt: it has not come yet. The caller closes the descriptor.
Result<std::optional<Offer>> receive_offer(int fd);

// What is sent later, a byte at a time. No record of TLS begins with one of these.
inline constexpr uint8_t kDoorbell = 1;
inline constexpr uint8_t kBufferArea = 2;  // with a descriptor, as the next
inline constexpr uint8_t kLentArea = 3;
// If there is no room for it, there are others that were not heard yet.
void send_doorbell(int fd);
// False: there is no room, or nobody.
bool send_area(int fd, uint8_t kind, int area_fd);

struct Heard {
  ssize_t count = -1;  // as recv: 0 is the end, -1 an error
  int error = 0;
  std::array<uint8_t, 64> bytes = {};
  int area_fd = -1;  // beside one of the bytes; the caller closes it
};
Heard hear(int fd);

}  // namespace holdfast
