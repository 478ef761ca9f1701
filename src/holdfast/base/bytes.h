// Bytes: an owned, growable run of bytes. Growing it does not write zeros first.
// It is also the type by which user functions take and return raw bytes (MessagePack "bin").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace holdfast {

template <class T>
struct UninitializedAllocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  UninitializedAllocator() = default;
  template <class U>
  UninitializedAllocator(const UninitializedAllocator<U>&) noexcept {}
  template <class U>
  void construct(U* where) noexcept {
    ::new (static_cast<void*>(where)) U;
  }
  template <class U, class... Args>
  void construct(U* where, Args&&... args) {
    ::new (static_cast<void*>(where)) U(std::forward<Args>(args)...);
  }
};

using Bytes = std::vector<uint8_t, UninitializedAllocator<uint8_t>>;
using ByteView = std::span<const uint8_t>;

}  // namespace holdfast
