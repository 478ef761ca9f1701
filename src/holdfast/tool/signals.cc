#include <holdfast/tool/signals.h>

#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>

#include <holdfast/base/check.h>
#include <holdfast/tool/launch_error.h>
#include <holdfast/transport/address.h>

namespace holdfast {

Signals::Signals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction current = {};
    ::sigaction(signal, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&mask, signal);
  }
  HOLDFAST_CHECK(::pthread_sigmask(SIG_BLOCK, &mask, &original_mask_) == 0);
  fd_ = Fd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.open()) throw LaunchError(1, "cannot watch for signals: " + errno_text(errno));

  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, &original_pipe_);
  // An inherited SIG_IGN here would make the kernel throw our children's exit statuses away.
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  plain.sa_flags = SA_NOCLDSTOP;
  ::sigaction(SIGCHLD, &plain, nullptr);
}

std::optional<Signals::Event> Signals::next() {
  signalfd_siginfo info = {};
  if (::read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return Event{.signal = static_cast<int>(info.ssi_signo), .pid = static_cast<int>(info.ssi_pid)};
}

void Signals::restore_in_child() const {
  ::sigaction(SIGPIPE, &original_pipe_, nullptr);
  ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
}

}  // namespace holdfast
