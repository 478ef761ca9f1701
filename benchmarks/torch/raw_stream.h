// The floor for large values: bytes one way over a plain blocking TCP socket on loopback, with a byte back for each
// block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::bench {

class RawStream {
 public:
  RawStream();  // listens
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;
  // In the child: takes blocks, each into the same memory, until the connection ends.
  void serve() const;
  // In the parent.
  void connect();
  // Sends `count` blocks of that size, not waiting for one before the next; returns GB/s until the last byte is back.
  double send(const uint8_t* block, uint64_t bytes, size_t count) const;

 private:
  int listener_ = -1;
  int socket_ = -1;
  uint16_t port_ = 0;
};

}  // namespace holdfast::bench
