// For tests: which sanitizer this build has. A sanitizer makes code 3 to 20 times slower, so a sweep over many cases
// may take fewer of them there, while the dev preset runs all:
// - random worlds and searches that need many cases, not many threads: fewer under both;
// - bytes from a stranger: a third under AddressSanitizer, where the fuzz programs run, too; fewest under
//   ThreadSanitizer, since they are decoded by one thread.
#pragma once

namespace holdfast::test {

// g++ says it with the first, clang with the second.
#if defined(__has_feature)
#define HOLDFAST_HAS_FEATURE(feature) __has_feature(feature)
#else
#define HOLDFAST_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_THREAD__) || HOLDFAST_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif
#if defined(__SANITIZE_ADDRESS__) || HOLDFAST_HAS_FEATURE(address_sanitizer)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = kThreadSanitizer;
#endif

#undef HOLDFAST_HAS_FEATURE

}  // namespace holdfast::test
