#include <holdfast/transport/address.h>

#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

bool says(const Failure& failure, const std::string& part) { return failure.message.find(part) != std::string::npos; }

struct Closing {
  ~Closing() { ::close(listener.fd); }
  Listener listener;
};

TEST(EndpointTest, ParsesAndFormats) {
  for (const char* text :
       {"127.0.0.1:80", "0.0.0.0:0", "255.1.2.3:65535", "[::1]:80", "[::]:1", "[2001:db8::5]:4711"}) {
    auto endpoint = Endpoint::parse(text);
    ASSERT_TRUE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint->text(), text);
    sockaddr_storage storage;
    fill_sockaddr(*endpoint, storage);
    EXPECT_EQ(from_sockaddr(storage), *endpoint);
  }
}

TEST(EndpointTest, RefusesEverythingElse) {
  for (const char* text : {"", ":", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:80x", "127.0.0.1:-1",
                           "127.0.0.1:65536", "127.0.0.1:99999999999999999999", "::1:80", "[::1]", "[::1]80", "[::1:80",
                           "[]:80", "localhost:80", "256.0.0.1:80", "[127.0.0.1]:80", "[::1%nosuch0]:80"}) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_FALSE(endpoint.ok()) << text;
    EXPECT_EQ(endpoint.failure().code, Code::invalid_argument);
    EXPECT_TRUE(says(endpoint.failure(), std::string("'") + text + "'")) << endpoint.failure().message;
  }
  EXPECT_TRUE(says(Endpoint::parse("127.0.0.1:65536").failure(), "more than 65535"));
  EXPECT_TRUE(says(Endpoint::parse("127.0.0.1:99999999999999999999").failure(), "more than 65535"));
}

TEST(EndpointTest, Loopback) {
  const auto loopback = [](const char* text) { return is_loopback(Endpoint::parse(text).take()); };
  EXPECT_TRUE(loopback("127.0.0.1:1"));
  EXPECT_TRUE(loopback("127.9.9.9:1"));
  EXPECT_TRUE(loopback("[::1]:1"));
  EXPECT_TRUE(loopback("[::ffff:127.0.0.1]:1"));
  EXPECT_FALSE(loopback("10.0.0.1:1"));
  EXPECT_FALSE(loopback("[::2]:1"));
  EXPECT_FALSE(loopback("[::]:1"));
}

TEST(ResolveTest, NumbersAndNames) {
  EXPECT_EQ(resolve("127.0.0.1:80").take().text(), "127.0.0.1:80");
  EXPECT_EQ(resolve("[::1]:80").take().text(), "[::1]:80");
  EXPECT_EQ(resolve("localhost:80").take().text(), "127.0.0.1:80");
  const auto unknown = resolve("no-such-host.invalid:80");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.failure().code, Code::unavailable);
  EXPECT_TRUE(says(unknown.failure(), "no-such-host.invalid")) << unknown.failure().message;
}

TEST(AddressTowardsTest, Loopback) {
  EXPECT_EQ(address_towards(Endpoint::parse("127.0.0.1:80").take()), "127.0.0.1");
  EXPECT_EQ(address_towards(Endpoint::parse("[::1]:0").take()), "::1");
}

TEST(ListenTest, DefaultIsLoopbackOnAFreePort) {
  const Closing one{open_listener({}).take()};
  EXPECT_EQ(one.listener.bound.host_text(), "127.0.0.1");
  EXPECT_NE(one.listener.bound.port, 0);
  EXPECT_EQ(one.listener.advertised, one.listener.bound.text());
}

TEST(ListenTest, ByInterfaceAndByIPv6Address) {
  const Closing lo{open_listener({.bind = "lo"}).take()};
  EXPECT_EQ(lo.listener.bound.host_text(), "127.0.0.1");
  for (const char* text : {"::1", "[::1]"}) {
    const Closing six{open_listener({.bind = text}).take()};
    EXPECT_EQ(six.listener.advertised, "[::1]:" + std::to_string(six.listener.bound.port));
  }
}

