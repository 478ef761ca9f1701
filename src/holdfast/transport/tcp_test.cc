// What is TCP's own: strangers, partial frames, full sockets, many threads, and help.
#include <holdfast/transport/tcp.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/transport/test_support.h>

namespace holdfast {
namespace {

using test::kAccepted;
using test::kDialled;
using test::kEnough;
using test::make_frame;
using test::Recorder;
using test::same;
using namespace std::chrono_literals;

// A client that speaks whatever it likes.
class RawClient {
 public:
  RawClient() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  }
  ~RawClient() { shut(); }
  void connect(const std::string& address) {
    sockaddr_storage storage;
    const socklen_t length = fill_sockaddr(Endpoint::parse(address).take(), storage);
    ASSERT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), length), 0);
  }
  void send(ByteView bytes) {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void send(std::string_view text) { send(ByteView(reinterpret_cast<const uint8_t*>(text.data()), text.size())); }
  std::string local_address() {
    sockaddr_storage storage = {};
    socklen_t length = sizeof(storage);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &length);
    return from_sockaddr(storage).text();
  }
  void shut() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

Bytes stream_of(const std::vector<OutFrame>& frames) {
  Bytes out(kPreface.begin(), kPreface.end());
  for (const OutFrame& frame : frames) {
    const Bytes one = encode_frame(frame);
    out.append(one);
  }
  return out;
}

bool poll_until(TcpTransport& transport, const std::function<bool()>& done) {
  const Time give_up = steady_now() + 60s;
  while (!done() && steady_now() < give_up) transport.poll(steady_now() + 1ms);
  return done();
}

// One listening transport and a stranger.
class StrangerTest : public testing::Test {
 protected:
  void start(bool trusting) {
    if (trusting) events.trusting = &transport;
    address = transport.listen({}).take();
    client.connect(address);
  }
  Failure wait_closed() {
    EXPECT_TRUE(poll_until(transport, [&] { return events.closed(kAccepted); }));
    return events.why(kAccepted);
  }
  Recorder events;
  TcpTransport transport{events, {.frame_bytes_max = 1 << 20}};
  std::string address;
  RawClient client;
};

TEST_F(StrangerTest, WithoutThePrefaceIsToldApart) {
  start(false);
  client.send("GET / HTTP/1.0\r\n\r\n");
  const Failure why = wait_closed();
  EXPECT_EQ(why.code, Code::corrupt);
  EXPECT_NE(why.message.find("bytes that are not Holdfast's from " + client.local_address()), std::string::npos)
      << why.message;
}

TEST_F(StrangerTest, IsToldApartByTheFirstWrongByte) {
  start(false);
  client.send("HOX");
  EXPECT_EQ(wait_closed().code, Code::corrupt);
}

TEST_F(StrangerTest, ThatSaysNothingAndLeavesIsUnavailable) {
  start(false);
  client.shut();
  EXPECT_EQ(wait_closed().code, Code::unavailable);
}

TEST_F(StrangerTest, FrameCutShortIsNotDelivered) {
  start(true);
  Bytes bytes = stream_of({make_frame(1, 10), make_frame(2, 200)});
  bytes.resize(bytes.size() - 1);
  client.send(bytes);
  client.shut();
  const Failure why = wait_closed();
  EXPECT_EQ(why.code, Code::unavailable);
  EXPECT_NE(why.message.find("in the middle of a frame"), std::string::npos) << why.message;
  EXPECT_EQ(events.frame_count(kAccepted), 1u);
}

TEST_F(StrangerTest, TooLargeAFrameIsRefusedByItsHeader) {
  start(true);
  Bytes bytes = stream_of({make_frame(1, 10), make_frame(2, (1 << 20) + 1)});
  bytes.resize(kPreface.size() + kFrameHeaderBytes + 10 + kFrameHeaderBytes);
  client.send(bytes);
  const Failure why = wait_closed();
  EXPECT_EQ(why.code, Code::corrupt);
  EXPECT_NE(why.message.find("1048577"), std::string::npos) << why.message;
  EXPECT_NE(why.message.find("1048576"), std::string::npos) << why.message;
  EXPECT_EQ(events.frame_count(kAccepted), 1u);
}

