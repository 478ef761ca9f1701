#include <holdfast/transport/tcp_connection.h>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/address.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::kCollectBytes;
using transport_detail::kProgressBytes;

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kPiecesMax = 64;
// How many full reads one connection gets before the others have their turn.
constexpr int kReadsInARowMax = 16;
constexpr uint8_t kTlsHandshakeRecord = 0x16;  // with this byte a client of TLS begins

}  // namespace

ReadTools::ReadTools() : scratch(kReadBytes), plain(kTlsDecryptedBytesMax) {}

TcpConnection::TcpConnection(TcpHost& host, ConnectionId id, uint64_t frame_bytes_max, Start start)
    : host_(host),
      id_(id),
      fd_(start.fd),
      peer_(std::move(start.peer)),
      local_(start.local),
      tls_(std::move(start.tls)),
      reader_(peer_, frame_bytes_max, host.receive_pool()),
      announced_(dialled()) {
  if (start.rings) use_rings(std::move(start.rings));
}

TcpConnection::~TcpConnection() {
  if (fd_ >= 0) ::close(fd_);
}

void TcpConnection::note(Failure why) {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_) failure_ = std::move(why);
}

Failure TcpConnection::failure() const {
  const std::lock_guard lock(failure_mutex_);
  HOLDFAST_CHECK(failure_.has_value());
  return *failure_;
}

void TcpConnection::fail(Failure why) {
  note(std::move(why));
  closing_ = true;
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);  // wakes a helper, and ends the peer's reading
  host_.finish_soon(shared_from_this());
}

void TcpConnection::note_refusal(Code code, const std::string& cause) {
  note({.code = code, .message = peer_ + " " + cause});
  const std::lock_guard lock(failure_mutex_);
  if (refusal_.empty()) refusal_ = cause;
}

void TcpConnection::refuse(Code code, const std::string& cause) {
  note_refusal(code, cause);
  fail({.code = code, .message = cause});
}

// ---- starting and ending ----

void TcpConnection::watch_connecting() { add_to_epoll(false, true); }

void TcpConnection::start_accepted() {
  std::unique_lock lock(read_mutex_);
  if (tls_ || local_) {
    shaking_ = true;
    add_to_epoll(true, false);
    return;
  }
  announced_ = true;
  host_.events().on_accepted(id_);
  add_to_epoll(true, false);
  // Only now: nothing may be collected before on_accepted, and from here on any thread may ask for EPOLLOUT.
  // What was flushed too early is written below.
  connected_ = true;
  lock.unlock();
  flush();
}

void TcpConnection::on_unconnected(ReadTools& tools) {
  bool shaking = false;
  {
    const std::lock_guard lock(read_mutex_);
    shaking = shaking_;
  }
  if (!shaking) {
    finish_connecting();
    const std::lock_guard lock(read_mutex_);
    shaking = shaking_;
  }
  if (shaking) shake_hands(tools);
}

void TcpConnection::finish_connecting() {
  int error = 0;
  socklen_t length = sizeof(error);
  if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  std::unique_lock lock(read_mutex_);
  if (read_ended_) return;
  if (closing_ || error != 0) {
    note({.code = Code::unavailable, .message = fmt::format("cannot connect to {}: {}", peer_, errno_text(error))});
    end_locked();
    return;
  }
  if (tls_) {
    shaking_ = true;
    host_.on_handshake(shared_from_this());
    want(true, false);
    return;
  }
  announce_locked();
  lock.unlock();
  flush();
}

void TcpConnection::announce_locked() {
  shaking_ = false;
  announced_ = true;
  if (dialled()) {
    proved_ = true;
    host_.events().on_connected(id_);
  } else {
    host_.events().on_accepted(id_);
  }
  want(true, false);
  connected_ = true;  // last, as above
}

void TcpConnection::finish() {
  const std::lock_guard lock(read_mutex_);
  end_locked();
}

void TcpConnection::end_locked() {
  if (!read_ended_) {
    read_ended_ = true;
    remove_from_epoll();
    if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);  // so that a writer comes to its end
  }
  // A thread that is writing just now brings us back here when it has finished.
  if (closed_ || !turn_.close()) return;
  closed_ = true;
  host_.forget(id_);
  std::string refusal;
  {
    const std::lock_guard lock(failure_mutex_);
    refusal.swap(refusal_);
  }
  if (!refusal.empty()) host_.on_refused(peer_, refusal);
  if (announced_) host_.events().on_closed(id_, failure());
}

// ---- reading ----

TcpConnection::Read TcpConnection::on_readable(ReadTools& tools, bool rang, bool hung_up) {
  Read outcome = Read::nothing;
  for (int i = 0; i < kReadsInARowMax; ++i) {
    const std::lock_guard lock(read_mutex_);
    // A helper reads. But a hang-up is reported to the poller again and again, so it sees to that itself.
    if (helped_ && !hung_up) {
      if (rings_) leave_reading_locked();  // the doorbell is the helper's
      break;
    }
    outcome = read_locked(tools, rang && i == 0);
    if (outcome == Read::nothing || outcome == Read::closed) break;
    if (drained_ && !hung_up) break;
  }
  if (rings_) write_if_room();
  return outcome;
}

