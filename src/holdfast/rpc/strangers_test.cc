// A listening worker, over real sockets, and what strangers send it: random bytes, and the bytes of sessions that were
// right until somebody changed them. Meanwhile another worker calls it, and every one of those calls must complete; and
// at the end nothing may be left of the strangers: no memory, no file descriptors, no connections, no links.
//
// HOLDFAST_STRANGERS=1000000 sends a million of each.
#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <deque>
#include <filesystem>
#include <optional>

#include <holdfast/base/random.h>
#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/link/messages.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/transport/frame_reader.h>

namespace holdfast {
namespace {

using namespace test;

std::string echo_to_strangers(const std::string& text) { return text; }

// Strangers who say that they are workers of the job take these ranks. NOT covered here: sessions that name somebody
// new. Whoever may say HELLO is believed as to who he is, so each new name leaves a link for good, and a call under
// that name a reply that nobody acknowledges, for which a graceful shutdown then waits in vain. Such sessions are put
// right first.
constexpr uint32_t kFirstRank = 70;
constexpr uint32_t kRanks = 4;

uint64_t strangers_wanted() {
  if (const char* text = std::getenv("HOLDFAST_STRANGERS")) return std::strtoull(text, nullptr, 10);
  return kSanitizer ? 2'000 : 10'000;
}

sockaddr_in parse_loopback(const std::string& address) {
  sockaddr_in parsed = {};
  parsed.sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  parsed.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  EXPECT_EQ(inet_pton(AF_INET, address.substr(0, colon).c_str(), &parsed.sin_addr), 1) << address;
  return parsed;
}

// One connection of a stranger. Blocking, with a time limit.
class StrangerSocket {
 public:
  // `source` spreads the connections over addresses of loopback: one alone would run out of ports.
  StrangerSocket(const sockaddr_in& to, uint64_t source) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const timeval limit{.tv_sec = 40, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    sockaddr_in from = {};
    from.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + static_cast<uint32_t>(source % 8));
    ok_ = ::bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0 &&
          ::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0;
  }
  ~StrangerSocket() { ::close(fd_); }
  StrangerSocket(const StrangerSocket&) = delete;
  StrangerSocket& operator=(const StrangerSocket&) = delete;