TEST_F(StrangerTest, SlowSenderByteByByte) {
  start(true);
  const std::vector<OutFrame> frames = {make_frame(1, 0), make_frame(2, 3, {1, 0, 2}), make_frame(3, 1)};
  for (const uint8_t byte : stream_of(frames)) {
    client.send(ByteView(&byte, 1));
    transport.poll(steady_now() + 100ms);
  }
  ASSERT_TRUE(poll_until(transport, [&] { return events.frame_count(kAccepted) == frames.size(); }));
  const auto got = events.frames(kAccepted);
  for (size_t i = 0; i < frames.size(); ++i) EXPECT_TRUE(same(frames[i], got[i])) << i;
}

TEST(FrameReaderTest, AnySplitGivesTheSameFrames) {
  const std::vector<OutFrame> frames = {make_frame(1, 0), make_frame(2, 100, {0, 5, 64}), make_frame(3, 7, {1})};
  const Bytes stream = stream_of(frames);
  for (size_t step = 1; step <= stream.size(); ++step) {
    FrameReader reader("peer", 1 << 20);
    std::vector<InFrame> got;
    for (size_t at = 0; at < stream.size(); at += step) {
      ByteView bytes(stream.data() + at, std::min(step, stream.size() - at));
      ASSERT_TRUE(reader.feed(bytes, true, got).ok());
      ASSERT_TRUE(bytes.empty());
    }
    ASSERT_EQ(got.size(), frames.size()) << step;
    for (size_t i = 0; i < frames.size(); ++i) ASSERT_TRUE(same(frames[i], got[i])) << step << " " << i;
    EXPECT_TRUE(reader.at_boundary());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got[1].message.attachments[2].data) % kAttachmentAlignment, 0u);
  }
}

// Lengths that no machine could allocate: had the reader tried, it would have said overloaded, not corrupt.
TEST(FrameReaderTest, ChecksLengthsBeforeItAllocates) {
  const std::vector<std::vector<uint64_t>> tables = {
      {uint64_t{1} << 60}, {uint64_t{1} << 63, uint64_t{1} << 63}, {UINT64_MAX, 2}, {1 << 20, 1}};
  for (const auto& lengths : tables) {
    Bytes stream = stream_of({make_frame(1, 0, std::vector<size_t>(lengths.size(), 0))});
    std::memcpy(stream.data() + kPreface.size() + kFrameHeaderBytes, lengths.data(), 8 * lengths.size());
    FrameReader reader("peer", 1 << 20);
    std::vector<InFrame> got;
    ByteView bytes(stream);
    const Status status = reader.feed(bytes, true, got);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.failure().code, Code::corrupt);
    EXPECT_TRUE(got.empty());
  }
}

TEST(WriteTurnTest, NobodyIsForgotten) {
  WriteTurn turn;
  ASSERT_TRUE(turn.take());
  EXPECT_FALSE(turn.take());
  EXPECT_EQ(turn.done(), WriteTurn::After::again);
  EXPECT_EQ(turn.done(), WriteTurn::After::finished);
  ASSERT_TRUE(turn.take());
  EXPECT_FALSE(turn.close());
  EXPECT_FALSE(turn.take());
  EXPECT_EQ(turn.done(), WriteTurn::After::closed);
  EXPECT_TRUE(turn.close());
  EXPECT_FALSE(turn.take());
}

// A thread that polls a transport until it is stopped.
class Poller {
 public:
  explicit Poller(TcpTransport& transport)
      : transport_(transport), thread_([this] {
          while (!stop_) transport_.poll(kNever);
        }) {}
  ~Poller() {
    stop_ = true;
    transport_.interrupt();
    thread_.join();
  }
  std::thread::id id() const { return thread_.get_id(); }

