#include "raw_stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

#include "../raw_socket.h"

namespace holdfast::bench {

namespace {

bool read_all(int fd, void* to, uint64_t bytes) {
  auto* at = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const ssize_t got = read(fd, at, bytes);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

bool write_all(int fd, const void* from, uint64_t bytes) {
  const auto* at = static_cast<const uint8_t*>(from);
  while (bytes > 0) {
    const ssize_t done = write(fd, at, bytes);
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

}  // namespace

RawStream::RawStream() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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

RawStream::~RawStream() {
  if (socket_ >= 0) close(socket_);
  close(listener_);
}

void RawStream::serve() const {
  const int fd = accept(listener_, nullptr, nullptr);
  set_nodelay(fd);
  std::vector<uint8_t> memory;
  uint64_t bytes = 0;
  while (read_all(fd, &bytes, sizeof(bytes))) {
    if (memory.size() < bytes) memory.resize(bytes);
    const uint8_t done = 1;
    if (!read_all(fd, memory.data(), bytes) || !write_all(fd, &done, 1)) break;
  }
  close(fd);
}

void RawStream::connect() {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    throw std::runtime_error("cannot connect to the child");
  }
  set_nodelay(socket_);
}

double RawStream::send(const uint8_t* block, uint64_t bytes, size_t count) const {
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (!write_all(socket_, &bytes, sizeof(bytes)) || !write_all(socket_, block, bytes)) {
      throw std::runtime_error("the child is gone");
    }
  }
  std::vector<uint8_t> done(count);
  if (!read_all(socket_, done.data(), count)) throw std::runtime_error("the child is gone");
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(bytes * count) / seconds / 1e9;
}

}  // namespace holdfast::bench
