#include <holdfast/transport/receive_pool.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

// In a build with AddressSanitizer an idle block may not be touched, as if it had been freed.
// (The header's macros do nothing in others.)
#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes) (static_cast<void>(at), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) (static_cast<void>(at), static_cast<void>(bytes))
#endif

namespace holdfast {

namespace {

constexpr uint64_t kHugePageBytes = 2 * 1024 * 1024;

// Small memory is taken a little larger, and aligned inside: one quick allocation, where aligned_alloc is a slow one
// and its owner a second.
constexpr uint64_t kInsideAlignedBytesMax = 1024;

// In huge pages, if the kernel has them, clearing takes a fraction of the time; else nothing changes.
uint8_t* fresh_block(uint64_t block_bytes) {
  const bool huge = block_bytes >= 2 * kHugePageBytes;
  const uint64_t alignment = huge ? kHugePageBytes : kAttachmentAlignment;
  const uint64_t rounded = (block_bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
  if (huge && memory != nullptr) madvise(memory, rounded, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(memory);
}

}  // namespace

uint64_t pooled_block_bytes(uint64_t bytes) {
  const uint64_t step = std::bit_floor(bytes) / 4;
  return (bytes + step - 1) / step * step;
}

ReceivePool::~ReceivePool() { free_idle_before(kNever); }

std::shared_ptr<uint8_t> ReceivePool::allocate(uint64_t bytes) {
  if (bytes <= kInsideAlignedBytesMax) {
    auto memory = std::make_shared_for_overwrite<uint8_t[]>(bytes + kAttachmentAlignment - 1);
    const auto address = reinterpret_cast<uintptr_t>(memory.get());
    uint8_t* aligned = memory.get() + (kAttachmentAlignment - address % kAttachmentAlignment) % kAttachmentAlignment;
    return {std::move(memory), aligned};
  }
  if (bytes < kPooledBytesMin) return {fresh_block(bytes), [](uint8_t* at) { std::free(at); }};

  const uint64_t block_bytes = pooled_block_bytes(bytes);
  uint8_t* at = take(block_bytes);
  if (at == nullptr) at = fresh_block(block_bytes);
  if (at == nullptr) {
    free_idle_before(kNever);
    at = fresh_block(block_bytes);
  }
  if (at == nullptr) return nullptr;
  return {at, [pool = shared_from_this(), block_bytes](uint8_t* used) { pool->give_back(used, block_bytes); }};
}

uint8_t* ReceivePool::take(uint64_t block_bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = idle_.find(block_bytes);
  if (found == idle_.end()) return nullptr;
  uint8_t* at = found->second.back().at;
  found->second.pop_back();
  if (found->second.empty()) idle_.erase(found);
  idle_bytes_ -= block_bytes;
  ASAN_UNPOISON_MEMORY_REGION(at, block_bytes);
  return at;
}

void ReceivePool::give_back(uint8_t* at, uint64_t block_bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + block_bytes <= idle_bytes_max_) {
      ASAN_POISON_MEMORY_REGION(at, block_bytes);
      idle_[block_bytes].push_back({.at = at, .since = steady_now()});
      idle_bytes_ += block_bytes;
      return;
    }
  }
  std::free(at);
}

void ReceivePool::free_idle_before(Time since) {
  std::vector<uint8_t*> unused;
  {
    const std::lock_guard lock(mutex_);
    for (auto size = idle_.begin(); size != idle_.end();) {
      auto& [block_bytes, blocks] = *size;
      const auto keep =
          std::find_if(blocks.begin(), blocks.end(), [&](const Idle& idle) { return idle.since >= since; });
      for (auto block = blocks.begin(); block != keep; ++block) {
        ASAN_UNPOISON_MEMORY_REGION(block->at, block_bytes);
        unused.push_back(block->at);
        idle_bytes_ -= block_bytes;
      }
      blocks.erase(blocks.begin(), keep);
      size = blocks.empty() ? idle_.erase(size) : std::next(size);
    }
  }
  for (uint8_t* at : unused) std::free(at);
}

}  // namespace holdfast
