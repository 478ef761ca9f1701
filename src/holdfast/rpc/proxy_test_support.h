// For the tests of this layer: a TCP proxy between two workers that cuts connections the hard way (reset, with what
// is still on its way thrown away), and bare sockets for strangers who do not speak the protocol.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <holdfast/base/bytes.h>
#include <holdfast/base/random.h>
#include <holdfast/transport/address.h>

namespace holdfast::test {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  int fd() const { return fd_; }

  static Socket connect(const std::string& address) {
    sockaddr_storage storage;
    const Endpoint endpoint = Endpoint::parse(address).take();
    const socklen_t length = fill_sockaddr(endpoint, storage);
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.fd(), reinterpret_cast<sockaddr*>(&storage), length) != 0) return {};
    return socket;
  }
  void send(const Bytes& bytes) const {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (count <= 0) return;  // it has closed already
      sent += static_cast<size_t>(count);
    }
  }
  // Reads and throws away until the other side closes. False: it did not.
  bool wait_for_close(int patience_ms = 30'000) const {
    char buffer[4096];
    for (;;) {
      pollfd one{.fd = fd_, .events = POLLIN, .revents = 0};
      if (::poll(&one, 1, patience_ms) <= 0) return false;
      if (::recv(fd_, buffer, sizeof(buffer), 0) <= 0) return true;
    }
  }
  // Closing now sends a reset, and what was not read or not sent is gone.
  void reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    *this = Socket();
  }

 private:
  int fd_ = -1;
};

// A port of loopback that is free now.
inline uint16_t free_port() {
  const Result<Listener> listener = open_listener({});
  const Socket closing(listener->fd);
  return listener->bound.port;
}

