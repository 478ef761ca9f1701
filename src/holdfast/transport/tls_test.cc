// Who gets in: every way of two sides that meet, strangers that do not speak TLS, that are slow, that are many.
#include <holdfast/transport/tls.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <holdfast/transport/tcp.h>
#include <holdfast/transport/test_support.h>
#include <holdfast/transport/tls_test_support.h>

namespace holdfast::tls_test {
namespace {

using namespace test;
using namespace std::chrono_literals;

const std::string kOurs = "the secret of this job";
const std::string kTheirs = "the secret of another job";

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// A transport and what it told and logged.
struct Party {
  explicit Party(const Security& security, TcpOptions options = {.handshake_timeout = test::kPatientHandshake}) {
    options.tls = make_tls(security).take();
    options.log = [this](const std::string& line) { lines.push_back(line); };
    tcp = std::make_unique<TcpTransport>(events, options);
    events.trusting = tcp.get();
  }
  size_t lines_with(const std::string& part) const {
    return static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [&](auto& line) { return has(line, part); }));
  }
  std::string log() const {
    std::string all;
    for (const std::string& line : lines) all += line + "\n";
    return all;
  }
  Recorder events;
  std::vector<std::string> lines;
  std::unique_ptr<TcpTransport> tcp;
};

bool poll_until(const std::vector<Party*>& parties, const std::function<bool()>& done) {
  const Time give_up = steady_now() + 60s;
  while (!done()) {
    if (steady_now() > give_up) return false;
    for (Party* party : parties) party->tcp->poll(steady_now() + 1ms);
  }
  return true;
}