TEST(ListenTest, AdvertisesWhatItIsTold) {
  const Closing named{open_listener({.bind = "0.0.0.0", .advertise = "node7"}).take()};
  EXPECT_EQ(named.listener.advertised, "node7:" + std::to_string(named.listener.bound.port));
  const Closing six{open_listener({.advertise = "2001:db8::1"}).take()};
  EXPECT_EQ(six.listener.advertised, "[2001:db8::1]:" + std::to_string(six.listener.bound.port));
  for (const char* forwarded : {"node7:80", "10.0.0.7:80", "[2001:db8::1]:80"}) {
    EXPECT_EQ(Closing{open_listener({.advertise = forwarded}).take()}.listener.advertised, forwarded);
  }
  for (const char* wrong : {"0.0.0.0", "0.0.0.0:80", "node7:", "node7:0", "node7:http", "a b", "a b:80", "[x]"}) {
    const auto refused = open_listener({.advertise = wrong});
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.failure().code, Code::invalid_argument);
  }
}

// With an address of its own the machine advertises it; without one it asks for one.
TEST(ListenTest, WildcardNeverAdvertisesItself) {
  auto listener = open_listener({.bind = "0.0.0.0"});
  if (listener.ok()) {
    const Closing closing{*listener};
    const Endpoint advertised = Endpoint::parse(listener->advertised).take();
    EXPECT_FALSE(advertised.is_wildcard());
    EXPECT_FALSE(is_loopback(advertised));
  } else {
    EXPECT_TRUE(says(listener.failure(), "advertise")) << listener.failure().message;
  }
}

TEST(ListenTest, RangeIsTriedInOrder) {
  // Finds two neighbouring free ports by taking the first.
  for (int attempt = 0; attempt < 50; ++attempt) {
    const Closing first{open_listener({}).take()};
    const uint16_t port = first.listener.bound.port;
    if (port == 65535) continue;
    auto second = open_listener({.port_first = port, .port_last = static_cast<uint16_t>(port + 1)});
    if (!second.ok()) continue;  // somebody has the neighbour
    const Closing closing{*second};
    EXPECT_EQ(second->bound.port, port + 1);
    const auto none = open_listener({.port_first = port, .port_last = static_cast<uint16_t>(port + 1)});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.failure().code, Code::unavailable);
    EXPECT_TRUE(says(none.failure(), std::to_string(port) + " to " + std::to_string(port + 1)))
        << none.failure().message;
    const auto single = open_listener({.port_first = port});
    ASSERT_FALSE(single.ok());
    EXPECT_TRUE(says(single.failure(), first.listener.bound.text())) << single.failure().message;
    return;
  }
  FAIL() << "no two neighbouring free ports in fifty attempts";
}

TEST(ListenTest, SaysWhatIsWrong) {
  const auto failure = [](const ListenOptions& options) {
    auto listener = open_listener(options);
    if (!listener.ok()) return listener.failure();
    ::close(listener->fd);
    return Failure{.message = "it listens"};
  };
  const Failure interface = failure({.bind = "nosuch0"});
  EXPECT_EQ(interface.code, Code::invalid_argument);
  EXPECT_TRUE(says(interface, "'nosuch0'") && says(interface, "lo")) << interface.message;
  // 192.0.2.0/24 is reserved for documentation: nobody's address.
  const Failure foreign = failure({.bind = "192.0.2.1"});
  EXPECT_EQ(foreign.code, Code::unavailable);
  EXPECT_TRUE(says(foreign, "192.0.2.1 is not an address of this machine")) << foreign.message;
  const Failure with_port = failure({.bind = "127.0.0.1:80"});
  EXPECT_EQ(with_port.code, Code::invalid_argument);
  EXPECT_TRUE(says(with_port, "without port")) << with_port.message;
  const Failure backwards = failure({.port_first = 20, .port_last = 10});
  EXPECT_EQ(backwards.code, Code::invalid_argument);
  EXPECT_TRUE(says(backwards, "20 to 10")) << backwards.message;
}

}  // namespace
}  // namespace holdfast
