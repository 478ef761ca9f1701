#include <holdfast/transport/tcp.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <thread>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/local_socket.h>

namespace holdfast {

namespace {

// epoll keys that are no ConnectionId.
constexpr uint64_t kWakeKey = UINT64_MAX;
constexpr uint64_t kTimerKey = UINT64_MAX - 1;
constexpr uint64_t kListenerKey = UINT64_MAX - 2;
constexpr uint64_t kLocalListenerKey = UINT64_MAX - 3;
constexpr int kEventsMax = 128;
constexpr int kAcceptsInARowMax = 64;
// While rings are looked at, which costs next to nothing, epoll is asked every so many times, whatever is in them.
constexpr uint32_t kLooksPerPoll = 16;
// The same where one socket is asked for more; that costs as much as asking epoll.
constexpr uint32_t kReadsPerPoll = 4;
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);

void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof(value)); }

}  // namespace

TcpTransport::TcpTransport(TransportEvents& events, TcpOptions options)
    : events_(events),
      options_(std::move(options)),
      spins_(options_.spin && std::thread::hardware_concurrency() > 1),
      doorkeeper_(options_.strangers_max, options_.handshake_timeout, options_.log) {
  epoll_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_fd_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  timer_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const auto watch = [this](int fd, uint64_t key) {
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = key;
    return fd >= 0 && ::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0;
  };
  if (epoll_fd_ >= 0 && watch(wake_fd_, kWakeKey) && watch(timer_fd_, kTimerKey)) return;
  const int error = errno;
  for (int fd : {epoll_fd_, wake_fd_, timer_fd_}) {
    if (fd >= 0) ::close(fd);
  }
  throw Unavailable({.code = Code::unavailable,
                     .message = fmt::format("cannot set up networking: {}; check `ulimit -n`", errno_text(error))});
}

TcpTransport::~TcpTransport() {
  connections_.clear();
  ended_.clear();
  read_soon_.clear();
  looked_at_.clear();
  for (int fd : {listener_fd_.load(), local_listener_fd_.load(), timer_fd_, wake_fd_, epoll_fd_}) {
    if (fd >= 0) ::close(fd);
  }
}

// ---- for the user of Transport ----

Result<std::string> TcpTransport::listen(const ListenOptions& options) {
  if (listener_fd_ >= 0) {
    return Failure{.code = Code::invalid_argument,
                   .message = "this transport listens already: listen() is called once"};
  }
  auto listener = open_listener(options);
  if (!listener) return std::move(listener.failure());
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kListenerKey;
  listener_fd_ = listener->fd;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, listener->fd, &event) != 0) {
    const int error = errno;
    listener_fd_ = -1;
    ::close(listener->fd);
    return Failure{
        .code = Code::unavailable,
        .message = fmt::format("cannot watch the listening socket of {}: {}", listener->advertised, errno_text(error))};
  }
  if (options_.shared_memory) listen_with_rings(listener->bound);
  return std::move(listener->advertised);
}

// Where it does not succeed, there is still TCP.
void TcpTransport::listen_with_rings(const Endpoint& bound) {
  const int fd = listen_local(bound);
  if (fd < 0) return;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = kLocalListenerKey;
  local_listener_fd_ = fd;
  if (::epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0) return;
  local_listener_fd_ = -1;
  ::close(fd);
}

void TcpTransport::configure(int fd) const {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Idle connections are probed so that they too end within about dead_after_ms.
  const int second = 1000;
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, options_.dead_after_ms / 2 / second));
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, options_.dead_after_ms / 6 / second));
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, options_.dead_after_ms);
  if (options_.send_buffer_bytes > 0) set_option(fd, SOL_SOCKET, SO_SNDBUF, options_.send_buffer_bytes);
  if (options_.receive_buffer_bytes > 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, options_.receive_buffer_bytes);
}

// A socket that is connecting, or why not.
Result<TcpTransport::Dialled> TcpTransport::dial(const std::string& address) const {
  auto endpoint = resolve(address);
  if (!endpoint) return std::move(endpoint.failure());
  const auto cannot = [&](int error) {
    return Failure{.code = Code::unavailable,
                   .message = fmt::format("cannot connect to {}: {}", address, errno_text(error))};
  };
  if (options_.shared_memory) {
    if (auto dialled = dial_with_rings(*endpoint)) return std::move(*dialled);
  }
  const int fd = ::socket(endpoint->is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return cannot(errno);
  configure(fd);
  sockaddr_storage storage;
  const socklen_t length = fill_sockaddr(*endpoint, storage);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    const int error = errno;
    ::close(fd);
    return cannot(error);
  }
  return Dialled{fd, is_loopback(*endpoint)};
}

