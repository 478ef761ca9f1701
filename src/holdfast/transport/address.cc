#include <holdfast/transport/address.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::unavailable;

Failure invalid(std::string message) { return {.code = Code::invalid_argument, .message = std::move(message)}; }

struct HostPort {
  std::string host;
  uint16_t port = 0;
};

Result<HostPort> split(std::string_view text) {
  std::string_view host, port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == text.npos || end + 1 >= text.size() || text[end + 1] != ':') {
      return invalid(fmt::format("'{}' is not an address: expected [IPv6 address]:port", text));
    }
    host = text.substr(1, end - 1);
    port = text.substr(end + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == text.npos) return invalid(fmt::format("'{}' has no port: expected host:port", text));
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (host.find(':') != host.npos) {
      return invalid(fmt::format("'{}' is not an address: an IPv6 address is written [address]:port", text));
    }
  }
  if (host.empty()) return invalid(fmt::format("'{}' names no host: expected host:port", text));
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (port.empty() || end != port.data() + port.size() ||
      (error != std::errc() && error != std::errc::result_out_of_range)) {
    return invalid(fmt::format("'{}' has no usable port: '{}' is not a number", text, port));
  }
  if (error == std::errc::result_out_of_range || number > 65535) {
    return invalid(fmt::format("'{}' has no usable port: {} is more than 65535", text, port));
  }
  return HostPort{std::string(host), static_cast<uint16_t>(number)};
}

std::optional<Endpoint> numeric(const std::string& host, uint16_t port) {
  Endpoint endpoint{.port = port};
  if (inet_pton(AF_INET, host.c_str(), endpoint.address.data()) == 1) return endpoint;
  std::string address = host;
  if (const size_t percent = address.find('%'); percent != address.npos) {
    endpoint.scope = if_nametoindex(address.c_str() + percent + 1);
    if (endpoint.scope == 0) return std::nullopt;
    address.resize(percent);
  }
  if (inet_pton(AF_INET6, address.c_str(), endpoint.address.data()) == 1) {
    endpoint.is_v6 = true;
    return endpoint;
  }
  return std::nullopt;
}

struct Interface {
  std::string name;
  Endpoint endpoint;
};

bool is_link_local(const Endpoint& endpoint) {
  return endpoint.is_v6 && endpoint.address[0] == 0xfe && (endpoint.address[1] & 0xc0) == 0x80;
}

// Every address of every interface that is up, IPv4 before IPv6 so that "the first" is the expected one.
std::vector<Interface> interfaces() {
  std::vector<Interface> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage storage = {};
    std::memcpy(&storage, at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    all.push_back({at->ifa_name, from_sockaddr(storage)});
  }
  std::stable_partition(all.begin(), all.end(), [](const Interface& one) { return !one.endpoint.is_v6; });
  return all;
}

