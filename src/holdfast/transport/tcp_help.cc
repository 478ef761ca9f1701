#include <holdfast/transport/tcp_help.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace holdfast {

HelpSession::Tools::~Tools() { ::close(wake_fd); }

std::unique_ptr<HelpSession::Tools> TcpTransport::take_tools() {
  {
    const std::lock_guard lock(help_mutex_);
    if (!free_tools_.empty()) {
      auto tools = std::move(free_tools_.back());
      free_tools_.pop_back();
      return tools;
    }
  }
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return fd < 0 ? nullptr : std::make_unique<HelpSession::Tools>(fd);
}

void TcpTransport::return_tools(std::unique_ptr<HelpSession::Tools> tools) {
  const std::lock_guard lock(help_mutex_);
  free_tools_.push_back(std::move(tools));
}

std::unique_ptr<HelpSession> TcpTransport::try_help(ConnectionId connection) {
  auto found = find(connection);
  if (!found) return nullptr;
  auto tools = take_tools();
  if (!tools) return nullptr;  // no descriptor left: the poller reads, as ever
  if (!found->begin_help()) {
    return_tools(std::move(tools));
    return nullptr;
  }
  return std::unique_ptr<HelpSession>(new HelpSession(*this, std::move(found), std::move(tools)));
}

HelpSession::HelpSession(TcpTransport& transport, std::shared_ptr<TcpConnection> connection,
                         std::unique_ptr<Tools> tools)
    : transport_(transport), connection_(std::move(connection)), tools_(std::move(tools)) {}

HelpSession::~HelpSession() {
  connection_->end_help();
  take_interrupt();  // the descriptor goes to another session: leave nothing in it
  transport_.return_tools(std::move(tools_));
}

void HelpSession::interrupt() {
  if (interrupted_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(tools_->wake_fd, &one, sizeof(one));
}

bool HelpSession::take_interrupt() {
  if (!interrupted_) return false;
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t got = ::read(tools_->wake_fd, &ignored, sizeof(ignored));
  interrupted_ = false;
  return true;
}

HelpSession::Woken HelpSession::sleep(Time until) {
  if (!connection_->helper_may_sleep()) return Woken::readable;
  for (;;) {
    pollfd watched[2] = {{connection_->fd(), POLLIN, 0}, {tools_->wake_fd, POLLIN, 0}};
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
    [[maybe_unused]] const ssize_t got = ::read(tools_->wake_fd, &ignored, sizeof(ignored));
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
    const Read outcome = connection_->read_as_helper(tools_->read, sleeps);
    if (outcome == Read::delivered) return Outcome::delivered;
    if (outcome == Read::closed) return Outcome::closed;
  }
}

}  // namespace holdfast
