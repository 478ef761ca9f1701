// SharedArea: memory for attachments that another process of this host can map, with a page of control in front in
// which both sides count its uses. docs/shared_memory.md has the layout and the rules; this is the side that owns the
// memory.
//
// Any thread, except where it says otherwise. What the page says is written by the other side too, so it is only ever
// compared, never trusted: at worst an area stays in use for as long as its connection lives.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace holdfast {

// The page in front of the content.
struct AreaControl {
  static constexpr size_t kBytes = 4096;
  static constexpr uint32_t kSlots = 1000;

  std::atomic<uint32_t> retired;
  alignas(64) std::array<std::atomic<uint32_t>, kSlots> uses;
};
static_assert(sizeof(AreaControl) <= AreaControl::kBytes && std::atomic<uint32_t>::is_always_lock_free);

// Where an attachment lies, as it stands in a stream.
struct Loan {
  static constexpr size_t kBytes = 16;

  uint32_t area = 0;
  uint32_t slot = 0;
  uint64_t offset = 0;  // in the content
};
static_assert(sizeof(Loan) == Loan::kBytes);

// Attachments of fewer bytes are not worth an area.
inline constexpr uint64_t kLoanBytesMin = 64 * 1024;
// Both sides keep to it, for each direction of a connection.
inline constexpr size_t kAreasMax = 512;
inline constexpr uint64_t kLoanAlignment = 64;

class SharedArea {
 public:
  // Null if the system gives none. All of its memory is taken at once: to touch it cannot fail later.
  static std::unique_ptr<SharedArea> make(uint64_t bytes);
  // Says that it is retired. The memory itself lives for as long as another process has it mapped.
  ~SharedArea();
  SharedArea(const SharedArea&) = delete;
  SharedArea& operator=(const SharedArea&) = delete;

  uint8_t* data() const { return memory_ + AreaControl::kBytes; }
  uint64_t bytes() const { return bytes_; }
  AreaControl& control() const { return *reinterpret_cast<AreaControl*>(memory_); }
  // To be shown to others; -1 after close_fd().
  int fd() const { return fd_; }
  // Nobody else will be shown it. One thread.
  void close_fd();

  // A slot that nobody else has; nullopt if there is none left.
  std::optional<uint32_t> take_slot();
  // Its uses do not count any more.
  void drop_slot(uint32_t slot);
  // All that have not ended, in slots that were not dropped.
  uint64_t uses() const;

 private:
  SharedArea(uint8_t* memory, uint64_t bytes, int fd) : memory_(memory), bytes_(bytes), fd_(fd) {}

  uint8_t* const memory_;
  const uint64_t bytes_;
  int fd_;

  mutable std::mutex mutex_;
  uint32_t next_slot_ = 0;
  std::vector<uint32_t> slots_;  // taken and not dropped; a slot is never given twice
};

// Memory that is lent instead of copied to workers of this host. Throws std::bad_alloc if there is none.
std::shared_ptr<uint8_t> allocate_lendable(uint64_t bytes);
// The area that these bytes lie in; null if they are not, or not wholly, in lendable memory.
std::shared_ptr<SharedArea> find_lendable(const uint8_t* data, uint64_t bytes);

}  // namespace holdfast