 private:
  TcpTransport& transport_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

template <class Done>
bool wait_until(Done done) {
  const Time give_up = steady_now() + 60s;
  while (!done() && steady_now() < give_up) std::this_thread::yield();
  return done();
}

// Two transports that are connected: `a` dialled. With shared memory, or over TCP.
class PairTest : public testing::TestWithParam<bool> {
 protected:
  void open(const ListenOptions& listen = {}) {
    at_a.trusting = &a;
    at_b.trusting = &b;
    a.connect(kDialled, b.listen(listen).take());
    const Time give_up = steady_now() + 60s;
    while ((!at_a.connected(kDialled) || at_b.accepted().empty()) && steady_now() < give_up) {
      a.poll(steady_now() + 1ms);
      b.poll(steady_now() + 1ms);
    }
    ASSERT_TRUE(at_a.connected(kDialled));
  }
  // The poller may be in the middle of a read: then it is tried again.
  HelpSessionPtr help() {
    HelpSessionPtr session;
    wait_until([&] { return session != nullptr || (session = a.try_help(kDialled)) != nullptr; });
    return session;
  }
  void send_from_b(uint64_t sequence, size_t bytes = 10) {
    at_b.put(kAccepted, make_frame(sequence, bytes));
    b.flush(kAccepted);
  }
  Recorder at_a, at_b;
  TcpTransport a{at_a, {.handshake_timeout = test::kPatientHandshake, .shared_memory = GetParam()}};
  TcpTransport b{at_b, {.handshake_timeout = test::kPatientHandshake, .shared_memory = GetParam()}};
};
INSTANTIATE_TEST_SUITE_P(, PairTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "shared_memory" : "tcp"; });

TEST_P(PairTest, TellsHowItIsConnected) {
  EXPECT_EQ(b.shared_memory_count(), 0u);
  open();
  EXPECT_EQ(a.shared_memory_count(), GetParam() ? 1u : 0u);
  EXPECT_EQ(b.shared_memory_count(), GetParam() ? 1u : 0u);
}

TEST_P(PairTest, IPv6Loopback) {
  open({.bind = "::1"});
  EXPECT_EQ(a.peer_address(kDialled).substr(0, 6), "[::1]:");
  const std::string dialler = GetParam() ? fmt::format("process:{}", ::getpid()) : "[::1]:";
  EXPECT_EQ(b.peer_address(kAccepted).substr(0, dialler.size()), dialler);
  send_from_b(1);
  EXPECT_TRUE(poll_until(a, [&] { return at_a.frame_count(kDialled) == 1; }));
}

TEST_P(PairTest, InterruptBeforeAndDuringPoll) {
  a.interrupt();
  a.poll(kNever);
  std::thread thread([&] { a.poll(kNever); });
  a.interrupt();
  thread.join();
}

TEST_P(PairTest, SessionReadsInPlaceOfThePoller) {
  open();
  const auto threads = [&] { return at_a.with(kDialled, [](auto& c) { return std::exchange(c.threads, {}); }); };
  Poller poller_a(a), poller_b(b);
  constexpr uint64_t kFrames = 200;
  {
    const auto session = help();
    ASSERT_NE(session, nullptr);
    EXPECT_EQ(a.try_help(kDialled), nullptr) << "one helper at a time";
    for (uint64_t i = 1; i <= kFrames; ++i) {
      send_from_b(i);
      while (at_a.frame_count(kDialled) < i) {
        ASSERT_EQ(session->poll_once(steady_now() + 60s), HelpSession::Outcome::delivered);
      }
    }
    EXPECT_EQ(threads(), std::set{std::this_thread::get_id()});
  }
  send_from_b(kFrames + 1);
  ASSERT_TRUE(wait_until([&] { return at_a.frame_count(kDialled) == kFrames + 1; }));
  EXPECT_EQ(threads(), std::set{poller_a.id()});
  EXPECT_NE(help(), nullptr);
}

