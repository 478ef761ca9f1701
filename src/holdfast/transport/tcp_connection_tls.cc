// The parts of TcpConnection that only connections with a handshake need: TLS, and the offer of shared memory.
#include <holdfast/transport/tcp_connection.h>

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include <holdfast/transport/address.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

// So much, in so many pieces, is encrypted before it is written.
constexpr size_t kEncryptBytes = 256 * 1024;
constexpr size_t kEncryptPieces = 64;

}  // namespace

// ---- the handshake ----

void TcpConnection::shake_hands(ReadTools& tools) {
  {
    const std::lock_guard lock(read_mutex_);
    if (read_ended_) return;
    if (closing_) return end_locked();
    if (!shake_hands_locked(tools)) return;
  }
  flush();
  // A doorbell may have been read with the last bytes of the handshake.
  if (rings_) host_.read_soon(shared_from_this());
}

bool TcpConnection::shake_hands_locked(ReadTools& tools) {
  if (local_ && !rings_ && !take_offer_locked()) return false;
  if (!tls_) {
    announce_locked();
    return true;
  }
  ByteView input;
  for (;;) {
    Result<bool> complete = tls_->handshake(input);
    Result<bool> sent = send_handshake_locked();
    if (!complete || !sent) {
      // What the peer did says more than that it has gone meanwhile.
      const Failure& why = complete ? sent.failure() : complete.failure();
      note_refusal(why.code, why.message);
      end_locked();
      return false;
    }
    if (!*sent) {
      want(true, true);  // its last word waits for room; come again when there is some
      return false;
    }
    want(true, false);
    if (*complete) break;
    const ssize_t got = ::read(fd_, tools.scratch.data(), kHandshakeBytesMax);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) {
      note(broken(got == 0 ? "the peer closed it" : errno_text(errno)));
      end_locked();
      return false;
    }
    input = ByteView(tools.scratch.data(), static_cast<size_t>(got));
  }
  if (rings_ && dialled()) refusal_of_peer_ = std::move(tls_);
  if (rings_ || tls_->continues_in_plain()) tls_ = nullptr;
  announce_locked();
  if (rings_) return true;  // what may have come behind the handshake are doorbells
  // The peer's first words may have come with its last of the handshake.
  const Status status = tls_ ? decrypt_locked(input, tools) : parse_locked(input, tools);
  deliver_locked(tools);
  if (status.ok()) return true;
  note(status.failure());
  end_locked();
  return false;
}

// False: the socket has no room for the rest.
Result<bool> TcpConnection::send_handshake_locked() {
  for (;;) {
    if (encrypted_sent_bytes_ == encrypted_.size()) {
      encrypted_sent_bytes_ = 0;
      tls_->take_output(encrypted_);
      if (encrypted_.empty()) return true;
    }
    const ssize_t sent =
        ::send(fd_, encrypted_.data() + encrypted_sent_bytes_, encrypted_.size() - encrypted_sent_bytes_, MSG_NOSIGNAL);
    if (sent >= 0) {
      encrypted_sent_bytes_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN) {
      return false;
    } else if (errno != EINTR) {
      return transport_detail::unavailable(fmt::format("went away in the handshake: {}", errno_text(errno)));
    }
  }
}

// ---- reading ----

Result<bool> TcpConnection::receive_encrypted_locked(ReadTools& tools) {
  const ssize_t got = ::read(fd_, tools.scratch.data(), tools.scratch.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) return broken(got == 0 ? "the peer closed it" : errno_text(errno));
  drained_ = static_cast<size_t>(got) < tools.scratch.size();
  Status status = decrypt_locked(ByteView(tools.scratch.data(), static_cast<size_t>(got)), tools);
  if (!status.ok()) return std::move(status.failure());
  return true;
}

// The large parts of frames are decrypted straight into their memory.
Status TcpConnection::decrypt_locked(ByteView bytes, ReadTools& tools) {
  while (!closing_) {
    iovec piece = {};
    const bool straight = reader_.direct_targets(&piece, 1) == 1;
    if (!straight) piece = {.iov_base = tools.plain.data(), .iov_len = tools.plain.size()};
    Result<size_t> got = tls_->reader().read(bytes, static_cast<uint8_t*>(piece.iov_base), piece.iov_len);
    if (!got) {
      Failure& why = got.failure();
      return Failure{.code = why.code, .message = peer_ + " " + why.message};
    }
    if (*got == 0) break;
    Status status =
        straight ? reader_.advance_direct(*got, tools.frames) : parse_locked(ByteView(tools.plain.data(), *got), tools);
    if (!status.ok()) return status;
  }
  return {};
}

// ---- writing ----

ssize_t TcpConnection::send_encrypted() {
  if (encrypted_sent_bytes_ == encrypted_.size()) {
    iovec pieces[kEncryptPieces];
    const size_t count = writer_.fill(pieces, kEncryptPieces);
    size_t bytes = 0;
    encrypted_.clear();
    encrypted_sent_bytes_ = 0;
    for (size_t i = 0; i < count && bytes < kEncryptBytes; ++i) {
      const ByteView piece(static_cast<const uint8_t*>(pieces[i].iov_base), pieces[i].iov_len);
      const ByteView part = piece.first(std::min(piece.size(), kEncryptBytes - bytes));
      if (Status status = tls_->writer().write(part, encrypted_); !status.ok()) {
        note({.code = status.failure().code, .message = peer_ + " " + status.failure().message});
        errno = EPROTO;
        return -1;
      }
      bytes += part.size();
    }
    writer_.advance(bytes);
  }
  const ssize_t sent =
      ::send(fd_, encrypted_.data() + encrypted_sent_bytes_, encrypted_.size() - encrypted_sent_bytes_, MSG_NOSIGNAL);
  if (sent > 0) encrypted_sent_bytes_ += static_cast<size_t>(sent);
  return sent;
}

}  // namespace holdfast
