#include <holdfast/transport/streaming_copy.h>

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace holdfast {

#ifdef __SSE2__

namespace {

constexpr size_t kLine = 64;

// `to` is aligned to a line.
void copy_line(uint8_t* to, const uint8_t* from) {
  const auto* in = reinterpret_cast<const __m128i*>(from);
  auto* out = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
  const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
  _mm_stream_si128(out, a);
  _mm_stream_si128(out + 1, b);
  _mm_stream_si128(out + 2, c);
  _mm_stream_si128(out + 3, d);
}

}  // namespace

void streaming_copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  const size_t before_line = (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine;
  const size_t head = std::min(bytes, before_line);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; bytes - done >= kLine; done += kLine) copy_line(to + done, from + done);
  std::memcpy(to + done, from + done, bytes - done);
  _mm_sfence();  // streaming stores may otherwise become visible after later ones
}

#else

void streaming_copy(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace holdfast