TEST_P(PairTest, SessionTimesOutSpinsAndIsInterrupted) {
  open();
  const auto session = help();
  ASSERT_NE(session, nullptr);
  EXPECT_EQ(session->poll_once(steady_now()), HelpSession::Outcome::timeout);
  EXPECT_EQ(session->poll_once(steady_now() + 2ms), HelpSession::Outcome::timeout);
  session->interrupt();
  session->interrupt();
  EXPECT_EQ(session->poll_once(kNever), HelpSession::Outcome::interrupted);
  EXPECT_EQ(session->poll_once(steady_now()), HelpSession::Outcome::timeout);
  std::thread thread([&] { session->interrupt(); });
  EXPECT_EQ(session->poll_once(kNever), HelpSession::Outcome::interrupted);
  thread.join();
  send_from_b(1);
  EXPECT_EQ(session->poll_once(kNever), HelpSession::Outcome::delivered);
}

TEST_P(PairTest, SessionAssemblesALargeFrame) {
  open();
  Poller poller_b(b);
  const auto session = help();
  ASSERT_NE(session, nullptr);
  const OutFrame frame = make_frame(1, 5 << 20, {3 << 20, 100});
  at_b.put(kAccepted, frame);
  b.flush(kAccepted);
  EXPECT_EQ(session->poll_once(steady_now() + 60s), HelpSession::Outcome::delivered);
  ASSERT_EQ(at_a.frame_count(kDialled), 1u);
  EXPECT_TRUE(same(frame, at_a.frames(kDialled)[0]));
  EXPECT_GT(at_a.progress(kDialled), 0u);
}

TEST_P(PairTest, PeerClosesWhileASessionIsActive) {
  open();
  Poller poller_a(a), poller_b(b);
  const auto session = help();
  ASSERT_NE(session, nullptr);
  b.close(kAccepted, kEnough);
  EXPECT_EQ(session->poll_once(steady_now() + 60s), HelpSession::Outcome::closed);
  ASSERT_TRUE(wait_until([&] { return at_a.closed(kDialled); }));
  EXPECT_EQ(session->poll_once(steady_now() + 60s), HelpSession::Outcome::closed);
  EXPECT_EQ(a.try_help(kDialled), nullptr);
}

TEST_P(PairTest, CloseHereWhileASessionIsActive) {
  open();
  Poller poller_a(a), poller_b(b);
  const auto session = help();
  ASSERT_NE(session, nullptr);
  std::thread thread([&] { a.close(kDialled, kEnough); });
  EXPECT_EQ(session->poll_once(kNever), HelpSession::Outcome::closed);
  thread.join();
  ASSERT_TRUE(wait_until([&] { return at_a.closed(kDialled) && at_b.closed(kAccepted); }));
  EXPECT_EQ(at_a.why(kDialled).code, Code::cancelled);
}

// While a session is active and nobody polls, the session alone brings on_closed.
TEST_P(PairTest, SessionDeliversTheEndWithoutAPoller) {
  open();
  const auto session = help();
  ASSERT_NE(session, nullptr);
  a.close(kDialled, kEnough);
  EXPECT_FALSE(at_a.closed(kDialled));
  EXPECT_EQ(session->poll_once(kNever), HelpSession::Outcome::closed);
  EXPECT_TRUE(at_a.closed(kDialled));
}

TEST_P(PairTest, FlushFromManyThreadsKeepsTheOrderOfCollection) {
  open();
  constexpr uint64_t kThreads = 8, kEach = 500;
  {
    Poller poller_a(a), poller_b(b);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t i = 0; i < kEach; ++i) {
          at_a.put_next(kDialled, i % 50 == t ? 100'000 : i % 100);
          a.flush(kDialled);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(wait_until([&] { return at_b.frame_count(kAccepted) == kThreads * kEach; }));
  }
  const auto got = at_b.frames(kAccepted);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].header.sequence, i + 1);
}

