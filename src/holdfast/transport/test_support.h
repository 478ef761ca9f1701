// For the tests of this layer: a TransportEvents that records everything, and that fails the test when an
// event breaks the contract (overlapping, inside an API call, after on_closed, closed twice).
#pragma once

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/transport/transport.h>

namespace holdfast::test {

inline constexpr Kind kTestKind{96};
// The first connection of a transport: by the side that dials, and by the side that accepts.
inline constexpr ConnectionId kDialled{2};
inline constexpr ConnectionId kAccepted{1};
// Why a test closes a connection.
inline const Failure kEnough = {.code = Code::cancelled, .message = "enough"};

// True while this thread is inside connect, flush or close.
inline thread_local bool inside_api = false;

struct ApiCall {
  ApiCall() { inside_api = true; }
  ~ApiCall() { inside_api = false; }
};

inline Bytes pattern(size_t bytes, uint64_t seed) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<uint8_t>(seed * 131 + i * 7 + (i >> 8));
  return out;
}

inline Attachment attachment_of(Bytes bytes) {
  auto owner = std::make_shared<Bytes>(std::move(bytes));
  return {.owner = owner, .data = owner->data(), .bytes = owner->size()};
}

inline OutFrame make_frame(uint64_t sequence, size_t body_bytes, const std::vector<size_t>& attachment_bytes = {}) {
  Message message{.kind = kTestKind, .body = pattern(body_bytes, sequence)};
  for (const size_t bytes : attachment_bytes) {
    message.attachments.push_back(attachment_of(pattern(bytes, sequence + message.attachments.size() + 1)));
  }
  return {
      .header = {.kind = kTestKind, .sequence = sequence, .acknowledged = sequence + 1, .credit_bytes = sequence + 2},
      .message = std::make_shared<const Message>(std::move(message))};
}

inline bool same(const OutFrame& sent, const InFrame& got) {
  if (got.header.kind != sent.message->kind || got.message.kind != sent.message->kind) return false;
  if (got.header.sequence != sent.header.sequence || got.header.acknowledged != sent.header.acknowledged) return false;
  if (got.header.credit_bytes != sent.header.credit_bytes || got.message.body != sent.message->body) return false;
  if (got.message.attachments.size() != sent.message->attachments.size()) return false;
  for (size_t i = 0; i < got.message.attachments.size(); ++i) {
    const Attachment& a = sent.message->attachments[i];
    const Attachment& b = got.message.attachments[i];
    if (a.bytes != b.bytes || (a.bytes != 0 && std::memcmp(a.data, b.data, a.bytes) != 0)) return false;
  }
  return true;
}

// Of a test whose connections may be silent for long: on a busy machine it can take more than the usual ten seconds.
constexpr Duration kPatientHandshake = std::chrono::hours(1);

class Recorder : public TransportEvents {
 public:
  struct Connection {
    bool accepted = false;
    bool connected = false;
    bool closed = false;
    bool busy = false;  // an event is running
    Failure why;
    std::vector<InFrame> frames;
    std::deque<OutFrame> outbox;
    uint64_t put_count = 0;
    size_t batches = 0;
    size_t progress = 0;
    std::set<std::thread::id> threads;  // those that delivered frames
  };

  // The transport to trust() connections of; null: nobody is trusted.
  std::atomic<Transport*> trusting = nullptr;

