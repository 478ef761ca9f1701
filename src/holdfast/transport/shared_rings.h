// SharedRings: memory that two processes of one host have mapped, with a stream of bytes in each direction through a
// ring. docs/shared_memory.md has the layout and the rules. Does no I/O and wakes nobody: it says when the other side
// wants to be woken.
//
// Owned by one connection. One thread at a time reads, one at a time writes; both may do so at once. The other side is
// not trusted: whatever it writes into the memory, read() and write() answer EPROTO at worst.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <holdfast/base/error.h>

struct iovec;

namespace holdfast {

class SharedRings {
 public:
  static constexpr size_t kRingBytes = 128 * 1024;

  // For the side that dials: new memory. Null if the system gives none.
  static std::unique_ptr<SharedRings> make();
  // For the side that accepts: the memory behind a descriptor from a stranger, which stays the caller's.
  static Result<std::unique_ptr<SharedRings>> open(int memory_fd);
  ~SharedRings();
  SharedRings(const SharedRings&) = delete;
  SharedRings& operator=(const SharedRings&) = delete;

  // What make() made, for the other side; the caller closes it.
  int take_fd();

  // As readv and writev of a socket that does not block: how many bytes, or -1 with errno EAGAIN, or EPROTO if the
  // other side does not keep to the rules.
  ssize_t read(const iovec* pieces, size_t count);
  ssize_t write(const iovec* pieces, size_t count);

  // Any thread. Something to read, or a broken rule to find.
  bool readable() const {
    return in_->written.load(std::memory_order_acquire) != read_bytes_.load(std::memory_order_relaxed);
  }
  // Any thread. Half of the ring, or a broken rule.
  bool has_room() const;

  // The reader, before it sleeps. False: stay awake, there is something to read.
  bool fall_asleep();
  void stay_awake() {
    if (in_->reader_asleep.load(std::memory_order_relaxed) != 0) in_->reader_asleep.store(0, std::memory_order_relaxed);
  }
  // The writer, before it waits for room. False: there is some.
  bool wait_for_room();

  // After write(): the reader at the other side sleeps. After read(): the writer at the other side waits, and there is
  // room. True once for each time that it fell asleep.
  bool take_sleeping_reader();
  bool take_waiting_writer();

 private:
  // Of one ring. The fields have cache lines of their own: each is written by one side and read by the other. (Two
  // lines, since processors fetch them in pairs.)
  struct Control {
    alignas(128) std::atomic<uint64_t> written;
    alignas(128) std::atomic<uint64_t> read;
    alignas(128) std::atomic<uint32_t> reader_asleep;
    alignas(128) std::atomic<uint32_t> writer_asleep;
  };
  static constexpr size_t kControlBytes = 4096;
  static constexpr size_t kBytes = kControlBytes + 2 * kRingBytes;

  SharedRings(uint8_t* memory, bool dials);
  static uint8_t* map(int fd);

  uint8_t* const memory_;
  Control* const in_;
  Control* const out_;
  uint8_t* const in_ring_;
  uint8_t* const out_ring_;
  int fd_ = -1;

  // Our own counters: those in the memory are only there to be told.
  std::atomic<uint64_t> read_bytes_ = 0;    // changed by the reading thread only
  alignas(64) uint64_t written_bytes_ = 0;  // the writing thread's, as are the following
  uint64_t room_seen_until_ = kRingBytes;   // so much may be written in all, as far as we have looked
};

}  // namespace holdfast
