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
  const std::string name = "holdfast/1/" + endpoint.text();
  const size_t bytes = std::min(name.size(), sizeof(out.sun_path) - 1);
  std::memcpy(out.sun_path + 1, name.data(), bytes);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
}

// The bytes of an offer with room for one descriptor beside them. Points into itself.
struct OfferMessage {
  OfferMessage(char* bytes, size_t count) : piece{.iov_base = bytes, .iov_len = count} {
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  OfferMessage(const OfferMessage&) = delete;
  OfferMessage& operator=(const OfferMessage&) = delete;

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
  OfferMessage message(const_cast<char*>(text.data()), text.size());
  cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &offer.memory_fd, sizeof(int));
  return ::sendmsg(fd, &message.header, MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}

Result<std::optional<Offer>> receive_offer(int fd) {
  std::array<char, kOffer[0].size()> bytes = {};
  OfferMessage message(bytes.data(), bytes.size());
  const ssize_t got = ::recvmsg(fd, &message.header, MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<Offer>();
  if (got <= 0) return transport_detail::unavailable("went away before a word");
  // The room for one descriptor is, by its alignment, large enough for two. The kernel closes what does not fit.
  int fds[2] = {-1, -1};
  const cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  if (rights != nullptr && rights->cmsg_type == SCM_RIGHTS && rights->cmsg_len >= CMSG_LEN(sizeof(int))) {
    std::memcpy(fds, CMSG_DATA(rights), std::min<size_t>(rights->cmsg_len - CMSG_LEN(0), sizeof(fds)));
  }
  // What was sent at once arrives at once.
  const std::string_view text(bytes.data(), static_cast<size_t>(got));
  const bool as_it_should_be = text == kOffer[0] || text == kOffer[1];
  if (as_it_should_be && fds[0] >= 0 && fds[1] < 0) return std::optional<Offer>({fds[0], text == kOffer[1]});
  for (const int one : fds) {
    if (one >= 0) ::close(one);
  }
  return transport_detail::corrupt("does not speak Holdfast's protocol");
}

}  // namespace holdfast