std::string interface_names(const std::vector<Interface>& all) {
  std::vector<std::string> names;
  for (const Interface& one : all) {
    if (std::find(names.begin(), names.end(), one.name) == names.end()) names.push_back(one.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<Endpoint> endpoint_to_bind(const std::string& bind) {
  if (bind.empty()) return *numeric("127.0.0.1", 0);
  std::string text = bind;
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  if (const auto endpoint = numeric(text, 0)) return *endpoint;

  const std::vector<Interface> all = interfaces();
  for (const Interface& one : all) {
    if (one.name == text) return one.endpoint;
  }
  if (text.find_first_of(".:/ ") == text.npos && text != "localhost") {
    // A bare word is far more often a mistyped interface than a host name, but both are worth a try.
    if (auto named = resolve(text + ":0")) return named;
    return invalid(
        fmt::format("cannot listen on '{}': neither an address nor an interface of this machine that is up; the "
                    "interfaces are: {}",
                    bind, interface_names(all)));
  }
  if (text.find_first_of(":/ ") != text.npos) {
    return invalid(
        fmt::format("cannot listen on '{}': not an address (give an address without port, or an interface: {})", bind,
                    interface_names(all)));
  }
  return resolve(text + ":0");
}

// "host:port" or "[address]:port", with a port that can be dialled.
bool names_port(const std::string& advertise) {
  const Result<HostPort> parts = split(advertise);
  if (!parts || parts->port == 0 || parts->host.find_first_of("/ []") != std::string::npos) return false;
  const auto endpoint = numeric(parts->host, parts->port);
  return !endpoint || !endpoint->is_wildcard();
}

// What peers should dial; without a port, unless one was given.
Result<std::string> host_to_advertise(const ListenOptions& options, const Endpoint& bound) {
  if (!options.advertise.empty()) {
    const std::string& host = options.advertise;
    if (const auto endpoint = numeric(host, 0)) {
      if (endpoint->is_wildcard()) {
        return invalid(fmt::format("cannot advertise '{}': no peer can dial it; give this machine's address", host));
      }
      return endpoint->is_v6 ? "[" + host + "]" : host;
    }
    if (host.starts_with('[') && host.ends_with(']') && numeric(host.substr(1, host.size() - 2), 0)) return host;
    if (names_port(host)) return host;
    if (host.find_first_of(":/ []") != host.npos) {
      return invalid(fmt::format("cannot advertise '{}': expected a host name or an address, or host:port", host));
    }
    return host;
  }
  if (!bound.is_wildcard()) return bound.is_v6 ? "[" + bound.host_text() + "]" : bound.host_text();
  for (const Interface& one : interfaces()) {
    if (is_loopback(one.endpoint) || is_link_local(one.endpoint)) continue;
    if (one.endpoint.is_v6 && !bound.is_v6) continue;
    return one.endpoint.is_v6 ? "[" + one.endpoint.host_text() + "]" : one.endpoint.host_text();
  }
  return invalid(
      fmt::format("listening on {} needs an address to advertise: this machine has none but loopback; set "
                  "`advertise` to what peers should dial",
                  bound.host_text()));
}

Failure cannot_bind(const Endpoint& endpoint, int error) {
  const std::string where = endpoint.text();
  if (error == EADDRNOTAVAIL) {
    return unavailable(fmt::format("cannot listen on {}: {} is not an address of this machine; its interfaces are: {}",
                                   where, endpoint.host_text(), interface_names(interfaces())));
  }
  if (error == EACCES) {
    return unavailable(fmt::format("cannot listen on {}: port {} is privileged ({}); choose one above 1023", where,
                                   endpoint.port, errno_text(error)));
  }
  return unavailable(fmt::format("cannot listen on {}: {}", where, errno_text(error)));
}

// The listening descriptor, or the errno.
struct Attempt {
  int fd = -1;
  int error = 0;
};

Attempt try_listen(const Endpoint& endpoint) {
  const int fd = ::socket(endpoint.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return {.error = errno};
  const int one = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  sockaddr_storage storage;
  const socklen_t length = fill_sockaddr(endpoint, storage);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&storage), length) != 0 || ::listen(fd, 1024) != 0) {
    const int error = errno;
    ::close(fd);
    return {.error = error};
  }
  return {.fd = fd};
}

}  // namespace

std::string errno_text(int error) { return std::generic_category().message(error); }

uint32_t fill_sockaddr(const Endpoint& endpoint, sockaddr_storage& out) {
  std::memset(&out, 0, sizeof(out));
  if (!endpoint.is_v6) {
    sockaddr_in v4 = {};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.data(), 4);
    std::memcpy(&out, &v4, sizeof(v4));
    return sizeof(v4);
  }
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(endpoint.port);
  v6.sin6_scope_id = endpoint.scope;
  std::memcpy(&v6.sin6_addr, endpoint.address.data(), 16);
  std::memcpy(&out, &v6, sizeof(v6));
  return sizeof(v6);
}

Endpoint from_sockaddr(const sockaddr_storage& in) {
  Endpoint endpoint;
  if (in.ss_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, &in, sizeof(v6));
    endpoint.is_v6 = true;
    endpoint.port = ntohs(v6.sin6_port);
    endpoint.scope = v6.sin6_scope_id;
    std::memcpy(endpoint.address.data(), &v6.sin6_addr, 16);
  } else if (in.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &in, sizeof(v4));
    endpoint.port = ntohs(v4.sin_port);
    std::memcpy(endpoint.address.data(), &v4.sin_addr, 4);
  }
  return endpoint;
}

Result<Endpoint> Endpoint::parse(std::string_view text) {
  auto parts = split(text);
  if (!parts) return std::move(parts.failure());
  const auto endpoint = numeric(parts->host, parts->port);
  if (!endpoint || endpoint->is_v6 != text.starts_with('[')) {
    return invalid(fmt::format("'{}' is not a numeric address: expected 127.0.0.1:80 or [::1]:80", text));
  }
  return *endpoint;
}

