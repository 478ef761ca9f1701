// TcpConnection: one socket of a TcpTransport, with its read side and its write side. Internal to the
// transport; shared_ptr keeps the descriptor open for as long as any thread still uses it, so its number is
// never reused under somebody's hands.
//
// Locks. The read side has a mutex, held for one read and the events that follow from it; the write side has
// a WriteTurn. Neither is ever taken while the other is held. Inside either the driver's own lock may be
// taken (by an event), inside that the small locks that are never held across a call-out (interest, failure).
//
// With TLS, the handshake stands between the socket's being connected and on_connected or on_accepted: nobody hears of
// a stranger who fails it. The thread in poll() alone leads it, as connected_ is still false. After it the session is
// used by both sides, and has a lock of its own, inside those of the sides.
//
// Between workers of one host the bytes go through SharedRings (docs/shared_memory.md), and the socket, a Unix socket
// then, only wakes and ends. The offer of the memory comes first, as a part of the handshake. Who reads such a
// connection, the poller or a helper, looks at the ring while it is awake, and says so in the ring before it sleeps.
//
// A connection ends in one place, end_locked(): under the read mutex, after the write turn has been closed.
// So events do not overlap, on_closed comes once, and nothing (collect included) comes after it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <holdfast/base/mutex.h>
#include <holdfast/transport/borrower.h>
#include <holdfast/transport/frame_reader.h>
#include <holdfast/transport/frame_writer.h>
#include <holdfast/transport/lender.h>
#include <holdfast/transport/shared_rings.h>
#include <holdfast/transport/spin_policy.h>
#include <holdfast/transport/tls.h>
#include <holdfast/transport/transport.h>
#include <holdfast/transport/write_turn.h>

namespace holdfast {

class TcpConnection;

// What a connection needs of its transport.
class TcpHost {
 public:
  virtual TransportEvents& events() = 0;
  virtual int epoll_fd() const = 0;
  virtual const std::shared_ptr<ReceivePool>& receive_pool() const = 0;
  virtual CopyCrew& copy_crew() = 0;
  // Some connection has areas: have a thread in poll() call trim_areas() sooner or later. Any thread.
  virtual void trim_later() = 0;
  // Has a thread in poll() call finish() soon. Any thread, under any lock.
  virtual void finish_soon(std::shared_ptr<TcpConnection> connection) = 0;
  // There is something in the rings that a thread in poll() must read. Any thread, under any lock.
  virtual void read_soon(std::shared_ptr<TcpConnection> connection) = 0;
  // The connection has ended: forget it.
  virtual void forget(ConnectionId connection) = 0;
  // From the thread in poll(): a handshake that we dialled begins, so its time runs.
  virtual void on_handshake(const std::shared_ptr<TcpConnection>& connection) = 0;
  // The connection was closed before its first frame, and not because it came to its end.
  virtual void on_refused(const std::string& peer, const std::string& cause) = 0;

 protected:
  ~TcpHost() = default;
};

// What a thread that reads brings along: reused between connections.
struct ReadTools {
  ReadTools();
  Bytes scratch;
  Bytes plain;  // one record, decrypted
  std::vector<InFrame> frames;
};

class TcpConnection : public std::enable_shared_from_this<TcpConnection> {
 public:
  enum class Read { nothing, some, delivered, closed };

  // What a connection begins with.
  struct Start {
    int fd = -1;         // the connection's from now on; -1 for one that failed before it had one
    std::string peer;    // for messages
    bool local = false;  // a Unix socket
    std::unique_ptr<SharedRings> rings = nullptr;  // where it was dialled; who accepts gets them by the socket
    std::unique_ptr<TlsSession> tls = nullptr;     // null: plain
  };
  TcpConnection(TcpHost& host, ConnectionId id, uint64_t frame_bytes_max, Start start);
  ~TcpConnection();
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // Any thread.
  void flush();
  void fail(Failure why);  // on_closed follows from poll() or a HelpSession
  // The same, for a stranger: `cause` ("has another secret") is told to whoever reads the log.
  void refuse(Code code, const std::string& cause);
  void trust() { trusted_ = true; }
  bool connected() const { return connected_; }
  // A whole frame has come. (Dialled: the handshake, if there is one, is complete.)
  bool proved() const { return proved_; }
  int fd() const { return fd_; }
  ConnectionId id() const { return id_; }
  const std::string& peer() const { return peer_; }
  // Its bytes go through shared memory. Once connected().
  bool uses_rings() const { return rings_ != nullptr; }

  // The thread in poll().
  void watch_connecting();                // dialled: registers with epoll
  void start_accepted();                  // accepted: on_accepted, registers with epoll, sends the preface
  void on_unconnected(ReadTools& tools);  // not connected() yet, and something has happened
  void on_writable();
  // `rang`: there is something in the socket beside the rings. Answers how the last of its reads ended, or nothing if a
  // helper reads.
  Read on_readable(ReadTools& tools, bool rang, bool hung_up);
  void finish();
  // The same, of a connection with rings.
  bool has_input() const { return !helped_ && rings_->readable(); }
  // Gives up areas that nobody needs. True if there are others.
  bool trim_areas(Time now);
  // False: it is already, or a helper reads.
  bool begin_to_be_looked_at();
  // False: there is something to read. True: it is not looked at any more, but rings.
  bool fall_asleep();

