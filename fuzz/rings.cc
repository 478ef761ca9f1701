// Rings in shared memory: both sides read, write, sleep and wake in any order, and a hostile one also writes whatever
// it likes into the memory that they share. As long as nobody does, what is read is what was written; afterwards reads
// and writes may fail, but never touch memory that is not theirs.
//
//   input   steps: what (1 byte), which side (1), then how much (2), or where (2) and which bytes (8)
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <holdfast/base/check.h>
#include <holdfast/transport/shared_rings.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr size_t kControlBytes = 4096;  // docs/shared_memory.md
constexpr size_t kMemoryBytes = kControlBytes + 2 * SharedRings::kRingBytes;

struct Side {
  std::unique_ptr<SharedRings> rings;
  uint64_t written = 0;
  uint64_t read = 0;
};

// The stream of each side: its byte number `at`.
uint8_t byte_at(uint64_t at) { return static_cast<uint8_t>(at * 31 + (at >> 8)); }

class Pair {
 public:
  Pair() {
    sides_[0].rings = SharedRings::make();
    HOLDFAST_CHECK(sides_[0].rings != nullptr);
    const int fd = sides_[0].rings->take_fd();
    sides_[1].rings = SharedRings::open(fd).take();
    memory_ = static_cast<uint8_t*>(::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    HOLDFAST_CHECK(memory_ != MAP_FAILED);
    ::close(fd);
  }
  ~Pair() { ::munmap(memory_, kMemoryBytes); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void step(Input& in) {
    const uint32_t what = in.below(8);
    const size_t side = in.below(2);
    SharedRings& rings = *sides_[side].rings;
    if (what < 2) return write(side, in.two_bytes());
    if (what < 4) return read(side, in.two_bytes());
    if (what == 4 && rings.fall_asleep() && is_honest_) HOLDFAST_CHECK(!rings.readable());
    if (what == 5 && rings.wait_for_room() && is_honest_) HOLDFAST_CHECK(!rings.has_room());
    if (what == 6) {
      rings.take_sleeping_reader();
      rings.take_waiting_writer();
      rings.stay_awake();
    }
    if (what == 7) scribble(in.two_bytes() % (kControlBytes - 7), in.take(8));
  }

 private:
  // In two pieces of memory of exactly that size, so that AddressSanitizer sees every byte too many.
  template <class Transfer>
  static ssize_t in_two_pieces(Bytes& first, Bytes& second, Transfer&& transfer) {
    const std::array<iovec, 2> pieces = {iovec{.iov_base = first.data(), .iov_len = first.size()},
                                         iovec{.iov_base = second.data(), .iov_len = second.size()}};
    const ssize_t moved = transfer(pieces.data(), pieces.size());
    HOLDFAST_CHECK(moved <= static_cast<ssize_t>(first.size() + second.size()));
    return moved;
  }

  void write(size_t side, size_t bytes) {
    Side& writer = sides_[side];
    Bytes first(bytes / 3);
    Bytes second(bytes - first.size());
    for (size_t i = 0; i < bytes; ++i) {
      (i < first.size() ? first[i] : second[i - first.size()]) = byte_at(writer.written + i);
    }
    const ssize_t sent = in_two_pieces(
        first, second, [&](const iovec* pieces, size_t count) { return writer.rings->write(pieces, count); });
    check_outcome(sent, bytes, SharedRings::kRingBytes - (writer.written - sides_[1 - side].read));
    if (sent > 0) writer.written += static_cast<uint64_t>(sent);
  }

  void read(size_t side, size_t bytes) {
    Side& reader = sides_[side];
    Bytes first(bytes / 3);
    Bytes second(bytes - first.size());
    const ssize_t got = in_two_pieces(
        first, second, [&](const iovec* pieces, size_t count) { return reader.rings->read(pieces, count); });
    check_outcome(got, bytes, sides_[1 - side].written - reader.read);
    for (ssize_t i = 0; i < got; ++i, ++reader.read) {
      const auto at = static_cast<size_t>(i);
      const uint8_t byte = at < first.size() ? first[at] : second[at - first.size()];
      HOLDFAST_CHECK(!is_honest_ || byte == byte_at(reader.read));
    }
  }

  // Of a transfer of up to `wanted` bytes where `possible` can be moved.
  void check_outcome(ssize_t moved, size_t wanted, uint64_t possible) const {
    if (moved < 0) HOLDFAST_CHECK(errno == EAGAIN || errno == EPROTO);
    if (!is_honest_) return;
    if (moved < 0) {
      HOLDFAST_CHECK(errno == EAGAIN && (possible == 0 || wanted == 0));
    } else {
      HOLDFAST_CHECK(static_cast<uint64_t>(moved) == std::min<uint64_t>(wanted, possible));
    }
  }

  void scribble(size_t at, ByteView bytes) {
    is_honest_ = false;
    std::memcpy(memory_ + at, bytes.data(), bytes.size());
  }

  std::array<Side, 2> sides_;
  uint8_t* memory_ = nullptr;
  bool is_honest_ = true;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Pair pair;
  for (holdfast::fuzz::Input in(data, size); !in.empty();) pair.step(in);
  return 0;
}