std::optional<TcpTransport::Dialled> TcpTransport::dial_with_rings(const Endpoint& endpoint) const {
  const int fd = dial_local(endpoint);
  if (fd < 0) return std::nullopt;
  auto rings = SharedRings::make();
  const int memory_fd = rings ? rings->take_fd() : -1;
  const bool offered = memory_fd >= 0 && send_offer(fd, {memory_fd, options_.tls != nullptr});
  if (memory_fd >= 0) ::close(memory_fd);
  if (offered) return Dialled{fd, true, std::move(rings)};
  ::close(fd);
  return std::nullopt;
}

std::unique_ptr<TlsSession> TcpTransport::make_session(TlsSession::Side side, bool on_loopback, bool& failed) const {
  if (!options_.tls) return nullptr;
  auto session = TlsSession::make(options_.tls, side, on_loopback);
  failed = session == nullptr;
  return session;
}

void TcpTransport::connect(ConnectionId connection, const std::string& address) {
  HOLDFAST_CHECK(connection.value % 2 == 0 && connection.value < kLocalListenerKey);
  TcpHost& host = *this;
  auto dialled = dial(address);
  bool failed = false;
  auto session = dialled ? make_session(TlsSession::Side::dials, dialled->on_loopback, failed) : nullptr;
  TcpConnection::Start start{.peer = address, .tls = std::move(session)};
  if (dialled) {
    start.fd = dialled->fd;
    start.local = dialled->rings != nullptr;
    start.rings = std::move(dialled->rings);
  }
  auto made = std::make_shared<TcpConnection>(host, connection, options_.frame_bytes_max, std::move(start));
  add(made);
  if (!dialled) {
    made->fail(std::move(dialled.failure()));
  } else if (failed) {
    made->fail({.code = Code::unavailable, .message = fmt::format("no memory for TLS with {}", address)});
  } else {
    made->watch_connecting();
  }
}

void TcpTransport::flush(ConnectionId connection) {
  if (const auto found = find(connection)) found->flush();
}

void TcpTransport::close(ConnectionId connection, Failure why) {
  if (const auto found = find(connection)) found->fail(std::move(why));
}

void TcpTransport::trust(ConnectionId connection) {
  if (const auto found = find(connection)) found->trust();
}

std::string TcpTransport::peer_address(ConnectionId connection) const {
  const auto found = find(connection);
  return found ? found->peer() : std::string();
}

// ---- the table of connections ----

std::shared_ptr<TcpConnection> TcpTransport::find(ConnectionId connection) const {
  const std::lock_guard lock(connections_mutex_);
  const auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : found->second;
}

void TcpTransport::add(const std::shared_ptr<TcpConnection>& connection) {
  const std::lock_guard lock(connections_mutex_);
  const bool fresh = connections_.emplace(connection->id(), connection).second;
  HOLDFAST_CHECK(fresh);
}

void TcpTransport::forget(ConnectionId connection) {
  const std::lock_guard lock(connections_mutex_);
  connections_.erase(connection);
}

size_t TcpTransport::connection_count() const {
  const std::lock_guard lock(connections_mutex_);
  return connections_.size();
}

size_t TcpTransport::shared_memory_count() const {
  const std::lock_guard lock(connections_mutex_);
  return static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), [](const auto& entry) {
    return entry.second->connected() && entry.second->uses_rings();
  }));
}

void TcpTransport::finish_soon(std::shared_ptr<TcpConnection> connection) {
  {
    const std::lock_guard lock(left_mutex_);
    ended_.push_back(std::move(connection));
  }
  interrupt();
}

void TcpTransport::read_soon(std::shared_ptr<TcpConnection> connection) {
  {
    const std::lock_guard lock(left_mutex_);
    read_soon_.push_back(std::move(connection));
  }
  interrupt();
}

void TcpTransport::on_handshake(const std::shared_ptr<TcpConnection>& connection) {
  doorkeeper_.watch(connection, steady_now());
}

