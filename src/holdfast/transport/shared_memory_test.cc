// Who gets shared memory and who does not, and strangers at the Unix socket. What all connections have in common is in
// contract_test.cc, tcp_test.cc and tls_test.cc.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <holdfast/transport/local_socket.h>
#include <holdfast/transport/shared_rings.h>
#include <holdfast/transport/tcp.h>
#include <holdfast/transport/test_support.h>

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using test::kDialled;
using test::make_frame;
using test::Recorder;

class SharedMemoryTest : public testing::Test {
 protected:
  SharedMemoryTest() {
    at_a.trusting = &a;
    at_b.trusting = &b;
  }
  bool pump_until(const std::function<bool()>& done) {
    const Time give_up = steady_now() + 60s;
    while (!done() && steady_now() < give_up) {
      a.poll(steady_now() + 1ms);
      b.poll(steady_now() + 1ms);
    }
    return done();
  }
  bool connect(const std::string& address) {
    a.connect(kDialled, address);
    return pump_until([&] { return at_a.connected(kDialled) && !at_b.accepted().empty(); });
  }
  Recorder at_a, at_b;
  std::vector<std::string> lines;
  TcpTransport a{at_a};
  TcpTransport b{at_b, {.log = [this](const std::string& line) { lines.push_back(line); }}};
};

TEST_F(SharedMemoryTest, AListenerOnAllAddressesIsFound) {
  const uint16_t port = Endpoint::parse(b.listen({.bind = "0.0.0.0", .advertise = "127.0.0.1"}).take()).take().port;
  ASSERT_TRUE(connect(fmt::format("127.0.0.1:{}", port)));
  EXPECT_EQ(a.shared_memory_count(), 1u);
}

TEST_F(SharedMemoryTest, WhoDoesNotOfferItIsSpokenWithOverTcp) {
  Recorder at_c;
  TcpTransport c(at_c, {.shared_memory = false});
  at_c.trusting = &c;
  a.connect(kDialled, c.listen({}).take());
  ASSERT_TRUE(pump_until([&] {
    c.poll(steady_now() + 1ms);
    return at_a.connected(kDialled) && !at_c.accepted().empty();
  }));
  EXPECT_EQ(a.shared_memory_count(), 0u);
}

TEST_F(SharedMemoryTest, AnotherAddressIsAnotherName) {
  const Endpoint bound = Endpoint::parse(b.listen({}).take()).take();
  const int found = dial_local(bound);
  EXPECT_GE(found, 0);
  ::close(found);
  Endpoint other = bound;
  other.address[3] = 2;  // 127.0.0.2
  EXPECT_EQ(dial_local(other), -1);
}

TEST_F(SharedMemoryTest, ThePeersEndIsSeenAfterItsLastWords) {
  ASSERT_TRUE(connect(b.listen({}).take()));
  const ConnectionId accepted = at_b.accepted()[0];
  for (uint64_t i = 1; i <= 50; ++i) at_a.put(kDialled, make_frame(i, 1000));
  a.flush(kDialled);
  a.close(kDialled, test::kEnough);
  ASSERT_TRUE(pump_until([&] { return at_b.closed(accepted); }));
  EXPECT_EQ(at_b.frame_count(accepted), 50u);
  EXPECT_EQ(at_b.why(accepted).code, Code::unavailable);
}

// ---- strangers at the Unix socket

class StrangerAtTheRings : public SharedMemoryTest {
 protected:
  StrangerAtTheRings() : fd_(dial_local(Endpoint::parse(b.listen({}).take()).take())) { EXPECT_GE(fd_, 0); }
  ~StrangerAtTheRings() override {
    if (fd_ >= 0) ::close(fd_);
  }
  bool refused() {
    return pump_until([&] { return b.connection_count() == 0 && !lines.empty(); });
  }
  const int fd_;
};

TEST_F(StrangerAtTheRings, ThatOffersNothing) {
  ASSERT_EQ(::send(fd_, "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  EXPECT_TRUE(refused());
  EXPECT_NE(lines.at(0).find("does not speak Holdfast's protocol"), std::string::npos) << lines[0];
  EXPECT_TRUE(at_b.accepted().empty()) << "nobody above hears of it";
}

TEST_F(StrangerAtTheRings, ThatOffersSomethingElse) {
  ASSERT_TRUE(send_offer(fd_, {.memory_fd = fd_}));
  EXPECT_TRUE(refused());
  EXPECT_NE(lines.at(0).find("memory that is not as it should be"), std::string::npos) << lines[0];
}

TEST_F(StrangerAtTheRings, WithTwoDescriptors) {
  iovec piece = {.iov_base = const_cast<char*>("HOLDFAST-RINGS\x00\x01"), .iov_len = 16};
  alignas(cmsghdr) uint8_t control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  cmsghdr* rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(2 * sizeof(int));
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  std::memcpy(CMSG_DATA(rights), pipe_fds, sizeof(pipe_fds));
  ASSERT_EQ(::sendmsg(fd_, &header, 0), 16);
  ::close(pipe_fds[1]);
  EXPECT_TRUE(refused());
  // The other ends were closed: otherwise there would be no end to read.
  char byte;
  EXPECT_EQ(::read(pipe_fds[0], &byte, 1), 0);
  ::close(pipe_fds[0]);
}

TEST_F(StrangerAtTheRings, ThatBreaksTheRing) {
  const auto rings = SharedRings::make();
  const int memory_fd = rings->take_fd();
  ASSERT_TRUE(send_offer(fd_, {.memory_fd = memory_fd}));
  ASSERT_TRUE(pump_until([&] { return !at_b.accepted().empty(); }));
  const uint64_t wrong = 1 << 30;
  ASSERT_EQ(::pwrite(memory_fd, &wrong, sizeof(wrong), 0), static_cast<ssize_t>(sizeof(wrong)));
  ::close(memory_fd);
  ASSERT_EQ(::send(fd_, "!", 1, 0), 1);
  const ConnectionId accepted = at_b.accepted()[0];
  ASSERT_TRUE(pump_until([&] { return at_b.closed(accepted); }));
  EXPECT_EQ(at_b.why(accepted).code, Code::corrupt);
}

TEST_F(StrangerAtTheRings, ThatSendsOtherBytesThroughTheRing) {
  const auto rings = SharedRings::make();
  const int memory_fd = rings->take_fd();
  ASSERT_TRUE(send_offer(fd_, {.memory_fd = memory_fd}));
  ::close(memory_fd);
  const iovec piece = {.iov_base = const_cast<char*>("something else"), .iov_len = 14};
  ASSERT_EQ(rings->write(&piece, 1), 14);
  ASSERT_EQ(::send(fd_, "!", 1, 0), 1);
  EXPECT_TRUE(refused());
  EXPECT_NE(lines.at(0).find("does not speak Holdfast's protocol"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace holdfast
