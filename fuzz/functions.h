// What peers may call in the fuzzed workers, for call.cc, rref.cc and make_corpus.cc.
#pragma once

#include <holdfast/rref/rref.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::fuzz {

inline std::string greet(const std::string& name) { return "hello " + name; }
inline int64_t add(int64_t a, int32_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline size_t total(const std::vector<Bytes>& parts, const std::optional<std::map<std::string, double>>& more) {
  size_t bytes = more ? more->size() : 0;
  for (const Bytes& part : parts) bytes += part.size();
  return bytes;
}
inline int64_t throws_a_number(int64_t n) { throw n; }
inline void nothing() {}
// Of references.
inline int64_t size_of(const std::string& text) { return static_cast<int64_t>(text.size()); }
inline RRef<std::string> pass_on(RRef<std::string> text) { return text; }

}  // namespace holdfast::fuzz
