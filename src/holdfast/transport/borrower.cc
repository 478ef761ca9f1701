#include <holdfast/transport/borrower.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include <holdfast/transport/address.h>
#include <holdfast/transport/common.h>
#include <holdfast/transport/mapping.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;

}  // namespace

// One area as we see it. Lives until it is forgotten and its last use has ended.
class BorrowedArea {
 public:
  // The descriptor is the area's from now on.
  BorrowedArea(uint8_t kind, int fd) : lent_(kind == kLentArea), fd_(fd) {}
  ~BorrowedArea() { close_fd(); }
  BorrowedArea(const BorrowedArea&) = delete;
  BorrowedArea& operator=(const BorrowedArea&) = delete;

  Status open() {
    struct stat status = {};
    const int seals = ::fcntl(fd_, F_GET_SEALS);
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    if (seals < 0 || (seals & wanted) != wanted || ::fstat(fd_, &status) != 0 ||
        status.st_size <= static_cast<off_t>(AreaControl::kBytes)) {
      return corrupt("an area of shared memory that is not as it should be");
    }
    bytes_ = static_cast<uint64_t>(status.st_size) - AreaControl::kBytes;
    mapping_ = lent_ ? Mapping(fd_, 0, AreaControl::kBytes, MAP_SHARED)
                     : Mapping(fd_, 0, AreaControl::kBytes + bytes_, MAP_SHARED | MAP_POPULATE);
    if (!lent_ && mapping_.data() != nullptr) close_fd();
    return {};
  }

  bool is_lent() const { return lent_; }
  int fd() const { return fd_; }
  uint64_t bytes() const { return bytes_; }
  bool retired() const { return control() != nullptr && control()->retired.load(std::memory_order_acquire) != 0; }
  // Of a buffer; null if it could not be mapped.
  uint8_t* content() const { return lent_ || !mapping_.data() ? nullptr : mapping_.data() + AreaControl::kBytes; }

  // False: the other side gives us a buffer that we still have.
  bool begin_use() { return lent_ || !in_use_.exchange(true); }
  void end_use(uint32_t slot) {
    in_use_ = false;  // first: as soon as the other side sees what the next line does, it may use the buffer again
    if (control() != nullptr) control()->uses[slot].fetch_sub(1, std::memory_order_release);
  }

 private:
  // Null if it could not be mapped: then the other side takes it to be in use until the connection ends.
  AreaControl* control() const { return reinterpret_cast<AreaControl*>(mapping_.data()); }
  void close_fd() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  const bool lent_;
  int fd_;  // -1: everything is mapped
  uint64_t bytes_ = 0;
  Mapping mapping_;  // of a buffer all, else the page of control
  std::atomic<bool> in_use_ = false;
};

namespace {

// One attachment in an area, until its last owner drops it.
struct Use {
  Use(std::shared_ptr<BorrowedArea> used, uint32_t slot_number) : area(std::move(used)), slot(slot_number) {}
  ~Use() { area->end_use(slot); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  const std::shared_ptr<BorrowedArea> area;
  const uint32_t slot;
  Mapping lent;
};

// For where it cannot be mapped.
Result<Attachment> copy_of(int fd, uint64_t offset, uint64_t bytes, ReceivePool& pool) {
  auto memory = pool.allocate(bytes);
  if (!memory) {
    return Failure{.code = Code::overloaded, .message = fmt::format("no memory for an attachment of {} bytes", bytes)};
  }
  for (uint64_t have = 0; have < bytes;) {
    const ssize_t got = ::pread(fd, memory.get() + have, bytes - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return transport_detail::unavailable("an area of shared memory cannot be read: " + errno_text(errno));
    have += static_cast<uint64_t>(got);
  }
  const uint8_t* data = memory.get();
  return Attachment{.owner = std::move(memory), .data = data, .bytes = bytes};
}

}  // namespace

Result<Heard> Borrower::listen() {
  Heard heard = hear(socket_fd_);
  Status status;
  const bool others = heard.count > 0 && heard.bytes[0] > kLentArea;  // a last word of TLS
  for (ssize_t i = 0; i < heard.count && !others && status.ok(); ++i) {
    const uint8_t kind = heard.bytes[static_cast<size_t>(i)];
    if (kind == kBufferArea || kind == kLentArea) status = add(kind, std::exchange(heard.area_fd, -1));
  }
  if (heard.area_fd >= 0) ::close(std::exchange(heard.area_fd, -1));
  if (!status.ok()) return std::move(status.failure());
  return heard;
}

Status Borrower::add(uint8_t kind, int fd) {
  if (fd < 0) return corrupt("an area of shared memory without a descriptor");
  auto area = std::make_shared<BorrowedArea>(kind, fd);
  if (areas_.size() >= kAreasMax) trim();
  if (areas_.size() >= kAreasMax) return corrupt(fmt::format("more than {} areas of shared memory", kAreasMax));
  if (Status status = area->open(); !status.ok()) return status;
  areas_.emplace(next_number_++, std::move(area));
  trim_later_();
  return {};
}

Result<Attachment> Borrower::borrow(const Loan& loan, uint64_t bytes) {
  auto found = areas_.find(loan.area);
  while (found == areas_.end()) {
    // It was told before the frame, so it is in the socket.
    const Result<Heard> heard = listen();
    if (!heard) return heard.failure();
    if (heard->count <= 0) return corrupt(fmt::format("an attachment in area {}, which there is not", loan.area));
    found = areas_.find(loan.area);
  }
  const std::shared_ptr<BorrowedArea>& area = found->second;
  if (loan.slot >= AreaControl::kSlots || loan.offset % kLoanAlignment != 0 || loan.offset > area->bytes() ||
      bytes > area->bytes() - loan.offset) {
    return corrupt(fmt::format("an attachment outside of its area: {} bytes from {} on, of {}, in slot {}", bytes,
                               loan.offset, area->bytes(), loan.slot));
  }
  if (!area->begin_use()) return corrupt(fmt::format("an attachment in area {}, which is in use", loan.area));
  auto use = std::make_shared<Use>(area, loan.slot);
  const uint64_t at = AreaControl::kBytes + loan.offset;
  if (area->is_lent()) use->lent = Mapping(area->fd(), at, bytes, MAP_PRIVATE | MAP_NORESERVE);
  const uint8_t* data = area->is_lent() ? use->lent.data() : area->content();
  if (data == nullptr) return copy_of(area->fd(), at, bytes, *pool_);
  if (!area->is_lent()) data += loan.offset;
  return Attachment{.owner = std::move(use), .data = data, .bytes = bytes, .shared = true};
}

bool Borrower::trim() {
  std::erase_if(areas_, [](const auto& entry) { return entry.second->retired(); });
  return !areas_.empty();
}

}  // namespace holdfast