void TcpTransport::on_refused(const std::string& peer, const std::string& cause) {
  doorkeeper_.tell_refused(peer, cause);
}

void TcpTransport::end_late() {
  if (doorkeeper_.next_deadline() == kNever) return;
  for (const auto& late : doorkeeper_.take_late(steady_now()))
    late->refuse(Code::timeout, "took too long to prove itself");
}

void TcpTransport::take_left() {
  std::vector<std::shared_ptr<TcpConnection>> ended, soon;
  {
    const std::lock_guard lock(left_mutex_);
    ended.swap(ended_);
    soon.swap(read_soon_);
  }
  for (const auto& connection : soon) look_at(connection);
  for (const auto& connection : ended) connection->finish();
}

// ---- polling ----

void TcpTransport::interrupt() {
  if (interrupted_.exchange(true)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
}

void TcpTransport::interrupt_after(Duration wait) {
  if (timer_set_.exchange(true)) return;
  itimerspec timer = {};
  timer.it_value = {.tv_sec = static_cast<time_t>(wait.count() / 1'000'000'000),
                    .tv_nsec = static_cast<long>(std::max<int64_t>(wait.count() % 1'000'000'000, 1))};
  ::timerfd_settime(timer_fd_, 0, &timer, nullptr);
}

int TcpTransport::wait_ms(Time until) const {
  until = std::min({until, accept_again_at_, doorkeeper_.next_deadline()});
  if (receive_pool_->idle_bytes() > 0 || has_areas_) until = std::min(until, trim_at_);
  if (until == kNever) return -1;
  const Time now = steady_now();
  if (until <= now) return 0;
  // Rounded up: waking too early would mean to spin until the time has come.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::min<int64_t>(left, INT_MAX));
}

int TcpTransport::wait(epoll_event* ready, Time until) {
  Spin spin(spins_ ? &spin_policy_ : nullptr, until, /*moves=*/false);
  while (spin.again()) {
    const bool input = !looked_at_.empty() && ask_for_a_moment([this] { return rings_have_input(); });
    if (!looked_at_.empty() && ++looks_ % kLooksPerPoll != 0) {
      if (input) return 0;
      continue;
    }
    if (looked_at_.empty() && ++looks_ % kReadsPerPoll != 0) {
      const auto again = read_last_again();
      if (again == TcpConnection::Read::nothing) continue;
      if (again != TcpConnection::Read::closed) return 0;
    }
    const int count = ::epoll_wait(epoll_fd_, ready, kEventsMax, 0);
    if (count > 0 || input) return count;
  }
  return ::epoll_wait(epoll_fd_, ready, kEventsMax, let_rings_sleep() ? wait_ms(until) : 0);
}

void TcpTransport::look_at(const std::shared_ptr<TcpConnection>& connection) {
  if (connection->begin_to_be_looked_at()) looked_at_.push_back(connection);
}

TcpConnection::Read TcpTransport::read_last_again() {
  const auto connection = read_last_.lock();
  return connection ? connection->on_readable(tools_, false, false) : TcpConnection::Read::closed;
}

bool TcpTransport::rings_have_input() const {
  return std::any_of(looked_at_.begin(), looked_at_.end(), [](const auto& one) { return one->has_input(); });
}

void TcpTransport::read_rings() {
  for (const auto& connection : looked_at_) {
    if (connection->has_input()) connection->on_readable(tools_, false, false);
  }
}

// False: some have input and stay awake.
bool TcpTransport::let_rings_sleep() {
  std::erase_if(looked_at_, [](const auto& connection) { return connection->fall_asleep(); });
  return looked_at_.empty();
}

void TcpTransport::poll(Time until) {
  const std::lock_guard lock(poll_mutex_);
  epoll_event ready[kEventsMax];
  const int count = wait(ready, until);
  if (accept_again_at_ != kNever && steady_now() >= accept_again_at_) {
    accept_again_at_ = kNever;
    watch_listener(true);
  }
  for (int i = 0; i < count; ++i) {
    const uint64_t key = ready[i].data.u64;
    if (key == kWakeKey) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_fd_, &ignored, sizeof(ignored));
      // Before what the interrupter left is looked at, so that a later interrupt() counts again.
      interrupted_ = false;
      take_left();
    } else if (key == kTimerKey) {
      uint64_t ignored = 0;
      [[maybe_unused]] const ssize_t got = ::read(timer_fd_, &ignored, sizeof(ignored));
      timer_set_ = false;  // in this order, for the same reason
    } else if (key == kListenerKey) {
      accept_all(listener_fd_);
    } else if (key == kLocalListenerKey) {
      accept_all(local_listener_fd_);
    } else {
      handle({key}, ready[i].events);
    }
  }
  read_rings();
  end_late();
  trim();
}

void TcpTransport::trim() {
  if (receive_pool_->idle_bytes() == 0 && !has_areas_.load(std::memory_order_relaxed)) return;
  const Time now = steady_now();
  if (now < trim_at_) return;
  trim_at_ = now + ReceivePool::kIdleTime;
  receive_pool_->trim(now);
  if (!has_areas_.exchange(false)) return;
  std::vector<std::shared_ptr<TcpConnection>> with_rings;
  {
    const std::lock_guard lock(connections_mutex_);
    for (const auto& [id, connection] : connections_) {
      if (connection->connected() && connection->uses_rings()) with_rings.push_back(connection);
    }
  }
  for (const auto& connection : with_rings) {
    if (connection->trim_areas(now)) trim_later();
  }
}

void TcpTransport::handle(ConnectionId connection, uint32_t ready) {
  const auto found = find(connection);
  if (!found) return;
  if (!found->connected()) {
    found->on_unconnected(tools_);
    return;
  }
  if ((ready & EPOLLOUT) != 0) found->on_writable();
  const bool hung_up = (ready & (EPOLLHUP | EPOLLERR)) != 0;
  if ((ready & EPOLLIN) == 0 && !hung_up) return;
  found->on_readable(tools_, true, hung_up);
  if (found->uses_rings()) {
    look_at(found);
  } else {
    read_last_ = found;
  }
}

void TcpTransport::watch_listener(bool on) {
  epoll_event event = {};
  event.events = on ? EPOLLIN : 0u;
  event.data.u64 = kListenerKey;
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, listener_fd_, &event);
  if (local_listener_fd_ < 0) return;
  event.data.u64 = kLocalListenerKey;
  ::epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, local_listener_fd_, &event);
}

void TcpTransport::pause_accepting(int error) {
  watch_listener(false);
  accept_again_at_ = after(steady_now(), kAcceptPause);
  if (!warned_) {
    std::fprintf(stderr, "holdfast: cannot accept connections for now: %s; check `ulimit -n`\n",
                 errno_text(error).c_str());
  }
  warned_ = true;
}

void TcpTransport::accept_all(int listener) {
  for (int i = 0; i < kAcceptsInARowMax; ++i) {
    sockaddr_storage storage = {};
    socklen_t length = sizeof(storage);
    const int fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&storage), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      const int error = errno;
      if (error == EINTR || error == ECONNABORTED) continue;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) pause_accepting(error);
      return;
    }
    const bool local = listener == local_listener_fd_;
    const std::optional<int> process = local ? peer_process(fd) : std::nullopt;
    if (connection_count() >= options_.connections_max || (local && !process)) {
      ::close(fd);
      continue;
    }
    if (!local) configure(fd);
    const Endpoint peer = local ? Endpoint{} : from_sockaddr(storage);
    const bool on_loopback = local || is_loopback(peer);
    bool failed = false;
    auto session = make_session(TlsSession::Side::accepts, on_loopback, failed);
    if (failed) {
      ::close(fd);
      continue;
    }
    start_accepted({.fd = fd,
                    .peer = local ? fmt::format("process:{}", *process) : peer.text(),
                    .local = local,
                    .tls = std::move(session)});
  }
}

void TcpTransport::start_accepted(TcpConnection::Start start) {
  TcpHost& host = *this;
  const ConnectionId id{next_accepted_};
  next_accepted_ += 2;
  auto made = std::make_shared<TcpConnection>(host, id, options_.frame_bytes_max, std::move(start));
  add(made);
  for (const auto& oldest : doorkeeper_.admit(made, steady_now())) {
    oldest->refuse(Code::overloaded, "has not proved itself, and others wait for its place");
  }
  made->start_accepted();
}

}  // namespace holdfast