  void on_accepted(ConnectionId id) override {
    const Guard guard(*this, id);
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(id.value % 2, 1u);
    connections_[id].accepted = true;
    order_.push_back(id);
    if (Transport* transport = trusting) transport->trust(id);
  }
  void on_connected(ConnectionId id) override {
    const Guard guard(*this, id);
    const std::lock_guard lock(mutex_);
    connections_[id].connected = true;
    if (Transport* transport = trusting) transport->trust(id);
  }
  void on_frames(ConnectionId id, std::vector<InFrame>& frames) override {
    EXPECT_FALSE(frames.empty());
    const Guard guard(*this, id);
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[id];
    EXPECT_TRUE(connection.accepted || connection.connected);
    for (InFrame& frame : frames) connection.frames.push_back(std::move(frame));
    connection.threads.insert(std::this_thread::get_id());
    ++connection.batches;
    on_some_frames(id, connection);
  }
  void on_progress(ConnectionId id) override {
    const Guard guard(*this, id);
    const std::lock_guard lock(mutex_);
    ++connections_[id].progress;
  }
  void on_closed(ConnectionId id, const Failure& why) override {
    const Guard guard(*this, id);
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[id];
    EXPECT_FALSE(why.message.empty());
    connection.closed = true;
    connection.why = why;
  }
  void collect(ConnectionId id, size_t bytes_max, std::vector<OutFrame>& out) override {
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[id];
    EXPECT_FALSE(connection.closed) << "collect after on_closed";
    EXPECT_TRUE(connection.accepted || connection.connected) << "collect before it is open";
    size_t bytes = 0;
    while (!connection.outbox.empty() && (bytes == 0 || bytes < bytes_max)) {
      bytes += kFrameHeaderBytes + connection.outbox.front().message->total_bytes();
      out.push_back(std::move(connection.outbox.front()));
      connection.outbox.pop_front();
    }
  }

  void put(ConnectionId id, OutFrame frame) {
    const std::lock_guard lock(mutex_);
    connections_[id].outbox.push_back(std::move(frame));
  }
  // Puts a frame that is numbered by its place in the queue: 1, 2, 3, ...
  void put_next(ConnectionId id, size_t body_bytes) {
    OutFrame frame = make_frame(0, body_bytes);
    const std::lock_guard lock(mutex_);
    Connection& connection = connections_[id];
    frame.header.sequence = ++connection.put_count;
    connection.outbox.push_back(std::move(frame));
  }
  template <class F>
  auto with(ConnectionId id, F look) {
    const std::lock_guard lock(mutex_);
    return look(connections_[id]);
  }
  bool connected(ConnectionId id) {
    return with(id, [](Connection& c) { return c.connected; });
  }
  bool closed(ConnectionId id) {
    return with(id, [](Connection& c) { return c.closed; });
  }
  Failure why(ConnectionId id) {
    return with(id, [](Connection& c) { return c.why; });
  }
  size_t frame_count(ConnectionId id) {
    return with(id, [](Connection& c) { return c.frames.size(); });
  }
  size_t progress(ConnectionId id) {
    return with(id, [](Connection& c) { return c.progress; });
  }
  std::vector<InFrame> frames(ConnectionId id) {
    return with(id, [](Connection& c) { return c.frames; });
  }
  // Accepted connections, in order.
  std::vector<ConnectionId> accepted() {
    const std::lock_guard lock(mutex_);
    return order_;
  }

 protected:
  // Called with the lock held.
  virtual void on_some_frames(ConnectionId, Connection&) {}

 private:
  // Fails the test if events of one connection overlap, come inside an API call, or after on_closed.
  struct Guard {
    Guard(Recorder& recorder, ConnectionId id) : recorder_(recorder), id_(id) {
      EXPECT_FALSE(inside_api) << "an event inside connect, flush or close";
      const std::lock_guard lock(recorder_.mutex_);
      Connection& connection = recorder_.connections_[id];
      EXPECT_FALSE(connection.busy) << "events overlap";
      EXPECT_FALSE(connection.closed) << "an event after on_closed";
      connection.busy = true;
    }
    ~Guard() {
      const std::lock_guard lock(recorder_.mutex_);
      recorder_.connections_[id_].busy = false;
    }
    Recorder& recorder_;
    const ConnectionId id_;
  };

  std::mutex mutex_;
  std::map<ConnectionId, Connection> connections_;
  std::vector<ConnectionId> order_;
};

}  // namespace holdfast::test
