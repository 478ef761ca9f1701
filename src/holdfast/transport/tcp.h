// TcpTransport: frames over TCP sockets and epoll. Linux only.
//
// Owned by a driver, which also owns the threads: one thread at a time is in poll(), and other threads may
// take single connections over with a HelpSession, so that a caller who waits for a reply reads it itself
// and no other thread is woken. (docs/decisions/0003-epoll-not-asio.md says why it is built this way.)
//
// Threads: connect, flush, close, trust, interrupt, try_help and peer_address may be called from any thread.
// Lock order, outermost first: poll() itself; one connection's read lock or write turn (never both); the
// driver's own lock, taken inside events; this class's small locks. See transport.h for what follows from it.
//
// When a peer is lost the kernel tells us at once (reset), or after TcpOptions::dead_after_ms without an
// acknowledgement; either way its connection ends with on_closed(unavailable).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/base/mutex.h>
#include <holdfast/transport/address.h>
#include <holdfast/transport/doorkeeper.h>
#include <holdfast/transport/spin_policy.h>
#include <holdfast/transport/tcp_connection.h>
#include <holdfast/transport/transport.h>

struct epoll_event;

namespace holdfast {

struct TcpOptions {
  uint64_t frame_bytes_max = uint64_t{1} << 30;  // body and attachments of one frame, from a trusted peer
  size_t connections_max = 4096;                 // more are closed as they come
  int send_buffer_bytes = 0;                     // 0: as the system sees fit
  int receive_buffer_bytes = 0;
  // A peer that acknowledges nothing for so long (or keeps its window shut) is given up.
  int dead_after_ms = 10'000;
  // Null: plain. Otherwise both sides prove themselves before on_connected and on_accepted.
  std::shared_ptr<const TlsContext> tls = nullptr;
  // An accepted connection must bring its first frame within this time, handshake and all; where more than so many
  // have not yet, the oldest of them is closed.
  Duration handshake_timeout = std::chrono::seconds(10);
  size_t strangers_max = 256;
  // Whoever waits for bytes may ask for them for a while before it sleeps: see spin_policy.h.
  bool spin = true;
  // Peers of the same user on the same host are spoken with through shared memory: see docs/shared_memory.md.
  bool shared_memory = true;
  // Gets a line for each refusal that is worth one; unset: stderr. Called by the thread in poll().
  Log log = nullptr;
};

class TcpTransport;

// A caller's thread reads one connection in place of the poller, from try_help() until its HelpSessionPtr goes.
// poll_once from one thread; interrupt from any, meanwhile. Must end before the transport, which owns it and uses it
// again: it has a descriptor to be woken by, and buffers.
class HelpSession {
 public:
  enum class Outcome {
    delivered,    // on_frames was called, once or more
    closed,       // the connection has ended; on_closed was delivered or will be by the poller
    interrupted,  // interrupt() was called; may also come without cause
    timeout,
  };

  struct End {
    void operator()(HelpSession* session) const { session->end(); }
  };

  ~HelpSession();
  HelpSession(const HelpSession&) = delete;
  HelpSession& operator=(const HelpSession&) = delete;

  // Waits for one batch of frames and delivers it.
  Outcome poll_once(Time until);
  // Makes the current poll_once, or else the next one, return.
  void interrupt();

 private:
  friend class TcpTransport;
  HelpSession(TcpTransport& transport, int wake_fd) : transport_(transport), wake_fd_(wake_fd) {}
  void end();
  bool take_interrupt();
  enum class Woken { readable, interrupted, timeout };
  Woken sleep(Time until);

  TcpTransport& transport_;
  const int wake_fd_;
  ReadTools tools_;
  std::shared_ptr<TcpConnection> connection_;  // null between two uses
  std::atomic<bool> interrupted_ = false;
};
using HelpSessionPtr = std::unique_ptr<HelpSession, HelpSession::End>;

class TcpTransport final : public Transport, private TcpHost {
 public:
  // Throws Unavailable if the system has no descriptors left. `events` must outlive the transport.
  explicit TcpTransport(TransportEvents& events, TcpOptions options = {});
  // No thread may be in poll() and no HelpSession alive. Closes everything; no event comes of it.
  ~TcpTransport() override;

  // Once at most. Answers what peers dial: "host:port".
  Result<std::string> listen(const ListenOptions& options);

  // A host name in `address` is looked up on the calling thread, which may take a while; numbers do not.
  void connect(ConnectionId connection, const std::string& address) override;
  void flush(ConnectionId connection) override;
  void close(ConnectionId connection, Failure why) override;
  void trust(ConnectionId connection) override;
  bool reliable() const override { return true; }

