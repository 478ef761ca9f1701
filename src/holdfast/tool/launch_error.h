// LaunchError: the launcher cannot do what it was asked to. Thrown anywhere in tool, caught in command.cc, which
// prints the message and exits with the status.
#pragma once

#include <stdexcept>
#include <string>

namespace holdfast {

// What shells use for the same cases.
inline constexpr int kStatusUsage = 2;
inline constexpr int kStatusNotExecutable = 126;
inline constexpr int kStatusNotFound = 127;

class LaunchError : public std::runtime_error {
 public:
  LaunchError(int status, const std::string& message) : std::runtime_error(message), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

}  // namespace holdfast
