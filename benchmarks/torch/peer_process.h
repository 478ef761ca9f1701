// A program of benchmarks/peers that does rounds of the same work on request: it says "ready", then answers each line
// with a count of things to do by a line with its result.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace holdfast::bench {

class PeerProcess {
 public:
  // Starts it before this process has threads; whether it is there is known once it is asked for.
  explicit PeerProcess(const std::string& script);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  bool there();
  const std::string& why_not() const { return why_not_; }
  double run(size_t count);

 private:
  bool read_line(std::string& line);

  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  bool asked_ = false;
  bool there_ = false;
  std::string why_not_ = "it did not start";
};

}  // namespace holdfast::bench