  // Waits until something is ready, `until` has come, or interrupt() is called; handles what is ready and
  // returns. One thread at a time; another one waits at the door.
  void poll(Time until);
  // Makes the current poll(), or else the next one, return.
  void interrupt();
  // The same, this much later (to the microsecond). While one is set, further calls do nothing.
  void interrupt_after(Duration wait);

  // Null if the connection is not open or somebody else is reading it.
  HelpSessionPtr try_help(ConnectionId connection);

  // "127.0.0.1:4711" for messages; "" when the connection is gone.
  std::string peer_address(ConnectionId connection) const;
  size_t connection_count() const;
  // How many of them use shared memory.
  size_t shared_memory_count() const;

 private:
  friend class HelpSession;

  TransportEvents& events() override { return events_; }
  int epoll_fd() const override { return epoll_fd_; }
  const std::shared_ptr<ReceivePool>& receive_pool() const override { return receive_pool_; }
  CopyCrew& copy_crew() override { return copy_crew_; }
  void trim_later() override { has_areas_.store(true, std::memory_order_relaxed); }
  void finish_soon(std::shared_ptr<TcpConnection> connection) override;
  void read_soon(std::shared_ptr<TcpConnection> connection) override;
  void forget(ConnectionId connection) override;
  void on_handshake(const std::shared_ptr<TcpConnection>& connection) override;
  void on_refused(const std::string& peer, const std::string& cause) override;

  std::shared_ptr<TcpConnection> find(ConnectionId connection) const;
  void add(const std::shared_ptr<TcpConnection>& connection);
  void configure(int fd) const;
  struct Dialled {
    int fd = -1;
    bool on_loopback = false;
    std::unique_ptr<SharedRings> rings = nullptr;
  };
  Result<Dialled> dial(const std::string& address) const;
  // Null if there is nobody of our own at that address.
  std::optional<Dialled> dial_with_rings(const Endpoint& endpoint) const;
  // Null for a plain connection, or with `failed` set if there is no memory.
  std::unique_ptr<TlsSession> make_session(TlsSession::Side side, bool on_loopback, bool& failed) const;
  // How many of `ready` are filled.
  int wait(epoll_event* ready, Time until);
  int wait_ms(Time until) const;
  void handle(ConnectionId connection, uint32_t ready);
  // What whoever interrupted has left: connections to finish(), and to look at.
  void take_left();
  void end_late();
  // Frees memory that lies idle, in receive_pool_ and in areas.
  void trim();
  // The rings of connections that were active a moment ago are looked at until poll() sleeps.
  void look_at(const std::shared_ptr<TcpConnection>& connection);
  void read_rings();
  // Reads the socket that the last bytes came from: the next ones come from there more often than not, and epoll need
  // not be asked.
  TcpConnection::Read read_last_again();
  bool rings_have_input() const;
  bool let_rings_sleep();
  void accept_all(int listener);
  void start_accepted(TcpConnection::Start start);
  void listen_with_rings(const Endpoint& bound);
  void pause_accepting(int error);
  void watch_listener(bool on);
  // Null if there is no descriptor left.
  std::unique_ptr<HelpSession> make_session();
  void take_back(std::unique_ptr<HelpSession> session);

  // Constant after construction.
  TransportEvents& events_;
  const TcpOptions options_;
  const bool spins_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  int timer_fd_ = -1;
  const std::shared_ptr<ReceivePool> receive_pool_ = std::make_shared<ReceivePool>();

  CopyCrew copy_crew_;
  std::atomic<int> listener_fd_ = -1;
  std::atomic<int> local_listener_fd_ = -1;
  std::atomic<bool> interrupted_ = false;
  std::atomic<bool> timer_set_ = false;
  std::atomic<bool> has_areas_ = false;  // some connection may have

  // Held by the thread in poll().
  Mutex poll_mutex_;
  ReadTools tools_;
  SpinPolicy spin_policy_;
  std::vector<std::shared_ptr<TcpConnection>> looked_at_;
  std::weak_ptr<TcpConnection> read_last_;
  uint32_t looks_ = 0;
  uint64_t next_accepted_ = 1;
  Time accept_again_at_ = kNever;  // not kNever: accepting pauses, for want of descriptors
  bool warned_ = false;
  Doorkeeper doorkeeper_;
  Time trim_at_ = Time::min();  // when to look at idle memory again

  // Connections come with connect() and accept, and go just before their on_closed.
  mutable Mutex connections_mutex_;
  std::unordered_map<ConnectionId, std::shared_ptr<TcpConnection>> connections_;
  std::vector<std::unique_ptr<HelpSession>> idle_sessions_;  // here for try_help(), which needs both

  // Connections for poll() to finish(), and to read the rings of. Who adds one interrupts: poll() looks only then.
  std::mutex left_mutex_;
  std::vector<std::shared_ptr<TcpConnection>> ended_;
  std::vector<std::shared_ptr<TcpConnection>> read_soon_;
};

}  // namespace holdfast
