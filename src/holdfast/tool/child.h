// Starts one process with pipes for its output. Main thread only: a child dies with the thread that started it.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include <holdfast/tool/fd.h>

namespace holdfast {

class Signals;

struct ChildSpec {
  std::string path;                      // as find_program gave it
  std::vector<std::string> arguments;    // with the program's name as first
  std::vector<std::string> environment;  // "NAME=value"
  int kept_fd = -1;                      // stays open, under its number
};

// A running process. It leads a process group of its own, so that what it starts can be ended with it. Not reaped
// on destruction: that is the Supervisor's part.
struct ChildProcess {
  pid_t pid = -1;
  Fd out;  // reading ends, not blocking
  Fd err;
};

// More descriptors than the usual 1024 are needed for some hundred children. Answers the limit as it was, for
// start_child to give back to the children.
rlimit raise_descriptor_limit();

// Returns when the program runs. Its stdin is /dev/null; it is killed when the launcher dies in whatever way.
// Throws LaunchError: 127 or 126 if the program cannot be executed, 1 if the system is out of something.
ChildProcess start_child(const ChildSpec& spec, const Signals& signals, const rlimit& descriptors);

}  // namespace holdfast
