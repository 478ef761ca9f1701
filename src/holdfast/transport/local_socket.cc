#include <holdfast/transport/local_socket.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

constexpr std::string_view kOffer[] = {{"HOLDFAST-RINGS\x00\x01", 16},
                                       {"HOLDFAST-RINGS\x01\x01", 16}};  // without TLS, with it
constexpr int kBacklog = 128;

socklen_t fill_name(const Endpoint& endpoint, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  // The first byte of an abstract name is zero.
  const std::string name = "holdfast/2/" + endpoint.text();
  const size_t bytes = std::min(name.size(), sizeof(out.sun_path) - 1);
  std::memcpy(out.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

// Bytes with room for one descriptor beside them. Points into itself.
struct MessageWithFd {
  MessageWithFd(void* bytes, size_t count) : piece{.iov_base = bytes, .iov_len = count} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  MessageWithFd(const MessageWithFd&) = delete;
  MessageWithFd& operator=(const MessageWithFd&) = delete;

  void set_fd(int fd) {
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd, sizeof(int));
  }

  // The one that came; -1 if there was none, or more. The room for one is, by its alignment, large enough for two; the
  // kernel closes what does not fit.
  int take_fd() const {
    int fds[2] = {-1, -1};
    const cmsghdr* rights = CMSG_FIRSTHDR(&header);
    if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len >= CMSG_LEN(sizeof(int))) {
      std::memcpy(fds, CMSG_DATA(rights), std::min<size_t>(rights->cmsg_len - CMSG_LEN(0), sizeof(fds)));
    }
    if (fds[1] < 0) return fds[0];
    for (const int fd : fds) ::close(fd);
    return -1;
  }

  iovec piece;
  alignas(cmsghdr) std::array<uint8_t, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
};

int open_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

int connect_to(const Endpoint& endpoint) {
  const int fd = open_socket();
  if (fd < 0) return -1;
  sockaddr_un name;
  const socklen_t length = fill_name(endpoint, name);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&name), length) == 0 && peer_process(fd)) return fd;
  ::close(fd);
  return -1;
}

bool is_own(const Endpoint& endpoint) {
  return is_loopback(endpoint) || address_towards(endpoint) == endpoint.host_text();
}

}  // namespace

int listen_local(const Endpoint& bound) {
  const int fd = open_socket();
  if (fd < 0) return -1;
  sockaddr_un name;
  const socklen_t length = fill_name(bound, name);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&name), length) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  ::close(fd);
  return -1;
}

int dial_local(const Endpoint& target) {
  if (const int fd = connect_to(target); fd >= 0) return fd;
  // Another machine may have a worker at the same port of all its addresses.
  if (!is_own(target)) return -1;
  for (const bool is_v6 : {false, true}) {
    if (const int fd = connect_to({.is_v6 = is_v6, .port = target.port}); fd >= 0) return fd;
  }
  return -1;
}

std::optional<int> peer_process(int fd) {
  ucred peer = {};
  socklen_t length = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer.uid == ::geteuid() ? std::optional<int>(peer.pid) : std::nullopt;
}

bool send_offer(int fd, const Offer& offer) {
  const std::string_view text = kOffer[offer.tls ? 1 : 0];
  MessageWithFd message(const_cast<char*>(text.data()), text.size());
  message.set_fd(offer.memory_fd);
  return ::sendmsg(fd, &message.header, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

Result<std::optional<Offer>> receive_offer(int fd) {
  std::array<char, kOffer[0].size()> bytes = {};
  MessageWithFd message(bytes.data(), bytes.size());
  const ssize_t got = ::recvmsg(fd, &message.header, MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Offer>();
  if (got <= 0) return transport_detail::unavailable("went away before a word");
  const int memory_fd = message.take_fd();
  // What was sent at once arrives at once.
  const std::string_view text(bytes.data(), static_cast<size_t>(got));
  const bool as_it_should_be = text == kOffer[0] || text == kOffer[1];
  if (as_it_should_be && memory_fd >= 0) return std::optional<Offer>({memory_fd, text == kOffer[1]});
  if (memory_fd >= 0) ::close(memory_fd);
  return transport_detail::corrupt("does not speak Holdfast's protocol");
}

void send_doorbell(int fd) {
  [[maybe_unused]] const ssize_t sent = ::send(fd, &kDoorbell, sizeof(kDoorbell), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool send_area(int fd, uint8_t kind, int area_fd) {
  MessageWithFd message(&kind, sizeof(kind));
  message.set_fd(area_fd);
  return ::sendmsg(fd, &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof(kind);
}

Heard hear(int fd) {
  Heard heard;
  MessageWithFd message(heard.bytes.data(), heard.bytes.size());
  heard.count = ::recvmsg(fd, &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  heard.error = errno;
  if (heard.count > 0) heard.area_fd = message.take_fd();
  return heard;
}

}  // namespace holdfast
