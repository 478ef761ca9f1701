// Bytes: an owned, growable run of bytes. Growing it neither writes zeros nor moves byte by byte, which a
// std::vector with any allocator does. It is also the type by which user functions take and return raw bytes
// (MessagePack "bin").
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <new>
#include <span>
#include <utility>

namespace holdfast {

using ByteView = std::span<const uint8_t>;

class Bytes {
 public:
  using value_type = uint8_t;

  Bytes() = default;
  // Their values are whatever was in memory.
  explicit Bytes(size_t size) { resize(size); }
  Bytes(size_t size, uint8_t value) : Bytes(size) { std::fill(begin(), end(), value); }
  Bytes(std::initializer_list<uint8_t> values) { append(values.begin(), values.size()); }
  template <std::forward_iterator It>
  Bytes(It first, It last) : Bytes(static_cast<size_t>(std::distance(first, last))) {
    std::copy(first, last, begin());
  }
  Bytes(const Bytes& other) { append(other.data_, other.size_); }
  Bytes(Bytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  Bytes& operator=(Bytes other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~Bytes() {
    if (data_ != nullptr) std::free(data_);  // most that end were moved from
  }

  uint8_t* data() { return data_; }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  uint8_t* begin() { return data_; }
  uint8_t* end() { return data_ + size_; }
  const uint8_t* begin() const { return data_; }
  const uint8_t* end() const { return data_ + size_; }
  uint8_t& operator[](size_t i) { return data_[i]; }
  uint8_t operator[](size_t i) const { return data_[i]; }
  uint8_t& back() { return data_[size_ - 1]; }
  uint8_t back() const { return data_[size_ - 1]; }

  void clear() { size_ = 0; }
  void reserve(size_t capacity) {
    if (capacity > capacity_) reallocate(capacity);
  }
  // New bytes are not initialised.
  void resize(size_t size) {
    if (size > capacity_) reallocate(std::max(size, size_ == 0 ? size : 2 * capacity_));
    size_ = size;
  }
  void push_back(uint8_t value) {
    resize(size_ + 1);
    data_[size_ - 1] = value;
  }
  void pop_back() { --size_; }
  // `from` may not point into this.
  void append(const uint8_t* from, size_t count) {
    if (count == 0) return;
    resize(size_ + count);
    std::memcpy(data_ + size_ - count, from, count);
  }
  void append(ByteView bytes) { append(bytes.data(), bytes.size()); }

  friend bool operator==(const Bytes& a, const Bytes& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data_, b.data_, a.size_) == 0);
  }
  friend auto operator<=>(const Bytes& a, const Bytes& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void reallocate(size_t capacity) {
    void* moved = std::realloc(data_, capacity);
    if (moved == nullptr) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(moved);
    capacity_ = capacity;
  }

  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace holdfast
