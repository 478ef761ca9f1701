#include "allocations.h"

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <cstdint>

#include <holdfast/base/check.h>

namespace holdfast::fuzz {

namespace {

bool counting = false;
int64_t held_bytes = 0;
int64_t peak = 0;

void on_malloc(const volatile void*, size_t size) {
  if (!counting) return;
  held_bytes += static_cast<int64_t>(size);
  peak = std::max(peak, held_bytes);
}

void on_free(const volatile void* memory) {
  if (!counting || memory == nullptr) return;
  held_bytes -= static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(memory)));
}

}  // namespace

Allocations::Allocations() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  HOLDFAST_CHECK(installed != 0);
  held_bytes = peak = 0;
  counting = true;
}

Allocations::~Allocations() { counting = false; }

size_t Allocations::peak_bytes() const { return static_cast<size_t>(peak); }

}  // namespace holdfast::fuzz
