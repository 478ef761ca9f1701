// Integers in MessagePack are big-endian, at any alignment.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace holdfast::wire {

template <class T>
T swap_to_big_endian(T value) {
  if constexpr (std::endian::native == std::endian::big || sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    static_assert(sizeof(T) == 8);
    return __builtin_bswap64(value);
  }
}

template <class T>
void store_big_endian(uint8_t* at, T value) {
  value = swap_to_big_endian(value);
  std::memcpy(at, &value, sizeof(T));
}

template <class T>
T load_big_endian(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return swap_to_big_endian(value);
}

}  // namespace holdfast::wire
