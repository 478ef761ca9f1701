// Signals: what the launcher is told by signal, as events on a descriptor for poll.
//
// Made by the main thread before any other thread exists, so that every thread inherits the blocked mask and no
// signal is ever handled anywhere but here. One thread reads it.
#pragma once

#include <csignal>
#include <optional>

#include <holdfast/tool/fd.h>

namespace holdfast {

class Signals {
 public:
  // Blocks SIGCHLD, SIGINT, SIGTERM, SIGHUP and SIGQUIT, and ignores SIGPIPE. A signal that whoever started us
  // had set to be ignored (nohup, a script's background job) stays so.
  Signals();

  struct Event {
    int signal = 0;
    int pid = 0;  // SIGCHLD: a child that changed; others may have, too
  };
  // The next one that came, if any. Never blocks.
  std::optional<Event> next();
  int fd() const { return fd_.get(); }

  // Gives a new process the mask and SIGPIPE that we were started with. Only calls what is safe after fork.
  void restore_in_child() const;

 private:
  Fd fd_;
  sigset_t original_mask_;
  struct sigaction original_pipe_;
};

}  // namespace holdfast
