// Mapping: a part of a descriptor's memory, mapped for as long as this lives. Free of shared state.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace holdfast {

class Mapping {
 public:
  Mapping() = default;
  // `offset` need not be that of a page. data() is null if it could not be mapped.
  Mapping(int fd, uint64_t offset, uint64_t bytes, int flags) {
    const uint64_t before = offset % static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    mapped_bytes_ = before + bytes;
    memory_ = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset - before));
    if (memory_ != MAP_FAILED) data_ = static_cast<uint8_t*>(memory_) + before;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(memory_, mapped_bytes_);
  }
  uint8_t* data() const { return data_; }

 private:
  void* memory_ = nullptr;
  uint64_t mapped_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace holdfast