bool TcpConnection::begin_help() {
  if (!connected_ || closing_) return false;
  {
    const std::unique_lock lock(read_mutex_, std::try_to_lock);
    if (!lock.owns_lock() || helped_ || read_ended_) return false;
    helped_ = true;
    // With rings only a helper that sleeps keeps the poller from being woken, by helper_may_sleep().
    if (rings_) {
      rings_->stay_awake();
    } else {
      leave_reading_locked();
    }
  }
  return true;
}

void TcpConnection::leave_reading_locked() {
  unwatched_ = true;
  want(false, std::nullopt);
}

void TcpConnection::end_help() {
  bool read_soon = false;
  bool watch = false;
  {
    const std::lock_guard lock(read_mutex_);
    helped_ = false;
    watch = std::exchange(unwatched_, false);
    read_soon = rings_ && !read_ended_ && !looked_at_ && !rings_->fall_asleep();
  }
  if (watch) want(true, std::nullopt);
  if (read_soon) host_.read_soon(shared_from_this());
}

TcpConnection::Read TcpConnection::read_as_helper(ReadTools& tools, bool woken) {
  Read outcome;
  {
    const std::lock_guard lock(read_mutex_);
    outcome = read_locked(tools, woken);
  }
  if (rings_) write_if_room();
  return outcome;
}

TcpConnection::Read TcpConnection::read_locked(ReadTools& tools, bool rang) {
  if (read_ended_) return Read::closed;
  if (closing_) {
    end_locked();
    return Read::closed;
  }
  delivered_ = false;
  const uint64_t steps = reader_.progress_steps();
  Status heard = rings_ && rang ? listen_locked() : Status();
  Result<bool> got = !heard.ok() ? std::move(heard.failure())
                     : tls_      ? receive_encrypted_locked(tools)
                                 : receive_plain_locked(tools);
  deliver_locked(tools);
  if (!got) {
    Failure& why = got.failure();
    if (!proved_ && why.code == Code::corrupt) {
      const bool speaks_tls = !tls_ && !reader_.preface_seen() && tools.scratch[0] == kTlsHandshakeRecord;
      if (!speaks_tls) note(why);  // says more
      note_refusal(why.code, speaks_tls               ? transport_detail::kUnexpectedTls
                             : reader_.preface_seen() ? "sent what a stranger may not send"
                                                      : "does not speak Holdfast's protocol");
    }
    note(std::move(why));
    end_locked();
    return Read::closed;
  }
  if (!*got) return Read::nothing;
  if (!delivered_ && reader_.progress_steps() != steps && !closing_) host_.events().on_progress(id_);
  return delivered_ ? Read::delivered : Read::some;
}

Failure TcpConnection::broken(const std::string& what) const {
  const char* where = shaking_                 ? " in the handshake"
                      : reader_.at_boundary()  ? ""
                      : reader_.preface_seen() ? " in the middle of a frame"
                                               : " before a word";
  return transport_detail::unavailable(fmt::format("the connection with {} broke{}: {}", peer_, where, what));
}

Result<bool> TcpConnection::receive_plain_locked(ReadTools& tools) {
  iovec pieces[kPiecesMax];
  size_t count = reader_.direct_targets(pieces, kPiecesMax - 1);
  size_t direct_bytes = 0;
  for (size_t i = 0; i < count; ++i) direct_bytes += pieces[i].iov_len;
  // The scratch buffer may only stand behind the whole rest of the frame.
  if (count < kPiecesMax - 1) pieces[count++] = {.iov_base = tools.scratch.data(), .iov_len = tools.scratch.size()};

  size_t offered_bytes = 0;
  for (size_t i = 0; i < count; ++i) offered_bytes += pieces[i].iov_len;
  const ssize_t got = rings_ ? receive_from_rings_locked(pieces, count) : ::readv(fd_, pieces, static_cast<int>(count));
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    if (!socket_ended_.empty()) return broken(socket_ended_);
    return false;
  }
  if (got < 0 && errno == EPROTO) return transport_detail::corrupt(peer_ + " does not keep to the rules of its ring");
  if (got <= 0) return broken(got == 0 ? "the peer closed it" : errno_text(errno));

  const size_t bytes = static_cast<size_t>(got);
  drained_ = bytes < offered_bytes;
  const size_t straight = bytes < direct_bytes ? bytes : direct_bytes;
  Status status = straight > 0 ? reader_.advance_direct(straight, tools.frames) : Status();
  if (status.ok()) status = parse_locked(ByteView(tools.scratch.data(), bytes - straight), tools);
  if (!status.ok()) return std::move(status.failure());
  return true;
}

Status TcpConnection::parse_locked(ByteView bytes, ReadTools& tools) {
  while (!bytes.empty() && !closing_) {
    const bool trusted = trusted_;
    if (auto status = reader_.feed(bytes, trusted, tools.frames); !status.ok()) return status;
    // The frame may be the proof after which the next one may be larger.
    if (!trusted) deliver_locked(tools);
  }
  return {};
}

