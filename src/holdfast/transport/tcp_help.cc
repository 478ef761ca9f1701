// HelpSession, and how TcpTransport hands them out.
#include <holdfast/transport/tcp.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace holdfast {

std::unique_ptr<HelpSession> TcpTransport::make_session() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd < 0 ? nullptr : std::unique_ptr<HelpSession>(new HelpSession(*this, fd));
}

void TcpTransport::take_back(std::unique_ptr<HelpSession> session) {
  const std::lock_guard lock(connections_mutex_);
  idle_sessions_.push_back(std::move(session));
}

HelpSessionPtr TcpTransport::try_help(ConnectionId connection) {
  std::shared_ptr<TcpConnection> helped;
  std::unique_ptr<HelpSession> session;
  {
    const std::lock_guard lock(connections_mutex_);
    const auto found = connections_.find(connection);
    if (found == connections_.end()) return nullptr;
    helped = found->second;
    if (!idle_sessions_.empty()) {
      session = std::move(idle_sessions_.back());
      idle_sessions_.pop_back();
    }
  }
  if (!session) session = make_session();
  if (!session) return nullptr;  // no descriptor left: the poller reads, as ever
  if (!helped->begin_help()) {
    take_back(std::move(session));
    return nullptr;
  }
  session->connection_ = std::move(helped);
  return HelpSessionPtr(session.release());
}

HelpSession::~HelpSession() { ::close(wake_fd_); }

void HelpSession::end() {
  connection_->end_help();
  connection_.reset();
  take_interrupt();  // the next use begins without one
  transport_.take_back(std::unique_ptr<HelpSession>(this));
}

void HelpSession::interrupt() {
  if (interrupted_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

bool HelpSession::take_interrupt() {
  if (!interrupted_) return false;
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &ignored, sizeof(ignored));
  interrupted_ = false;
  return true;
}

HelpSession::Woken HelpSession::sleep(Time until) {
  if (!connection_->helper_may_sleep()) return Woken::readable;
  for (;;) {
    pollfd watched[2] = {{connection_->fd(), POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    timespec left = {};
    if (until != kNever) {
      const auto wait = std::max(Duration::zero(), until - steady_now());
      left = {.tv_sec = static_cast<time_t>(wait.count() / 1'000'000'000),
              .tv_nsec = static_cast<long>(wait.count() % 1'000'000'000)};
    }
    const int ready = ::ppoll(watched, 2, until == kNever ? nullptr : &left, nullptr);
    if (ready == 0) return Woken::timeout;
    if (ready < 0) continue;  // a signal
    if (watched[0].revents != 0) return Woken::readable;
    if (take_interrupt()) return Woken::interrupted;
    // A late write to a descriptor that served another session before.
    uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &ignored, sizeof(ignored));
  }
}

HelpSession::Outcome HelpSession::poll_once(Time until) {
  using Read = TcpConnection::Read;
  Spin spin(transport_.spins_ ? &connection_->helper_spin() : nullptr, until, /*moves=*/true);
  for (;;) {
    if (take_interrupt()) return Outcome::interrupted;
    const bool sleeps = !spin.again();
    if (sleeps) {
      const Woken woken = sleep(until);
      if (woken == Woken::timeout) return Outcome::timeout;
      if (woken == Woken::interrupted) return Outcome::interrupted;
    } else if (!ask_for_a_moment([this] { return connection_->has_news() || interrupted_; })) {
      continue;
    }
    const Read outcome = connection_->read_as_helper(tools_, sleeps);
    if (outcome == Read::delivered) return Outcome::delivered;
    if (outcome == Read::closed) return Outcome::closed;
  }
}

}  // namespace holdfast