  bool ok() const { return ok_; }
  void send(ByteView bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // it was closed already: nobody says that all must be read
      bytes = bytes.subspan(static_cast<size_t>(sent));
    }
  }
  void send_end() { ::shutdown(fd_, SHUT_WR); }
  // The next frames that come; none: the end. False: nothing came for too long.
  bool receive(std::vector<InFrame>& frames) {
    uint8_t buffer[16384];
    while (frames.empty()) {
      const ssize_t count = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (count < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
      if (count == 0) return true;
      ByteView bytes(buffer, static_cast<size_t>(count));
      if (!reader_.feed(bytes, true, frames).ok()) return false;
    }
    return true;
  }
  // Reads until the other side closes. False: it does not.
  bool drain() {
    uint8_t buffer[16384];
    for (;;) {
      const ssize_t count = ::recv(fd_, buffer, sizeof(buffer), 0);
      if (count > 0) continue;
      return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
  }

 private:
  const int fd_;
  bool ok_ = false;
  FrameReader reader_{"the worker", 1 << 20};
};

// A worker of the job that a stranger claims to be, as far as it has come.
struct Claimed {
  WorkerInfo info;
  uint64_t epoch = 0;
  uint64_t last_call = 0;
};

class StrangersTest : public testing::Test {
 protected:
  StrangersTest() : job_(2), victim_(parse_loopback(job_[0].info().address)) {
    for (uint32_t i = 0; i < kRanks; ++i) {
      claimed_.push_back({.info = {.name = "stranger" + std::to_string(i),
                                   .rank = {kFirstRank + i},
                                   .incarnation = {1000},
                                   .address = "127.0.0.1:1"}});  // nobody listens there
    }
  }

  // ---- the bytes of a session

  static Bytes frame(const Message& message, const FrameHeader& header = {}) {
    FrameHeader with_kind = header;
    with_kind.kind = message.kind;
    return encode_frame({with_kind, std::make_shared<const Message>(message)});
  }
  Hello hello(Claimed& claimed) {
    const WorkerInfo& to = job_[0].info();
    return {.job = job_[0].options().job,
            .from = claimed.info,
            .to_rank = to.rank,
            .to_incarnation = to.incarnation,
            .epoch = ++claimed.epoch};
  }
  static Message call(uint64_t number) {
    const Function& function = Registered<echo_to_strangers>::entry;
    Message message{.kind = kCall};
    wire::Writer writer(message);
    write_call_header(writer, function.id, function.signature_id);
    writer.string("a text");
    stamp_call(message, {number}, 10s);
    return message;
  }
  // What comes behind HELLO, from message `next` on.
  std::vector<Bytes> rest_of_session(Claimed& claimed, uint64_t next) {
    std::vector<Bytes> frames;
    const auto add = [&](const Message& message) { frames.push_back(frame(message, {.sequence = next++})); };
    add(call(++claimed.last_call));
    add(*cancel_message({claimed.last_call}));
    add(call(++claimed.last_call));
    frames.push_back(frame({.kind = kPing}));
    add(*failed_reply({77}, {.code = Code::remote_error, .message = "no such call", .worker = "x", .type = "T"}));
    frames.push_back(frame({.kind = kAck}));
    return frames;
  }

  // ---- what goes wrong with them

  void spoil(Bytes& bytes) {
    for (uint64_t n = random_.between(1, 4); n > 0 && !bytes.empty(); --n) {
      const size_t at = random_.below(bytes.size());
      switch (random_.below(5)) {
        case 0: bytes[at] = static_cast<uint8_t>(random_.next()); break;
        case 1: bytes[at] ^= static_cast<uint8_t>(1U << random_.below(8)); break;
        case 2: bytes[at] = random_.chance(0.5) ? 0 : 255; break;
        case 3: bytes.resize(at); break;
        default: bytes.append(Bytes(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.end())); break;
      }
    }
  }
  // Whether a stream, cut into frames as the worker does it, says HELLO for somebody else. A HELLO that is cut off goes
  // on with the bytes of what follows; and one that was refused may be followed by another.
  static bool names_another(ByteView stream, const WorkerId& claimed) {
    while (stream.size() >= kFrameHeaderBytes) {
      const FrameLayout layout = decode_frame_layout(stream.data());
      stream = stream.subspan(kFrameHeaderBytes);
      if (layout.attachment_count != 0 || stream.size() < layout.body_bytes) return false;
      wire::Reader reader(stream.first(layout.body_bytes));
      stream = stream.subspan(layout.body_bytes);
      if (layout.header.kind != kHello) continue;
      Hello said;
      wire::decode(reader, said);
      reader.finish();
      if (reader.ok() && said.from.id() != claimed) return true;
    }
    return false;
  }
  Bytes random_string() {
    Bytes bytes;
    if (random_.chance(0.5)) bytes.append(kPreface);
    // Often a header that could be one, so that what follows is read.
    if (random_.chance(0.3)) {
      Message message{.kind = {static_cast<uint16_t>(random_.below(80))}, .body = Bytes(random_.below(64), 0)};
      bytes.append(frame(message, {.sequence = random_.below(3)}));
    }
    for (uint64_t n = random_.below(random_.chance(0.05) ? 20'000 : 200); n > 0; --n) {
      bytes.push_back(static_cast<uint8_t>(random_.next()));
    }
    return bytes;
  }

  // ---- sending them

  // Sends all of it. The connection stays open until as many others have come: that is how many there are at a time.
  void send(const Bytes& bytes) {
    auto socket = std::make_unique<StrangerSocket>(victim_, ++connections_);
    ASSERT_TRUE(socket->ok()) << "cannot connect: " << strerror(errno);
    socket->send(bytes);
    socket->send_end();
    open_.push_back(std::move(socket));
    if (open_.size() >= 32) drain_oldest();
  }
  void drain_oldest() {
    ASSERT_TRUE(open_.front()->drain()) << "the worker keeps the connection of a stranger who has gone";
    open_.pop_front();
  }
  void drain_all() {
    while (!open_.empty()) ASSERT_NO_FATAL_FAILURE(drain_oldest());
  }
  void send_spoiled_session() {
    Claimed& claimed = claimed_[random_.below(kRanks)];
    if (random_.chance(0.1)) return send_numbered_session(claimed);
    const Bytes right = frame(wire::encode_message(kHello, hello(claimed)));
    Bytes first = right;
    if (random_.chance(0.3)) spoil(first);
    Bytes rest;
    for (Bytes& each : rest_of_session(claimed, 1)) {
      if (random_.chance(0.5)) spoil(each);
      rest.append(each);
    }
    Bytes session = first;
    session.append(rest);
    const bool invents = names_another(session, claimed.info.id());
    if (invents) ++invented_;
    Bytes bytes(kPreface.begin(), kPreface.end());
    bytes.append(invents ? right : first);
    bytes.append(rest);
    send(bytes);
  }
  // A session up to WELCOME that is in order: then what follows has the right numbers, and reaches the calls.
  void send_numbered_session(Claimed& claimed) {
    StrangerSocket socket(victim_, ++connections_);
    ASSERT_TRUE(socket.ok());
    const std::optional<uint64_t> received = greet(socket, claimed);
    if (!received) return;  // another connection of the same name was in the way
    for (Bytes& each : rest_of_session(claimed, *received + 1)) {
      if (random_.chance(0.3)) spoil(each);
      socket.send(each);
    }
    socket.send_end();
    ASSERT_TRUE(socket.drain());
  }
  // What the worker has received over that link so far; nothing: refused.
  std::optional<uint64_t> greet(StrangerSocket& socket, Claimed& claimed) {
    Bytes bytes(kPreface.begin(), kPreface.end());
    bytes.append(frame(wire::encode_message(kHello, hello(claimed))));
    socket.send(bytes);
    std::vector<InFrame> frames;
    EXPECT_TRUE(socket.receive(frames));
    if (frames.empty() || frames[0].header.kind != kWelcome) return std::nullopt;
    replies_ = std::move(frames);
    return replies_[0].header.acknowledged;
  }
  // As an honest worker: makes a call, takes all replies up to that of the call, and acknowledges them.
  bool settle(Claimed& claimed) {
    claimed.epoch += 1'000'000;  // ahead of whatever a spoiled HELLO has said
    StrangerSocket socket(victim_, ++connections_);
    const std::optional<uint64_t> received = greet(socket, claimed);
    if (!received) return false;
    const uint64_t wanted = ++claimed.last_call;
    socket.send(frame(call(wanted), {.sequence = *received + 1}));
    uint64_t last = 0;
    bool answered = false;
    for (std::vector<InFrame> frames = std::move(replies_); !answered; frames.clear()) {
      if (frames.empty() && (!socket.receive(frames) || frames.empty())) return false;
      for (const InFrame& each : frames) {
        last = std::max(last, each.header.sequence);
        if (each.header.kind != kReply) continue;
        wire::Reader reader(each.message);
        answered = answered || read_reply_header(reader).call.value == wanted;
      }
    }
    socket.send(frame({.kind = kPing}, {.acknowledged = last}));
    std::vector<InFrame> frames;
    socket.receive(frames);  // the answer to PING
    socket.send_end();
    return socket.drain();
  }

  // ---- what is held

  static size_t file_descriptors() {
    const std::filesystem::directory_iterator list("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(list), end(list)));
  }
  static size_t heap_bytes() { return mallinfo2().uordblks; }

  TestJob job_;
  const sockaddr_in victim_;
  Random random_{7};
  std::vector<Claimed> claimed_;
  uint64_t connections_ = 0;
  uint64_t invented_ = 0;  // sessions that would have named somebody new
  std::deque<std::unique_ptr<StrangerSocket>> open_;
  std::vector<InFrame> replies_;
};

TEST_F(StrangersTest, HarmNobodyAndLeaveNothing) {
  std::atomic<bool> over = false;
  std::atomic<uint64_t> good_calls = 0;
  std::thread good_client([&] {
    Peer peer = job_[1].peer(0);
    while (!over) {
      const std::string text = "call " + std::to_string(good_calls);
      EXPECT_EQ(peer.call<echo_to_strangers>(text), text);
      ++good_calls;
      std::this_thread::sleep_for(100us);  // leaves the strangers their share of the machine
    }
  });
  const auto settle_all = [&] {
    drain_all();
    for (Claimed& claimed : claimed_) EXPECT_TRUE(eventually([&] { return settle(claimed); })) << claimed.info.name;
  };
  const uint64_t wanted = strangers_wanted();
  size_t heap_before = 0, descriptors_before = 0;
  WorkerStats before;
  uint64_t good_calls_before = 0;
  for (uint64_t i = 0; i < wanted && !HasFatalFailure(); ++i) {
    // The first ones are for what is made once and kept: what is held then must not grow.
    if (i == std::min<uint64_t>(1000, wanted / 2)) {
      settle_all();
      heap_before = heap_bytes();
      descriptors_before = file_descriptors();
      before = job_[0].stats();
      good_calls_before = good_calls;
    }
    send(random_string());
    send_spoiled_session();
    if (i % 1024 == 1023) settle_all();  // what was not acknowledged must be kept
  }
  settle_all();
  EXPECT_GT(good_calls, good_calls_before) << "the good client was kept waiting";
  over = true;
  good_client.join();

  EXPECT_TRUE(eventually([&] { return file_descriptors() <= descriptors_before; })) << file_descriptors();
  EXPECT_TRUE(eventually([&] { return job_[0].stats().connections <= before.connections; }));
  EXPECT_EQ(job_[0].stats().links, before.links);
  EXPECT_TRUE(eventually([&] { return job_[0].stats().calls_served == 0; }));
  if (!kSanitizer) {
    constexpr size_t kSlackBytes = 1 << 20;
    EXPECT_TRUE(eventually([&] { return heap_bytes() <= heap_before + kSlackBytes; }))
        << heap_before << " bytes before, " << heap_bytes() << " after";
  }
  RecordProperty("invented", static_cast<int>(invented_));
  RecordProperty("good_calls", static_cast<int>(good_calls));
  job_.shutdown();
}

}  // namespace
}  // namespace holdfast
