// ReceivePool: memory for attachments as they arrive, aligned to kAttachmentAlignment. Large blocks are used again:
// fresh ones come from the kernel page by page as they are touched, which takes about as long as reading the bytes
// from the socket.
//
// A transport has one. A block is given back from whatever thread drops it last, also after the transport has ended,
// so the pool lives as long as its last block. What lies idle is bounded, and freed by trim() a second or two later.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <holdfast/base/time.h>

namespace holdfast {

inline constexpr size_t kAttachmentAlignment = 64;
// Smaller blocks are not kept: malloc does that well.
inline constexpr uint64_t kPooledBytesMin = 128 * 1024;

// How large the block is that holds so many (kPooledBytesMin or more). Four sizes for each power of two: a block that
// served one tensor serves others of about its size, and at most a fifth of it is wasted.
uint64_t pooled_block_bytes(uint64_t bytes);

class ReceivePool final : public std::enable_shared_from_this<ReceivePool> {
 public:
  explicit ReceivePool(uint64_t idle_bytes_max = uint64_t{512} << 20) : idle_bytes_max_(idle_bytes_max) {}
  ~ReceivePool();
  ReceivePool(const ReceivePool&) = delete;
  ReceivePool& operator=(const ReceivePool&) = delete;

  // Null if there is no memory, even without what lies idle.
  std::shared_ptr<uint8_t> allocate(uint64_t bytes);
  // Frees what has been idle for kIdleTime.
  void trim(Time now) { free_idle_before(now - kIdleTime); }
  uint64_t idle_bytes() const { return idle_bytes_.load(std::memory_order_relaxed); }

  static constexpr Duration kIdleTime = std::chrono::seconds(1);

 private:
  struct Idle {
    uint8_t* at;
    Time since;
  };

  uint8_t* take(uint64_t block_bytes);
  void give_back(uint8_t* at, uint64_t block_bytes);
  void free_idle_before(Time since);

  const uint64_t idle_bytes_max_;
  std::mutex mutex_;
  // By size. Entries come with give_back and go with take and trim; the last one is the one used last.
  std::map<uint64_t, std::vector<Idle>> idle_;
  std::atomic<uint64_t> idle_bytes_ = 0;  // changes under mutex_
};

}  // namespace holdfast
