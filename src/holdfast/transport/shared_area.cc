#include <holdfast/transport/shared_area.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <new>
#include <string>

namespace holdfast {

namespace {

uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;) {
    uint64_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return 0;
}

// Which lendable memory there is, by its last byte: so lower_bound finds the only candidate.
class Lendables {
 public:
  void add(std::shared_ptr<SharedArea> area) {
    const uint8_t* last = area->data() + area->bytes() - 1;
    const std::lock_guard lock(mutex_);
    areas_.emplace(last, std::move(area));
    count_.store(areas_.size(), std::memory_order_relaxed);
  }

  void remove(const SharedArea& area) {
    std::shared_ptr<SharedArea> removed;  // goes after the lock
    const std::lock_guard lock(mutex_);
    const auto found = areas_.find(area.data() + area.bytes() - 1);
    if (found == areas_.end()) return;
    removed = std::move(found->second);
    areas_.erase(found);
    count_.store(areas_.size(), std::memory_order_relaxed);
  }

  std::shared_ptr<SharedArea> find(const uint8_t* data, uint64_t bytes) {
    if (bytes == 0 || count_.load(std::memory_order_relaxed) == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto found = areas_.lower_bound(data);
    if (found == areas_.end()) return nullptr;
    const SharedArea& area = *found->second;
    if (data < area.data() || bytes > area.bytes() - static_cast<uint64_t>(data - area.data())) return nullptr;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const uint8_t*, std::shared_ptr<SharedArea>> areas_;
  std::atomic<size_t> count_ = 0;
};

// Never destroyed: tensors may outlive whatever the program destroys at its end.
Lendables& lendables() {
  static auto& all = *new Lendables;
  return all;
}

}  // namespace

std::unique_ptr<SharedArea> SharedArea::make(uint64_t bytes) {
  // The kernel would end processes, rather than say that there is not as much.
  if (bytes > available_bytes()) return nullptr;
  const int fd = ::memfd_create("holdfast-area", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  const uint64_t all_bytes = AreaControl::kBytes + bytes;
  void* memory = MAP_FAILED;
  if (::fallocate(fd, 0, 0, static_cast<off_t>(all_bytes)) == 0 &&
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    memory = ::mmap(nullptr, all_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<SharedArea>(new SharedArea(static_cast<uint8_t*>(memory), bytes, fd));
}

SharedArea::~SharedArea() {
  control().retired.store(1, std::memory_order_release);
  ::munmap(memory_, AreaControl::kBytes + bytes_);
  close_fd();
}

void SharedArea::close_fd() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::optional<uint32_t> SharedArea::take_slot() {
  const std::lock_guard lock(mutex_);
  if (next_slot_ == AreaControl::kSlots) return std::nullopt;
  slots_.push_back(next_slot_);
  return next_slot_++;
}

void SharedArea::drop_slot(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  std::erase(slots_, slot);
}

uint64_t SharedArea::uses() const {
  const std::lock_guard lock(mutex_);
  uint64_t uses = 0;
  for (const uint32_t slot : slots_) uses += control().uses[slot].load(std::memory_order_acquire);
  return uses;
}

std::shared_ptr<uint8_t> allocate_lendable(uint64_t bytes) {
  std::shared_ptr<SharedArea> area = SharedArea::make(std::max<uint64_t>(bytes, 1));
  if (!area) throw std::bad_alloc();
  lendables().add(area);
  return {area->data(), [area](uint8_t*) { lendables().remove(*area); }};
}

std::shared_ptr<SharedArea> find_lendable(const uint8_t* data, uint64_t bytes) { return lendables().find(data, bytes); }

}  // namespace holdfast