  // The thread of a HelpSession. begin_help is false if the connection cannot be helped now.
  bool begin_help();
  void end_help();
  // It may be worth to read. Always true without rings: only the socket knows.
  bool has_news() const { return !rings_ || closing_ || rings_->readable() || has_room(); }
  // False: do not sleep, there is something to read.
  bool helper_may_sleep();
  // One read, without waiting. `woken`: after sleep.
  Read read_as_helper(ReadTools& tools, bool woken);
  SpinPolicy& helper_spin() { return helper_spin_; }

 private:
  bool dialled() const { return id_.value % 2 == 0; }
  void finish_connecting();
  void shake_hands(ReadTools& tools);
  // False: the handshake has failed, or needs more bytes than there are.
  bool shake_hands_locked(ReadTools& tools);
  bool take_offer_locked();
  Result<bool> send_handshake_locked();
  void announce_locked();
  void note_refusal(Code code, const std::string& cause);

  // `rang`: there is something in the socket beside the rings.
  Read read_locked(ReadTools& tools, bool rang);
  // The poller is not to be woken by what the helper reads.
  void leave_reading_locked();
  // False: there is nothing to read now.
  Result<bool> receive_plain_locked(ReadTools& tools);
  ssize_t receive_from_rings_locked(const iovec* pieces, size_t count);
  Result<bool> receive_encrypted_locked(ReadTools& tools);
  Status decrypt_locked(ByteView bytes, ReadTools& tools);
  Failure broken(const std::string& what) const;
  Status parse_locked(ByteView bytes, ReadTools& tools);
  void deliver_locked(ReadTools& tools);
  void end_locked();
  void write_all();
  bool has_output() const;
  ssize_t send_plain();
  ssize_t send_encrypted();
  ssize_t send_by_rings(const iovec* pieces, size_t count);
  // Doorbells and areas that came over the socket.
  Status listen_locked();
  void use_rings(std::unique_ptr<SharedRings> rings);
  bool has_room() const { return waits_for_room_.load(std::memory_order_relaxed) && rings_->has_room(); }
  // False: there is room now.
  bool wait_for_room();
  void write_if_room();
  void note(Failure why);
  Failure failure() const;

  void add_to_epoll(bool want_read, bool want_write);
  void remove_from_epoll();
  void want(std::optional<bool> read, std::optional<bool> write);

  // Constant after construction.
  TcpHost& host_;
  const ConnectionId id_;
  const int fd_;
  const std::string peer_;
  const bool local_;

  // All three null for a socket; where a local one was accepted, until the offer has come. Constant once connected_.
  std::unique_ptr<SharedRings> rings_;
  std::unique_ptr<Lender> lender_;
  std::unique_ptr<Borrower> borrower_;

  // Null: plain. Goes at the end of the handshake, if both sides go on in plain; constant once connected_.
  std::unique_ptr<TlsSession> tls_;

  std::atomic<bool> trusted_ = false;
  std::atomic<bool> proved_ = false;
  std::atomic<bool> connected_ = false;
  std::atomic<bool> closing_ = false;  // close() was called here: nothing more is delivered or collected

  // The read side.
  Mutex read_mutex_;
  FrameReader reader_;
  bool shaking_ = false;              // the handshake is under way
  bool announced_ = false;            // the driver knows of it: on_closed is due
  std::atomic<bool> helped_ = false;  // a HelpSession reads; the poller does not. Changes under the lock
  bool unwatched_ = false;            // epoll was told to leave reading to the helper
  bool looked_at_ = false;            // the poller looks at the rings
  // Rings, dialled: in TLS 1.3 the acceptor may refuse us after our part of the handshake is complete, so what comes
  // first may not be a doorbell. Null after that.
  std::unique_ptr<TlsSession> refusal_of_peer_;
  std::string socket_ended_;  // rings: not empty, the socket is at its end, and this is why
  bool read_ended_ = false;   // no more reads: on_closed was delivered, or waits for the last writer
  bool closed_ = false;       // on_closed was delivered
  bool delivered_ = false;    // during one read: some frame was delivered
  bool drained_ = false;      // the last read got less than it asked for: there is no more for now

  // Of whoever helps.
  SpinPolicy helper_spin_;

  // The write side: guarded by turn_.
  WriteTurn turn_;
  FrameWriter writer_;
  Bytes encrypted_;  // what is being written, from encrypted_sent_bytes_ on; the handshake uses it before any writer
  size_t encrypted_sent_bytes_ = 0;
  std::vector<OutFrame> collected_;
  bool collected_all_ = false;  // the last collect() gave less than it was asked for
  bool blocked_ = false;        // the socket was full; writable_ says when it no longer is
  bool broken_ = false;         // a write failed: the read side will see the end
  std::atomic<bool> writable_ = false;
  std::atomic<bool> waits_for_room_ = false;  // in the ring
  std::atomic<uint64_t> written_bytes_ = 0;

  // What epoll watches for.
  Mutex interest_mutex_;
  bool watched_ = false;
  bool want_read_ = false;
  bool want_write_ = false;

  // The first failure stays.
  mutable std::mutex failure_mutex_;
  std::optional<Failure> failure_;
  std::string refusal_;  // not empty: why it was refused, to be told
};

}  // namespace holdfast