// A socket that says whatever it likes.
class Wire {
 public:
  explicit Wire(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_storage storage;
    const socklen_t length = fill_sockaddr(Endpoint::parse(address).take(), storage);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&storage), length), 0);
    ::fcntl(fd_, F_SETFL, O_NONBLOCK);
  }
  Wire(Wire&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Wire() {
    if (fd_ >= 0) ::close(fd_);
  }
  void send(ByteView bytes) {
    [[maybe_unused]] const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  void send(std::string_view text) { send(ByteView(reinterpret_cast<const uint8_t*>(text.data()), text.size())); }
  // What has come; sets ended().
  Bytes receive() {
    uint8_t buffer[4096];
    const ssize_t got = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
    return got > 0 ? Bytes(buffer, buffer + got) : Bytes();
  }
  bool ended() {
    while (!receive().empty()) {
    }
    return ended_;
  }

 private:
  int fd_;
  bool ended_ = false;
};

// ---- who gets in

struct Meeting {
  std::string name;
  Security dials, accepts;
  bool works = false;
  std::string dialler_learns = {};  // in its on_closed
  std::string log = {};             // of the side that accepts
};

class MeetingTest : public testing::Test {
 protected:
  std::vector<Meeting> meetings() {
    Security none = ours.worker("none");
    const Security good = ours.worker("good"), other_good = ours.worker("other_good");
    const Security expired = ours.worker("expired", -7200, -3600), early = ours.worker("early", 3600, 7200);
    Security foreign = theirs.worker("foreign");
    foreign.ca_file = good.ca_file;  // it trusts us; we do not trust it
    const Security secret = with_secret(kOurs), local = with_secret(kOurs, SecurityMode::automatic);
    const Security plain{.mode = SecurityMode::plain}, nothing;
    const std::string another = "has another secret", refused = "has a certificate that is refused: ";
    return {
        {"both have the secret", secret, secret, true},
        {"both have it, on loopback", local, local, true},
        {"one encrypts on loopback, too", local, secret, true},
        {"so does the one that dials", secret, local, true},
        {"both have certificates", good, other_good, true},
        {"neither has anything", nothing, nothing, true},
        {"both plain", plain, nothing, true},
        {"the dialler has another secret", with_secret(kTheirs), secret, false, "it has another secret", another},
        {"the same on loopback", with_secret(kTheirs, SecurityMode::automatic), local, false, "it has another secret",
         another},
        {"the dialler has no secret", plain, secret, false, "", "speaks without encryption"},
        {"the other side has no secret", secret, plain, false, "speaks without encryption", "speaks TLS"},
        {"the dialler's certificate has expired", expired, good, false, "certificate expired",
         refused + "certificate has expired"},
        {"it is not valid yet", early, good, false, "bad certificate", refused + "certificate is not yet valid"},
        {"the other side's has expired", good, expired, false, refused + "certificate has expired",
         "certificate expired"},
        {"another authority's", foreign, good, false, "unknown ca", refused},
        {"the other side's is another authority's", good, foreign, false, refused, "unknown ca"},
        {"a certificate where a secret is needed", good, secret, false, "it said", "the handshake"},
        {"a secret where a certificate is needed", secret, good, false, "shows a certificate", "the handshake"},
    };
  }
  void meet(bool shared_memory);
  TestFolder folder;
  TestAuthority ours{folder, "ours"}, theirs{folder, "theirs"};
};

void MeetingTest::meet(bool shared_memory) {
  for (const Meeting& meeting : meetings()) {
    SCOPED_TRACE(meeting.name);
    Party a(meeting.dials, {.shared_memory = shared_memory}), b(meeting.accepts, {.shared_memory = shared_memory});
    a.tcp->connect(kDialled, b.tcp->listen({}).take());
    const OutFrame frame = make_frame(1, 100, {200'000});
    a.events.put(kDialled, frame);
    const auto arrived = [&] { return !b.events.accepted().empty() && b.events.frame_count(kAccepted) == 1; };
    const auto over = [&] { return arrived() || a.events.closed(kDialled); };
    ASSERT_TRUE(poll_until({&a, &b}, over));
    EXPECT_EQ(arrived(), meeting.works) << a.events.why(kDialled).message;
    if (meeting.works && arrived()) {
      EXPECT_TRUE(b.lines.empty()) << b.log();
      EXPECT_TRUE(same(frame, b.events.frames(kAccepted)[0]));
      continue;
    }
    EXPECT_TRUE(poll_until({&a, &b}, [&] { return b.tcp->connection_count() == 0 && !b.lines.empty(); }));
    EXPECT_TRUE(has(a.events.why(kDialled).message, meeting.dialler_learns)) << a.events.why(kDialled).message;
    EXPECT_EQ(b.lines_with(meeting.log), 1u) << b.log();
    EXPECT_EQ(b.lines.size(), 1u) << b.log();
  }
}

TEST_F(MeetingTest, WhoGetsIn) { meet(false); }
TEST_F(MeetingTest, WhoGetsInWithSharedMemory) { meet(true); }

// A client with our authority but no certificate of its own. (Options do not allow it; another program might.)
TEST_F(MeetingTest, WithoutAClientCertificateNobodyGetsIn) {
  const Security good = ours.worker("good");
  Party b(good);
  Wire wire(b.tcp->listen({}).take());
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_load_verify_file(context, good.ca_file.c_str());
  SSL* ssl = SSL_new(context);
  const unsigned char protocol[] = "\x0aholdfast/1";
  SSL_set_alpn_protos(ssl, protocol, sizeof(protocol) - 1);
  BIO* in = BIO_new(BIO_s_mem());
  BIO* out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, out);
  SSL_set_connect_state(ssl);
  EXPECT_TRUE(poll_until({&b}, [&] {
    const Bytes got = wire.receive();
    if (!got.empty()) BIO_write(in, got.data(), static_cast<int>(got.size()));
    SSL_do_handshake(ssl);
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(out, &data);
    if (bytes > 0) wire.send(std::string_view(data, static_cast<size_t>(bytes)));
    (void)BIO_reset(out);
    return !b.lines.empty();
  }));
  EXPECT_EQ(b.lines_with("has no certificate"), 1u) << b.log();
  EXPECT_TRUE(b.events.accepted().empty());
  SSL_free(ssl);
  SSL_CTX_free(context);
}

// ---- what is on the wire

// Between two parties: records what the dialler says.
class Tap {
 public:
  explicit Tap(const std::string& target) : target_(target), to_(target) {
    Listener listener = open_listener({}).take();
    listener_ = listener.fd;
    address = listener.advertised;
  }
  ~Tap() {
    ::close(listener_);
    if (from_ >= 0) ::close(from_);
  }
  void pass() {
    if (from_ < 0) from_ = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    uint8_t buffer[4096];
    const ssize_t got = from_ < 0 ? -1 : ::recv(from_, buffer, sizeof(buffer), 0);
    if (got > 0) {
      said.append(buffer, static_cast<size_t>(got));
      to_.send(ByteView(buffer, static_cast<size_t>(got)));
    }
    const Bytes back = to_.receive();
    if (!back.empty()) [[maybe_unused]]
      const ssize_t sent = ::send(from_, back.data(), back.size(), MSG_NOSIGNAL);
  }
  std::string address;
  Bytes said;

 private:
  const std::string target_;
  Wire to_;
  int listener_ = -1;
  int from_ = -1;
};

bool contains_bytes(const Bytes& all, std::string_view part) {
  return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
}

// What `dials` says to `accepts` until a frame that holds a well-known text has arrived.
Bytes recorded(Party& a, Party& b, const std::string& address, std::string_view text) {
  Tap tap(address);
  a.tcp->connect(kDialled, tap.address);
  Message message{.kind = kTestKind, .body = Bytes(text.begin(), text.end())};
  a.events.put(kDialled, {.header = {.kind = kTestKind}, .message = std::make_shared<const Message>(message)});
  EXPECT_TRUE(poll_until({&a, &b}, [&] {
    tap.pass();
    return b.events.frame_count(kAccepted) == 1;
  }));
  return tap.said;
}

TEST(TlsWire, IsEncryptedUnlessBothAreOnLoopbackAndSaySo) {
  const std::string_view text = "a text that an eavesdropper would like to read";
  for (const bool local : {false, true}) {
    const Security security = with_secret(kOurs, local ? SecurityMode::automatic : SecurityMode::secret);
    Party a(security), b(security);
    const Bytes said = recorded(a, b, b.tcp->listen({}).take(), text);
    EXPECT_EQ(contains_bytes(said, text), local);
    EXPECT_FALSE(contains_bytes(said, kOurs));
  }
}

TEST(TlsWire, AReplayedHandshakeFails) {
  for (const SecurityMode mode : {SecurityMode::secret, SecurityMode::automatic}) {
    const Security security = with_secret(kOurs, mode);
    Party a(security), b(security);
    const std::string address = b.tcp->listen({}).take();
    const Bytes said = recorded(a, b, address, "transfer all");
    const size_t frames = b.events.frame_count(kAccepted);
    Wire thief(address);
    thief.send(said);
    EXPECT_TRUE(poll_until({&b}, [&] { return thief.ended(); }));
    EXPECT_EQ(b.events.accepted().size(), 1u) << "nobody hears of it";
    EXPECT_EQ(b.events.frame_count(kAccepted), frames);
    EXPECT_EQ(b.lines.size(), 1u) << b.log();
  }
}

TEST(TlsWire, AChangedByteEndsTheConnection) {
  Party a(with_secret(kOurs)), b(with_secret(kOurs));
  const std::string address = b.tcp->listen({}).take();
  Wire wire(address);
  auto context = make_tls(with_secret(kOurs)).take();
  auto session = TlsSession::make(context, TlsSession::Side::dials, true);
  ASSERT_TRUE(poll_until({&b}, [&] {
    const Bytes got = wire.receive();
    ByteView input(got);
    const Result<bool> done = session->handshake(input);
    Bytes out;
    session->take_output(out);
    wire.send(out);
    return !done || *done;
  }));
  Bytes stream(kPreface.begin(), kPreface.end());
  stream.append(encode_frame(make_frame(1, 100)));
  Bytes out;
  ASSERT_TRUE(session->writer().write(stream, out).ok());
  out[out.size() / 2] ^= 1;
  wire.send(out);
  ASSERT_TRUE(poll_until({&b}, [&] { return b.events.closed(kAccepted); }));
  EXPECT_EQ(b.events.frame_count(kAccepted), 0u);
}

// ---- strangers

TEST(TlsStrangers, ThatDoNotSpeakTlsAreToldApart) {
  const std::pair<std::string, std::string> cases[] = {
      {"GET / HTTP/1.0\r\n\r\n", "does not speak TLS"},
      {std::string(reinterpret_cast<const char*>(kPreface.data()), kPreface.size()), "speaks without encryption"},
      {std::string(8, '\0'), "does not speak TLS"},
      {std::string("\x16\x03\x01\x00\x05nonsense", 13), "the handshake"},
  };
  for (const auto& [bytes, log] : cases) {
    Party b(with_secret(kOurs));
    const std::string address = b.tcp->listen({}).take();
    for (int i = 0; i < 3; ++i) {
      Wire wire(address);
      wire.send(bytes);
      EXPECT_TRUE(poll_until({&b}, [&] { return wire.ended(); })) << log;
    }
    EXPECT_EQ(b.lines_with(log), 1u) << b.log();
    EXPECT_EQ(b.lines.size(), 1u) << "told once: " << b.log();
    EXPECT_TRUE(b.events.accepted().empty());
  }
}

// A record that grows and grows.
TEST(TlsStrangers, AnEndlessHandshakeIsEnded) {
  Party b(with_secret(kOurs));
  Wire wire(b.tcp->listen({}).take());
  // ClientHello fragments of a message that claims to be as long as can be.
  Bytes fragment = {0x16, 0x03, 0x01, 0x40, 0x00, 0x01, 0xff, 0xff, 0xff};
  fragment.resize(5 + 0x4000);
  EXPECT_TRUE(poll_until({&b}, [&] {
    wire.send(fragment);
    return wire.ended();
  }));
  EXPECT_EQ(b.lines.size(), 1u) << b.log();
}

TEST(TlsStrangers, SlowOnesAreEnded) {
  // Plain as well as TLS; those that say nothing, and those that begin well.
  for (const bool tls : {false, true}) {
    for (const std::string_view start :
         {std::string_view(), tls ? std::string_view("\x16") : std::string_view("HOLD")}) {
      Party b(tls ? with_secret(kOurs) : Security{}, {.handshake_timeout = 50ms});
      Wire wire(b.tcp->listen({}).take());
      wire.send(start);
      EXPECT_TRUE(poll_until({&b}, [&] { return wire.ended(); }));
      EXPECT_TRUE(poll_until({&b}, [&] { return b.tcp->connection_count() == 0; }));
      EXPECT_EQ(b.lines_with("took too long"), 1u) << b.log();
      EXPECT_EQ(b.events.accepted().size(), tls ? 0u : 1u);
    }
  }
}

// Somebody accepts our connection and says nothing.
TEST(TlsStrangers, ASilentListenerDoesNotHoldTheDialler) {
  Listener silent = open_listener({}).take();
  Party a(with_secret(kOurs), {.handshake_timeout = 50ms});
  a.tcp->connect(kDialled, silent.advertised);
  EXPECT_TRUE(poll_until({&a}, [&] { return a.events.closed(kDialled); }));
  EXPECT_EQ(a.events.why(kDialled).code, Code::timeout);
  ::close(silent.fd);
}

TEST(TlsStrangers, ThousandIdleConnectionsDoNotDisturbAnybody) {
  constexpr size_t kIdle = 1000, kMax = 64;
  for (const Security& security : {Security{}, with_secret(kOurs)}) {
    Party a(security), b(security, {.handshake_timeout = 600s, .strangers_max = kMax});
    const std::string address = b.tcp->listen({}).take();
    std::vector<Wire> idle;
    a.tcp->connect(kDialled, address);
    uint64_t sent = 0;
    const auto arrived = [&] {
      size_t all = 0;
      for (const ConnectionId id : b.events.accepted()) all += b.events.frame_count(id);
      return all;
    };
    for (size_t i = 0; i < kIdle; ++i) {
      idle.emplace_back(address);
      if (i % 10 != 0) continue;
      a.events.put(kDialled, make_frame(++sent, 64));
      a.tcp->flush(kDialled);
      ASSERT_TRUE(poll_until({&a, &b}, [&] { return arrived() == sent; }));
    }
    ASSERT_TRUE(poll_until({&b}, [&] { return b.tcp->connection_count() <= kMax + 1; }));
    EXPECT_TRUE(idle.front().ended());
    EXPECT_FALSE(a.events.closed(kDialled));
    EXPECT_EQ(b.lines.size(), 1u) << b.log();
  }
}

TEST(TlsSessionTest, TheKeyIsRenewedOnTheWay) {
  auto context = std::const_pointer_cast<TlsContext>(make_tls(with_secret(kOurs)).take());
  context->set_records_per_key(3);
  Party a(with_secret(kOurs)), b(with_secret(kOurs));
  a.tcp = std::make_unique<TcpTransport>(a.events, TcpOptions{.tls = context});
  a.events.trusting = a.tcp.get();
  a.tcp->connect(kDialled, b.tcp->listen({}).take());
  for (uint64_t i = 1; i <= 50; ++i) a.events.put(kDialled, make_frame(i, i * 1000));
  ASSERT_TRUE(poll_until({&a, &b}, [&] { return b.events.frame_count(kAccepted) == 50; }));
  EXPECT_FALSE(b.events.closed(kAccepted));
}

// ---- secrets

TEST(SecretTest, FilesOfOthersAreRefused) {
  TestFolder folder;
  const std::string path = folder.path("secret");
  std::ofstream(path) << "0123456789abcdef\n";
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0666}) {
    ::chmod(path.c_str(), mode);
    const auto refused = read_secret_file(path);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(has(refused.failure().message, "chmod 600")) << refused.failure().message;
    EXPECT_FALSE(has(refused.failure().message, "0123456789abcdef"));
  }
  for (const mode_t mode : {0600, 0400}) {
    ::chmod(path.c_str(), mode);
    EXPECT_TRUE(read_secret_file(path).take() == Secret("0123456789abcdef"));
  }
  EXPECT_TRUE(has(read_secret_file(folder.path("none")).failure().message, "No such file"));
  EXPECT_TRUE(has(read_secret_file("/dev/null").failure().message, "not a file"));
  std::ofstream(path) << "short\n";
  EXPECT_FALSE(read_secret_file(path).ok());
}

