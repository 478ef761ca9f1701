#include <holdfast/transport/shared_rings.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include <holdfast/transport/address.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
// The other side hears of what was done after so many bytes, so that both work at the same time.
constexpr size_t kShareBytes = 32 * 1024;
constexpr size_t kMask = SharedRings::kRingBytes - 1;
static_assert((SharedRings::kRingBytes & kMask) == 0);
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Copies between a ring, from the stream's byte `at` on, and memory of ours.
void copy_out(const uint8_t* ring, uint64_t at, uint8_t* to, size_t bytes) {
  const size_t first = std::min(bytes, SharedRings::kRingBytes - (at & kMask));
  std::memcpy(to, ring + (at & kMask), first);
  std::memcpy(to + first, ring, bytes - first);
}
void copy_in(uint8_t* ring, uint64_t at, const uint8_t* from, size_t bytes) {
  const size_t first = std::min(bytes, SharedRings::kRingBytes - (at & kMask));
  std::memcpy(ring + (at & kMask), from, first);
  std::memcpy(ring, from + first, bytes - first);
}

ssize_t fail(int error) {
  errno = error;
  return -1;
}

// Goes along the next `bytes` of the pieces with `step(memory, bytes)`, in steps of no more than kShareBytes.
template <class Step>
void walk(const iovec* pieces, size_t bytes, Step&& step) {
  for (; bytes > 0; ++pieces) {
    auto* at = static_cast<uint8_t*>(pieces->iov_base);
    for (size_t left = std::min(pieces->iov_len, bytes); left > 0;) {
      const size_t count = std::min(left, kShareBytes);
      step(at, count);
      at += count;
      left -= count;
      bytes -= count;
    }
  }
}

size_t total(const iovec* pieces, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].iov_len;
  return bytes;
}

}  // namespace

SharedRings::SharedRings(uint8_t* memory, bool dials)
    : memory_(memory),
      in_(reinterpret_cast<Control*>(memory + (dials ? kControlBytes / 2 : 0))),
      out_(reinterpret_cast<Control*>(memory + (dials ? 0 : kControlBytes / 2))),
      in_ring_(memory + kControlBytes + (dials ? kRingBytes : 0)),
      out_ring_(memory + kControlBytes + (dials ? 0 : kRingBytes)) {
  static_assert(sizeof(Control) <= kControlBytes / 2);
}

SharedRings::~SharedRings() {
  ::munmap(memory_, kBytes);
  if (fd_ >= 0) ::close(fd_);
}

uint8_t* SharedRings::map(int fd) {
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

std::unique_ptr<SharedRings> SharedRings::make() {
  const int fd = ::memfd_create("holdfast", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  uint8_t* memory = nullptr;
  if (::ftruncate(fd, kBytes) == 0 && ::fcntl(fd, F_ADD_SEALS, kSeals) == 0) memory = map(fd);
  if (memory == nullptr) {
    ::close(fd);
    return nullptr;
  }
  std::unique_ptr<SharedRings> made(new SharedRings(memory, true));
  made->fd_ = fd;
  // Nobody is looking yet: whoever writes first rings.
  for (Control* control : {made->in_, made->out_})
    new (control) Control{.written = 0, .read = 0, .reader_asleep = 1, .writer_asleep = 0};
  return made;
}

Result<std::unique_ptr<SharedRings>> SharedRings::open(int memory_fd) {
  const int seals = ::fcntl(memory_fd, F_GET_SEALS);
  struct stat status = {};
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(memory_fd, &status) != 0 || status.st_size != kBytes) {
    return transport_detail::corrupt("offers memory that is not as it should be");
  }
  uint8_t* memory = map(memory_fd);
  if (memory == nullptr) {
    return transport_detail::unavailable(fmt::format("offers memory that cannot be mapped: {}", errno_text(errno)));
  }
  return std::unique_ptr<SharedRings>(new SharedRings(memory, false));
}

int SharedRings::take_fd() { return std::exchange(fd_, -1); }

ssize_t SharedRings::read(const iovec* pieces, size_t count) {
  uint64_t at = read_bytes_.load(std::memory_order_relaxed);
  const uint64_t there = in_->written.load(std::memory_order_acquire) - at;
  if (there == 0) return fail(EAGAIN);
  if (there > kRingBytes) return fail(EPROTO);
  const size_t bytes = std::min<size_t>(there, total(pieces, count));
  walk(pieces, bytes, [&](uint8_t* to, size_t step) {
    copy_out(in_ring_, at, to, step);
    at += step;
    in_->read.exchange(at, std::memory_order_seq_cst);
  });
  read_bytes_.store(at, std::memory_order_relaxed);
  return static_cast<ssize_t>(bytes);
}

ssize_t SharedRings::write(const iovec* pieces, size_t count) {
  const size_t wanted = total(pieces, count);
  if (room_seen_until_ - written_bytes_ < wanted) {
    const uint64_t unread = written_bytes_ - out_->read.load(std::memory_order_acquire);
    if (unread > kRingBytes) return fail(EPROTO);
    room_seen_until_ = written_bytes_ + kRingBytes - unread;
  }
  const size_t bytes = std::min<size_t>(wanted, room_seen_until_ - written_bytes_);
  if (bytes == 0) return fail(EAGAIN);
  walk(pieces, bytes, [this](const uint8_t* from, size_t step) {
    copy_in(out_ring_, written_bytes_, from, step);
    written_bytes_ += step;
    out_->written.exchange(written_bytes_, std::memory_order_seq_cst);
  });
  return static_cast<ssize_t>(bytes);
}

bool SharedRings::has_room() const {
  const uint64_t unread = out_->written.load(std::memory_order_relaxed) - out_->read.load(std::memory_order_seq_cst);
  return unread <= kRingBytes / 2 || unread > kRingBytes;
}

// Falling asleep and waking: one side stores the flag and then looks at the counter, the other one moves the counter
// and then looks at the flag. An exchange, where a plain store would do, keeps both from overtaking each other: all of
// them are sequentially consistent, so if neither saw what the other did, each would come before the other. Each number
// is written once only: the other side asks for it all the time, and takes the cache line away as soon as it changes.

bool SharedRings::fall_asleep() {
  in_->reader_asleep.exchange(1, std::memory_order_seq_cst);
  if (in_->written.load(std::memory_order_seq_cst) == read_bytes_.load(std::memory_order_relaxed)) return true;
  in_->reader_asleep.store(0, std::memory_order_relaxed);
  return false;
}

bool SharedRings::wait_for_room() {
  out_->writer_asleep.exchange(1, std::memory_order_seq_cst);
  if (!has_room()) return true;
  out_->writer_asleep.store(0, std::memory_order_relaxed);
  return false;
}

bool SharedRings::take_sleeping_reader() {
  return out_->reader_asleep.load(std::memory_order_seq_cst) != 0 && out_->reader_asleep.exchange(0) != 0;
}

bool SharedRings::take_waiting_writer() {
  if (in_->writer_asleep.load(std::memory_order_seq_cst) == 0) return false;
  const uint64_t unread = in_->written.load(std::memory_order_relaxed) - read_bytes_.load(std::memory_order_relaxed);
  return unread <= kRingBytes / 2 && in_->writer_asleep.exchange(0) != 0;
}

}  // namespace holdfast
