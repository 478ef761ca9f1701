// A program of benchmarks/peers that does rounds of the same work on request: it says "ready", then answers each line
// of its input by a line with one number. Between its rounds it is stopped, with all processes that it has started:
// some ask again and again for messages while there are none, and would take a core from the others' rounds.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace holdfast::bench {

class PeerProcess {
 public:
  // `command` begins with the program: a name without a slash is one that was built beside this program, or else a
  // script in benchmarks/peers, which gets a free port as its last argument. Starts it before this process has threads;
  // whether it is there is known once it is asked for. `packages` are those to install if it is not.
  PeerProcess(const std::vector<std::string>& command, std::string packages);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  bool there();
  std::string why_not() const { return "install Debian's " + packages_; }
  double ask(const std::string& request);

 private:
  bool read_line(std::string& line);
  void send_signal(int signal);

  const std::string packages_;
  pid_t pid_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  bool asked_ = false;
  bool there_ = false;
};

}  // namespace holdfast::bench