// Calls and replies: two callers take turns in helping, while both pollers run and others flush.
TEST_P(PairTest, HelpersComeAndGoWhileFramesFlow) {
  open();
  constexpr uint64_t kFrames = 3000;
  {
    Poller poller_a(a), poller_b(b);
    std::atomic<bool> stop = false;
    std::vector<std::thread> helpers;
    for (int t = 0; t < 2; ++t) {
      helpers.emplace_back([&] {
        while (!stop) {
          if (const auto session = a.try_help(kDialled)) session->poll_once(steady_now() + 1ms);
        }
      });
    }
    std::thread sender([&] {
      for (uint64_t i = 0; i < kFrames; ++i) {
        at_b.put_next(kAccepted, i % 7 == 0 ? 70'000 : 20);
        b.flush(kAccepted);
        at_a.put_next(kDialled, 20);
        a.flush(kDialled);
      }
    });
    sender.join();
    EXPECT_TRUE(
        wait_until([&] { return at_a.frame_count(kDialled) == kFrames && at_b.frame_count(kAccepted) == kFrames; }));
    stop = true;
    for (std::thread& helper : helpers) helper.join();
  }
  const auto got = at_a.frames(kDialled);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].header.sequence, i + 1);
}

// No limit to their sleep: who is not woken hangs.
TEST_P(PairTest, HelpersSleepUntilTheyAreWoken) {
  open();
  const Poller poller_a(a), poller_b(b);
  constexpr uint64_t kFrames = 1000;
  for (uint64_t i = 1; i <= kFrames; ++i) {
    // Every third one is the poller's.
    auto session = i % 3 != 0 ? a.try_help(kDialled) : nullptr;
    send_from_b(i);
    while (session && at_a.frame_count(kDialled) < i) {
      ASSERT_EQ(session->poll_once(kNever), HelpSession::Outcome::delivered);
    }
    session.reset();
    ASSERT_TRUE(wait_until([&] { return at_a.frame_count(kDialled) >= i; })) << i;
  }
}

TEST_P(PairTest, PollingMovesBetweenThreads) {
  open();
  constexpr uint64_t kFrames = 500;
  std::atomic<bool> stop = false;
  std::vector<std::thread> pollers;
  for (int t = 0; t < 3; ++t) {
    pollers.emplace_back([&] {
      while (!stop) a.poll(steady_now() + 1ms);
    });
  }
  {
    Poller poller_b(b);
    for (uint64_t i = 1; i <= kFrames; ++i) send_from_b(i);
    EXPECT_TRUE(wait_until([&] { return at_a.frame_count(kDialled) == kFrames; }));
  }
  stop = true;
  for (std::thread& poller : pollers) poller.join();
  const auto got = at_a.frames(kDialled);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].header.sequence, i + 1);
}

// Everything at once on connections that end: the recorder checks that each ends once and nothing follows.
TEST_P(PairTest, ClosingWhileOthersFlushAndHelp) {
  open();
  const std::string address = a.peer_address(kDialled);
  constexpr uint64_t kRounds = 40;
  Poller poller_a(a), poller_b(b);
  for (uint64_t round = 0; round < kRounds; ++round) {
    const ConnectionId id{100 + 2 * round};
    a.connect(id, address);
    ASSERT_TRUE(wait_until([&] { return at_a.connected(id) && at_b.accepted().size() == round + 2; }));
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i) {
          at_a.put_next(id, 20'000);
          a.flush(id);
        }
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        if (const auto session = a.try_help(id)) session->poll_once(steady_now() + 1ms);
      }
    });
    threads.emplace_back([&] { a.close(id, kEnough); });
    if (round % 2 == 0) threads.emplace_back([&] { b.close(at_b.accepted().back(), kEnough); });
    for (std::thread& thread : threads) thread.join();
    ASSERT_TRUE(wait_until([&] { return at_a.closed(id) && at_b.closed(at_b.accepted().back()); }));
  }
  EXPECT_EQ(a.connection_count(), 1u);
}