void TcpConnection::deliver_locked(ReadTools& tools) {
  if (!tools.frames.empty() && !closing_) {
    proved_ = true;
    host_.events().on_frames(id_, tools.frames);
    delivered_ = true;
  }
  tools.frames.clear();
}

// ---- writing ----

void TcpConnection::flush() {
  if (!turn_.take()) return;
  for (;;) {
    write_all();
    switch (turn_.done()) {
      case WriteTurn::After::finished: return;
      case WriteTurn::After::again: continue;
      case WriteTurn::After::closed: host_.finish_soon(shared_from_this()); return;
    }
  }
}

void TcpConnection::write_all() {
  if (!connected_ || broken_) return;
  if (blocked_ && !writable_.exchange(false)) return;
  blocked_ = false;
  for (;;) {
    if (closing_) return;
    if (!has_output()) {
      // Less than asked for: that was all. Whatever came since is flushed by whoever added it.
      if (std::exchange(collected_all_, false)) return;
      host_.events().collect(id_, kCollectBytes, collected_);
      size_t bytes = 0;
      for (const OutFrame& frame : collected_) {
        writer_.add(frame, lender_.get());
        bytes += kFrameHeaderBytes + frame.message->total_bytes();
      }
      collected_.clear();
      collected_all_ = bytes < kCollectBytes;
      if (writer_.empty()) continue;
    }
    const ssize_t sent = tls_ ? send_encrypted() : send_plain();
    if (sent >= 0) {
      written_bytes_ += static_cast<uint64_t>(sent);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {
      if (rings_ && !wait_for_room()) continue;
      blocked_ = true;
      collected_all_ = false;  // who flushes meanwhile goes away again: look anew when the socket has room
      if (!rings_) want(std::nullopt, true);
      return;
    }
    note({.code = Code::unavailable, .message = fmt::format("cannot send to {}: {}", peer_, errno_text(errno))});
    broken_ = true;
    writer_.clear();
    // What has arrived before the break is still read; then the read side finds the end.
    ::shutdown(fd_, SHUT_RDWR);
    return;
  }
}

bool TcpConnection::has_output() const {
  if (!writer_.empty()) return true;
  return encrypted_sent_bytes_ < encrypted_.size();
}

// How much the socket took; -1 and errno if none.
ssize_t TcpConnection::send_plain() {
  iovec pieces[kPiecesMax];
  msghdr header = {};
  header.msg_iov = pieces;
  header.msg_iovlen = writer_.fill(pieces, kPiecesMax);
  const ssize_t sent = rings_ ? send_by_rings(pieces, header.msg_iovlen) : ::sendmsg(fd_, &header, MSG_NOSIGNAL);
  if (sent > 0) writer_.advance(static_cast<size_t>(sent));
  return sent;
}

void TcpConnection::on_writable() {
  // First no longer watched, then tried: whoever finds the socket full again asks for it to be watched again.
  want(std::nullopt, false);
  const uint64_t before = written_bytes_ / kProgressBytes;
  writable_ = true;
  flush();
  if (written_bytes_ / kProgressBytes == before) return;
  // If the lock is taken, frames are being delivered: that is news enough.
  const std::unique_lock lock(read_mutex_, std::try_to_lock);
  if (lock.owns_lock() && !read_ended_ && !closing_) host_.events().on_progress(id_);
}

// ---- epoll ----

void TcpConnection::add_to_epoll(bool want_read, bool want_write) {
  const std::lock_guard lock(interest_mutex_);
  watched_ = true;
  want_read_ = want_read;
  want_write_ = want_write;
  epoll_event event = {};
  event.events = (want_read_ ? EPOLLIN : 0u) | (want_write_ ? EPOLLOUT : 0u);
  event.data.u64 = id_.value;
  if (::epoll_ctl(host_.epoll_fd(), EPOLL_CTL_ADD, fd_, &event) == 0) return;
  watched_ = false;
  fail({.code = Code::unavailable,
        .message = fmt::format("cannot watch the connection with {}: {}", peer_, errno_text(errno))});
}

void TcpConnection::remove_from_epoll() {
  const std::lock_guard lock(interest_mutex_);
  if (watched_) ::epoll_ctl(host_.epoll_fd(), EPOLL_CTL_DEL, fd_, nullptr);
  watched_ = false;
}

void TcpConnection::want(std::optional<bool> read, std::optional<bool> write) {
  const std::lock_guard lock(interest_mutex_);
  const bool read_before = want_read_, write_before = want_write_;
  if (read) want_read_ = *read;
  if (write) want_write_ = *write;
  if (!watched_ || (want_read_ == read_before && want_write_ == write_before)) return;
  epoll_event event = {};
  event.events = (want_read_ ? EPOLLIN : 0u) | (want_write_ ? EPOLLOUT : 0u);
  event.data.u64 = id_.value;
  ::epoll_ctl(host_.epoll_fd(), EPOLL_CTL_MOD, fd_, &event);
}

}  // namespace holdfast
