#include "raw_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>

namespace holdfast::bench {

namespace {

constexpr size_t kBytes = 64;

// Between rounds nobody spins: others are measured then.
constexpr int kSpinsMax = 2000;

bool read_all(int fd, uint8_t* at, size_t bytes, bool spinning) {
  int spins = spinning ? kSpinsMax : 0;
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, spins > 0 ? MSG_DONTWAIT : 0);
    if (got < 0 && errno == EAGAIN) {
      --spins;
      continue;
    }
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

void set_nodelay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

RawSocketEcho::RawSocketEcho(const Kind& kind) : kind_(kind) {
  if (kind_.unix_socket) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("socketpair failed");
    listener_ = ends[0];
    socket_ = ends[1];
    return;
  }
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener_, 1) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("cannot listen on loopback");
  }
  port_ = ntohs(address.sin_port);
}

RawSocketEcho::~RawSocketEcho() {
  if (socket_ >= 0) close(socket_);
  close(listener_);
}

void RawSocketEcho::serve() const {
  const int fd = kind_.unix_socket ? listener_ : accept(listener_, nullptr, nullptr);
  set_nodelay(fd);
  std::array<uint8_t, kBytes> buffer{};
  while (read_all(fd, buffer.data(), kBytes, kind_.spins) && write(fd, buffer.data(), kBytes) == kBytes) {
  }
}

void RawSocketEcho::connect() {
  if (kind_.unix_socket) return;
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect on loopback");
  }
  set_nodelay(socket_);
}

void RawSocketEcho::ping_pong(size_t count, Latencies& latencies) const {
  std::array<uint8_t, kBytes> buffer{};
  for (size_t i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (write(socket_, buffer.data(), kBytes) != kBytes || !read_all(socket_, buffer.data(), kBytes, kind_.spins)) {
      throw std::runtime_error("the raw echo server is gone");
    }
    latencies.add(std::chrono::steady_clock::now() - start);
  }
}

}  // namespace holdfast::bench