TEST_P(PairTest, SlowReaderHoldsTheWriterBack) {
  open();
  constexpr uint64_t kFrames = test::kSanitizer ? 24 : 64;
  for (uint64_t i = 1; i <= kFrames; ++i) at_a.put(kDialled, make_frame(i, 1 << 20));
  a.flush(kDialled);
  const auto waiting = [&] { return at_a.with(kDialled, [](auto& c) { return c.outbox.size(); }); };
  // Nobody reads: the socket fills up and the rest stays where it was.
  EXPECT_GT(waiting(), 0u);
  a.flush(kDialled);
  a.poll(steady_now());
  EXPECT_GT(waiting(), 0u);
  const Time give_up = steady_now() + 60s;
  while (at_b.frame_count(kAccepted) < kFrames && steady_now() < give_up) {
    b.poll(steady_now() + 1ms);
    a.poll(steady_now());
  }
  const auto got = at_b.frames(kAccepted);
  ASSERT_EQ(got.size(), kFrames);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(same(make_frame(i + 1, 1 << 20), got[i])) << i;
  EXPECT_GT(at_a.progress(kDialled), 0u) << "what is written is progress too";
}

TEST_P(PairTest, ListensOnlyOnce) {
  open();
  const auto again = b.listen({});
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.failure().code, Code::invalid_argument);
}

TEST(TcpTest, ConnectionsOverTheLimitAreClosedAtOnce) {
  Recorder at_a, at_b;
  TcpTransport a(at_a), b(at_b, {.connections_max = 2});
  const std::string address = b.listen({}).take();
  for (uint64_t i = 1; i <= 3; ++i) a.connect({2 * i}, address);
  const Time give_up = steady_now() + 60s;
  const auto closed = [&] { return at_a.closed({2}) + at_a.closed({4}) + at_a.closed({6}); };
  while (closed() == 0 && steady_now() < give_up) {
    a.poll(steady_now() + 1ms);
    b.poll(steady_now() + 1ms);
  }
  EXPECT_EQ(closed(), 1);
  EXPECT_EQ(at_b.accepted().size(), 2u);
  EXPECT_EQ(b.connection_count(), 2u);
}

TEST(TcpTest, ConnectToNonsenseIsToldByAnEvent) {
  Recorder events;
  TcpTransport transport(events);
  uint64_t id = 2;
  for (const char* address : {"", "nonsense", "127.0.0.1:99999", "127.0.0.1:http", "::1:80"}) {
    transport.connect({id}, address);
    ASSERT_TRUE(poll_until(transport, [&] { return events.closed({id}); })) << address;
    EXPECT_EQ(events.why({id}).code, Code::invalid_argument) << address;
    EXPECT_NE(events.why({id}).message.find(address), std::string::npos);
    id += 2;
  }
}

// Sets the limit of descriptors for as long as it lives.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = limit;
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST(TcpTest, WithoutDescriptorsItPausesAndThenAccepts) {
  // As in rpc/reliability_test.cc: its checks of virtual calls read memory through a pipe. dev and tsan run this.
  if (test::kSanitizer && !test::kThreadSanitizer) GTEST_SKIP() << "the sanitizer needs descriptors of its own";
  Recorder events;
  TcpTransport transport(events);
  const std::string address = transport.listen({}).take();
  RawClient client;
  {
    const int lowest_free = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
    ASSERT_GE(lowest_free, 0);
    ::close(lowest_free);
    const DescriptorLimit limit(static_cast<rlim_t>(lowest_free));
    client.connect(address);
    transport.poll(steady_now() + 10s);  // tries to accept, and cannot
    EXPECT_TRUE(events.accepted().empty());
    // It does not spin: with the connection still waiting, poll() waits.
    const Time until = steady_now() + 20ms;
    transport.poll(until);
    EXPECT_GE(steady_now(), until);
  }
  EXPECT_TRUE(poll_until(transport, [&] { return events.accepted().size() == 1; }));
}

}  // namespace
}  // namespace holdfast