TEST(SecretTest, PassesThroughADescriptor) {
  const Secret secret = make_secret();
  EXPECT_EQ(secret.bytes().size(), 64u);
  EXPECT_FALSE(secret == make_secret());
  const int fd = open_secret_descriptor(secret).take();
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  ::fcntl(fd, F_SETFD, 0);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(read_secret_descriptor(fd).take() == secret) << "as often as one likes";
  EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << "not for our children";
  EXPECT_LT(::write(fd, "x", 1), 0) << "nobody changes what others read";
  ::close(fd);
  EXPECT_FALSE(read_secret_descriptor(fd).ok());
  const int other = ::open("/dev/zero", O_RDONLY | O_CLOEXEC);
  EXPECT_FALSE(read_secret_descriptor(other).ok());
  ::close(other);
}

TEST(SecurityTest, WhatAModeNeedsMustBeThere) {
  const std::pair<Security, std::string> cases[] = {
      {{.mode = SecurityMode::secret}, "there is none"},
      {with_secret("short"), "too short"},
      {{.mode = SecurityMode::certificates}, "ca_file is missing"},
      {{.ca_file = "/x"}, "cert_file is missing"},
      {{.ca_file = "/none", .cert_file = "/none", .key_file = "/none"}, "/none"},
  };
  for (const auto& [security, part] : cases) {
    const auto made = make_tls(security);
    ASSERT_FALSE(made.ok()) << part;
    EXPECT_TRUE(has(made.failure().message, part)) << made.failure().message;
  }
  EXPECT_EQ(make_tls({}).take(), nullptr);
  EXPECT_FALSE(is_protected({}));
  EXPECT_TRUE(is_protected(with_secret(kOurs, SecurityMode::automatic)));
  for (const SecurityMode mode :
       {SecurityMode::automatic, SecurityMode::plain, SecurityMode::secret, SecurityMode::certificates}) {
    EXPECT_EQ(parse_security_mode(name_of(mode)).take(), mode);
  }
  EXPECT_FALSE(parse_security_mode("none").ok());
}

}  // namespace
}  // namespace holdfast::tls_test
