#include "harness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

namespace holdfast::bench {

double Latencies::percentile(double p) {
  const size_t at = std::min(us_.size() - 1, static_cast<size_t>(p * static_cast<double>(us_.size())));
  std::nth_element(us_.begin(), us_.begin() + static_cast<std::ptrdiff_t>(at), us_.end());
  return us_[at];
}

Child::Child(const std::function<void()>& body) : pid_(fork()) {
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "benchmark child: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

Child::~Child() { end(SIGTERM); }

void Child::kill() { end(SIGKILL); }

bool Child::wait() {
  int status = -1;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void Child::end(int signal) {
  if (pid_ < 0) return;
  ::kill(pid_, signal);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace holdfast::bench
