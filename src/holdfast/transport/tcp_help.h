// What a HelpSession needs and what is kept for the next one: a descriptor to be woken by, and buffers.
// Internal to the TCP transport.
#pragma once

#include <holdfast/transport/tcp.h>

namespace holdfast {

struct HelpSession::Tools {
  explicit Tools(int fd) : wake_fd(fd) {}
  ~Tools();
  Tools(const Tools&) = delete;
  Tools& operator=(const Tools&) = delete;

  const int wake_fd;
  ReadTools read;
};

}  // namespace holdfast