std::string Endpoint::host_text() const {
  char buffer[INET6_ADDRSTRLEN] = {};
  inet_ntop(is_v6 ? AF_INET6 : AF_INET, address.data(), buffer, sizeof(buffer));
  std::string host = buffer;
  char name[IF_NAMESIZE] = {};
  if (scope != 0 && if_indextoname(scope, name) != nullptr) host += std::string("%") + name;
  return host;
}

std::string Endpoint::text() const { return fmt::format(fmt::runtime(is_v6 ? "[{}]:{}" : "{}:{}"), host_text(), port); }

bool Endpoint::is_wildcard() const {
  return std::all_of(address.begin(), address.end(), [](uint8_t byte) { return byte == 0; });
}

bool is_loopback(const Endpoint& endpoint) {
  if (!endpoint.is_v6) return endpoint.address[0] == 127;
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), endpoint.address.begin())) return endpoint.address[12] == 127;
  std::array<uint8_t, 16> one = {};
  one[15] = 1;
  return endpoint.address == one;
}

Result<Endpoint> resolve(const std::string& host_port) {
  auto parts = split(host_port);
  if (!parts) return std::move(parts.failure());
  if (const auto endpoint = numeric(parts->host, parts->port)) return *endpoint;

  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(parts->host.c_str(), nullptr, &hints, &list);
  if (error != 0) {
    return unavailable(
        fmt::format("cannot find the address of host '{}': {}; check the name, or give a numeric address", parts->host,
                    error == EAI_SYSTEM ? errno_text(errno) : gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  const addrinfo* chosen = list;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (at->ai_family == AF_INET) {
      chosen = at;
      break;
    }
  }
  sockaddr_storage storage = {};
  std::memcpy(&storage, chosen->ai_addr, std::min<size_t>(chosen->ai_addrlen, sizeof(storage)));
  Endpoint endpoint = from_sockaddr(storage);
  endpoint.port = parts->port;
  return endpoint;
}

std::string address_towards(const Endpoint& peer) {
  // Connecting a datagram socket sends nothing; it only makes the kernel choose the route.
  const int fd = ::socket(peer.is_v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  Endpoint target = peer;
  if (target.port == 0) target.port = 9;  // port 0 is refused, any other will do
  sockaddr_storage storage;
  socklen_t length = fill_sockaddr(target, storage);
  std::string local;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&storage), length) == 0) {
    length = sizeof(storage);
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) == 0)
      local = from_sockaddr(storage).host_text();
  }
  ::close(fd);
  return local;
}

Result<Listener> open_listener(const ListenOptions& options) {
  const uint16_t first = options.port_first;
  const uint16_t last = options.port_last == 0 ? first : options.port_last;
  if (first > last || (first == 0 && last != 0)) {
    return invalid(fmt::format("the ports {} to {} are not a range: the first must be 1 or more and not above the last",
                               first, last));
  }
  auto endpoint = endpoint_to_bind(options.bind);
  if (!endpoint) return std::move(endpoint.failure());
  auto host = host_to_advertise(options, *endpoint);
  if (!host) return std::move(host.failure());

  Attempt attempt;
  for (uint32_t port = first; port <= last; ++port) {
    endpoint->port = static_cast<uint16_t>(port);
    attempt = try_listen(*endpoint);
    // Only a taken port is a reason to try the next one.
    if (attempt.fd >= 0 || attempt.error != EADDRINUSE) break;
  }
  if (attempt.fd < 0 && attempt.error == EADDRINUSE && first != last) {
    return unavailable(
        fmt::format("cannot listen on {}: all ports from {} to {} are in use; give a wider range, or port 0",
                    endpoint->host_text(), first, last));
  }
  if (attempt.fd < 0) return cannot_bind(*endpoint, attempt.error);

  sockaddr_storage storage = {};
  socklen_t length = sizeof(storage);
  if (::getsockname(attempt.fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    const int error = errno;
    ::close(attempt.fd);
    return cannot_bind(*endpoint, error);
  }
  Listener listener{.fd = attempt.fd, .bound = from_sockaddr(storage)};
  listener.advertised = names_port(*host) ? *host : fmt::format("{}:{}", *host, listener.bound.port);
  return listener;
}

}  // namespace holdfast
