// For tests of the launcher with real workers: this test program again, in a role.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/transport/address.h>

namespace holdfast::testing {

// A script's last line that makes the shell a worker in that role.
inline std::string play(const std::string& role) {
  return std::string("exec env ") + test::kRoleVariable + "=" + role + " " +
         std::filesystem::read_symlink("/proc/self/exe").string();
}

// Where the launchers of several nodes can meet.
inline std::string free_rendezvous() {
  const Listener listener = open_listener({}).take();
  ::close(listener.fd);
  return listener.bound.text();
}

}  // namespace holdfast::testing