// Listens on a port of its own and forwards to `target`. One thread; any thread may call it.
class Proxy {
 public:
  explicit Proxy(std::string target, uint64_t seed = 1) : target_(std::move(target)), random_(seed) {
    Listener listener = open_listener({}).take();
    listener_ = Socket(listener.fd);
    address_ = listener.advertised;
    wake_ = Socket(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    thread_ = std::thread([this] { serve(); });
  }
  ~Proxy() {
    stopping_ = true;
    wake();
    thread_.join();
  }

  const std::string& address() const { return address_; }
  // Cuts every connection once, now.
  void cut_all() {
    cut_requested_ = true;
    wake();
  }
  // From now on each connection is cut after that many forwarded bytes, at random from 1 to this; 0: no more.
  void cut_after_bytes(uint64_t bytes_max) { cut_bytes_max_ = bytes_max; }
  // While blocked, connections are cut as soon as they are accepted.
  void set_blocked(bool blocked) {
    blocked_ = blocked;
    if (blocked) cut_all();
  }
  // The connections of now stay open, but nothing moves on them any more. New ones are forwarded as ever.
  void freeze_all() {
    freeze_requested_ = true;
    wake();
  }
  int cuts() const { return cuts_; }
  int connections() const { return connections_; }

 private:
  struct Direction {
    std::vector<uint8_t> waiting;
    bool ended = false;  // the source has sent its last byte
  };
  struct Pair {
    Socket sides[2];
    Direction from[2];  // from[i]: read from sides[i], to be written to the other
    std::optional<uint64_t> cut_in_bytes;
    bool frozen = false;
    bool dead = false;
  };

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof(one));
  }

  void serve() {
    while (!stopping_) {
      std::vector<pollfd> polled;
      polled.push_back({.fd = listener_.fd(), .events = POLLIN, .revents = 0});
      polled.push_back({.fd = wake_.fd(), .events = POLLIN, .revents = 0});
      for (const Pair& pair : pairs_) {
        for (int side = 0; side < 2; ++side) {
          const bool reads = !pair.frozen && !pair.from[side].ended && pair.from[side].waiting.size() < kBufferBytes;
          const bool writes = !pair.frozen && !pair.from[1 - side].waiting.empty();
          polled.push_back({.fd = pair.sides[side].fd(),
                            .events = static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
                            .revents = 0});
        }
      }
      ::poll(polled.data(), polled.size(), 1000);
      size_t at = 2;
      for (Pair& pair : pairs_) {
        if (pair.frozen) {
          if (((polled[at].revents | polled[at + 1].revents) & (POLLHUP | POLLERR)) != 0) reset(pair);
          at += 2;
          continue;
        }
        for (int side = 0; side < 2; ++side, ++at) {
          if ((polled[at].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_from(pair, side);
        }
        for (int side = 0; side < 2; ++side) write_to(pair, side);
      }
      if (freeze_requested_.exchange(false)) {
        for (Pair& pair : pairs_) pair.frozen = true;
      }
      if (cut_requested_.exchange(false)) {
        for (Pair& pair : pairs_) cut(pair);
      }
      pairs_.remove_if([](const Pair& pair) { return pair.dead; });
      if ((polled[1].revents & POLLIN) != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.fd(), &count, sizeof(count));
      }
      if ((polled[0].revents & POLLIN) != 0) accept();
    }
  }

  void accept() {
    Socket from(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (from.fd() < 0) return;
    Socket to = blocked_ ? Socket() : Socket::connect(target_);
    if (to.fd() < 0) return from.reset();
    ::fcntl(to.fd(), F_SETFL, ::fcntl(to.fd(), F_GETFL) | O_NONBLOCK);
    ++connections_;
    Pair& pair = pairs_.emplace_back();
    pair.sides[0] = std::move(from);
    pair.sides[1] = std::move(to);
    if (cut_bytes_max_ > 0) pair.cut_in_bytes = 1 + random_.below(cut_bytes_max_);
  }

  void read_from(Pair& pair, int side) {
    if (pair.dead || pair.from[side].ended) return;
    std::array<uint8_t, kBufferBytes> buffer;
    const ssize_t got = ::recv(pair.sides[side].fd(), buffer.data(), buffer.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return reset(pair);
    Direction& direction = pair.from[side];
    if (got == 0) {
      direction.ended = true;
      if (direction.waiting.empty()) ::shutdown(pair.sides[1 - side].fd(), SHUT_WR);
      if (pair.from[1 - side].ended) pair.dead = true;
      return;
    }
    direction.waiting.insert(direction.waiting.end(), buffer.begin(), buffer.begin() + got);
  }

  void write_to(Pair& pair, int side) {
    Direction& direction = pair.from[1 - side];
    if (pair.dead || direction.waiting.empty()) return;
    size_t bytes = direction.waiting.size();
    if (pair.cut_in_bytes) bytes = std::min<size_t>(bytes, *pair.cut_in_bytes);
    const ssize_t sent = ::send(pair.sides[side].fd(), direction.waiting.data(), bytes, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EINTR) reset(pair);
      return;
    }
    direction.waiting.erase(direction.waiting.begin(), direction.waiting.begin() + sent);
    if (direction.ended && direction.waiting.empty()) ::shutdown(pair.sides[side].fd(), SHUT_WR);
    if (!pair.cut_in_bytes) return;
    *pair.cut_in_bytes -= static_cast<uint64_t>(sent);
    if (*pair.cut_in_bytes == 0) cut(pair);
  }

  void cut(Pair& pair) {
    if (pair.dead) return;
    reset(pair);
    ++cuts_;
  }

  static void reset(Pair& pair) {
    for (Socket& side : pair.sides) side.reset();
    pair.dead = true;
  }

  static constexpr size_t kBufferBytes = 64 << 10;

  const std::string target_;
  Random random_;
  std::string address_;
  Socket listener_;
  Socket wake_;
  std::list<Pair> pairs_;
  std::atomic<uint64_t> cut_bytes_max_ = 0;
  std::atomic<bool> cut_requested_ = false;
  std::atomic<bool> freeze_requested_ = false;
  std::atomic<bool> blocked_ = false;
  std::atomic<bool> stopping_ = false;
  std::atomic<int> cuts_ = 0;
  std::atomic<int> connections_ = 0;
  std::thread thread_;
};

}  // namespace holdfast::test
