// The parts of TcpConnection that only connections through shared memory need.
#include <holdfast/transport/tcp_connection.h>

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include <holdfast/transport/address.h>
#include <holdfast/transport/common.h>
#include <holdfast/transport/local_socket.h>

namespace holdfast {

bool TcpConnection::take_offer_locked() {
  const auto refused = [this](const Failure& why) {
    note_refusal(why.code, why.message);
    end_locked();
    return false;
  };
  const Result<std::optional<Offer>> offered = receive_offer(fd_);
  if (!offered) return refused(offered.failure());
  if (!*offered) return false;
  const Offer offer = **offered;
  Result<std::unique_ptr<SharedRings>> opened = SharedRings::open(offer.memory_fd);
  ::close(offer.memory_fd);
  if (offer.tls && !tls_) {
    // So that the other side knows, too.
    [[maybe_unused]] const ssize_t sent = ::send(fd_, kPreface.data(), kPreface.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return refused(transport_detail::corrupt(transport_detail::kUnexpectedTls));
  }
  if (!offer.tls && tls_) return refused(transport_detail::corrupt(transport_detail::kUnexpectedPlain));
  if (!opened) return refused(opened.failure());
  use_rings(std::move(*opened));
  return true;
}

void TcpConnection::use_rings(std::unique_ptr<SharedRings> rings) {
  rings_ = std::move(rings);
  const auto trim_later = [this] { host_.trim_later(); };
  lender_ = std::make_unique<Lender>(fd_, host_.copy_crew(), trim_later);
  borrower_ = std::make_unique<Borrower>(fd_, host_.receive_pool(), trim_later);
  reader_.borrow_from(borrower_.get());
}

bool TcpConnection::trim_areas(Time now) {
  bool more = lender_->trim(now);
  const std::lock_guard lock(read_mutex_);
  if (borrower_->trim()) more = true;
  return more;
}

// ---- reading ----

ssize_t TcpConnection::receive_from_rings_locked(const iovec* pieces, size_t count) {
  const ssize_t got = rings_->read(pieces, count);
  if (got > 0 && rings_->take_waiting_writer()) send_doorbell(fd_);
  return got;
}

Status TcpConnection::listen_locked() {
  const Result<Heard> heard = borrower_->listen();
  if (!heard) return heard.failure();
  const auto& [got, error, signals, area_fd] = *heard;
  if (got > 0 && refusal_of_peer_) {
    const auto session = std::exchange(refusal_of_peer_, nullptr);
    ByteView bytes(signals.data(), static_cast<size_t>(got));
    uint8_t unused[64];
    const Result<size_t> said =
        bytes[0] <= kLentArea ? Result<size_t>(0) : session->reader().read(bytes, unused, sizeof(unused));
    if (!said) note({.code = said.failure().code, .message = peer_ + " " + said.failure().message});
  }
  if (got > 0 || (got < 0 && (error == EAGAIN || error == EINTR))) return {};
  // What is still in the ring is read first.
  if (socket_ended_.empty()) socket_ended_ = got == 0 ? "the peer closed it" : errno_text(error);
  return {};
}

bool TcpConnection::begin_to_be_looked_at() {
  const std::lock_guard lock(read_mutex_);
  if (helped_ || looked_at_) return false;  // the flag in the ring is the helper's
  rings_->stay_awake();
  looked_at_ = true;
  return true;
}

bool TcpConnection::fall_asleep() {
  const std::lock_guard lock(read_mutex_);
  if (!helped_ && !read_ended_ && !rings_->fall_asleep()) return false;
  looked_at_ = false;
  return true;
}

bool TcpConnection::helper_may_sleep() {
  if (!rings_) return true;
  const std::lock_guard lock(read_mutex_);
  leave_reading_locked();
  return rings_->fall_asleep();
}

// ---- writing ----

ssize_t TcpConnection::send_by_rings(const iovec* pieces, size_t count) {
  const ssize_t sent = rings_->write(pieces, count);
  if (sent > 0 && rings_->take_sleeping_reader()) send_doorbell(fd_);
  return sent;
}

bool TcpConnection::wait_for_room() {
  waits_for_room_ = true;
  if (rings_->wait_for_room()) return true;
  waits_for_room_ = false;
  return false;
}

void TcpConnection::write_if_room() {
  if (has_room() && waits_for_room_.exchange(false)) on_writable();
}

}  // namespace holdfast
