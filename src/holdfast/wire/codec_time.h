// The codec of std::chrono::duration: a signed number of nanoseconds, whatever the unit on either side.
// What does not fit (about 292 years) becomes the largest or smallest number, and that becomes the receiver's
// max() or min(): so "for ever" stays for ever.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>

#include <holdfast/wire/codec.h>

namespace holdfast::wire {

template <class Rep, class Period>
requires((Number<Rep> || std::floating_point<Rep>)&&sizeof(Rep) <= 8) struct Codec<std::chrono::duration<Rep, Period>> {
  using Duration = std::chrono::duration<Rep, Period>;
  using Scale = std::ratio_divide<Period, std::nano>;  // nanoseconds in one unit

  static void encode(Writer& writer, const Duration& value) { writer.integer(to_ns(value.count())); }

  static void decode(Reader& reader, Duration& out) {
    const int64_t ns = reader.integer();
    if (ns == INT64_MAX) {
      out = Duration::max();
    } else if (ns == INT64_MIN) {
      out = Duration::min();
    } else if constexpr (std::floating_point<Rep>) {
      out = Duration(static_cast<Rep>(static_cast<long double>(ns) * Scale::den / Scale::num));
    } else {
      const Wide scaled = static_cast<Wide>(ns) * Scale::den;
      const Wide count = scaled / Scale::num;
      out = Duration::zero();
      if (count * Scale::num != scaled || count < std::numeric_limits<Rep>::min() ||
          count > std::numeric_limits<Rep>::max()) {
        reader.fail("expected a duration in units of " + std::to_string(Scale::num) + "/" + std::to_string(Scale::den) +
                    " ns, found " + std::to_string(ns) + " ns, which does not fit");
      } else {
        out = Duration(static_cast<Rep>(count));
      }
    }
  }

  static std::string type_name() { return "duration"; }

 private:
  using Wide = __int128_t;  // a 64-bit count times a 64-bit ratio

  static int64_t to_ns(Rep count) {
    if constexpr (std::floating_point<Rep>) {
      const long double ns = static_cast<long double>(count) * Scale::num / Scale::den;
      if (ns >= 0x1p63L) return INT64_MAX;
      if (ns <= -0x1p63L) return INT64_MIN;
      if (ns != ns) return 0;  // not a number
      return static_cast<int64_t>(ns < 0 ? ns - 0.5L : ns + 0.5L);
    } else {
      const Wide ns = static_cast<Wide>(count) * Scale::num / Scale::den;
      if (ns > INT64_MAX) return INT64_MAX;
      if (ns < INT64_MIN) return INT64_MIN;
      return static_cast<int64_t>(ns);
    }
  }
};

}  // namespace holdfast::wire
