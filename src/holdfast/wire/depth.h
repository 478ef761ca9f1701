// How deep values may nest, and the guard with which codecs of containers count it.
#pragma once

#include <cstddef>

namespace holdfast::wire {

// Levels of arrays and maps. Decoding recurses, so without a bound a few kilobytes from a peer would run a
// thread out of stack.
inline constexpr size_t kDepthMax = 64;

// Held by a codec while it writes or reads what is inside a container. Writer and Reader count alike, so
// what can be written can be read. Too deep: a Writer throws InvalidArgument, a Reader fails.
template <class WriterOrReader>
class DepthGuard {
 public:
  explicit DepthGuard(WriterOrReader& stream) : stream_(stream) { stream_.enter(); }
  ~DepthGuard() { stream_.leave(); }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  WriterOrReader& stream_;
};

}  // namespace holdfast::wire
