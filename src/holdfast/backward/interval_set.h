// IntervalSet: a set of numbers that come mostly in rows, kept as their first and last.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

namespace holdfast {

class IntervalSet {
 public:
  // All from first to last; none if first > last.
  void insert(uint64_t first, uint64_t last) {
    if (first > last) return;
    auto at = intervals_.upper_bound(first);
    if (at != intervals_.begin() && touches(std::prev(at)->second, first)) --at;
    while (at != intervals_.end() && touches(last, at->first)) {
      first = std::min(first, at->first);
      last = std::max(last, at->second);
      at = intervals_.erase(at);
    }
    intervals_.emplace(first, last);
  }
  void insert(uint64_t number) { insert(number, number); }
  bool contains(uint64_t number) const {
    auto at = intervals_.upper_bound(number);
    return at != intervals_.begin() && std::prev(at)->second >= number;
  }
  size_t interval_count() const { return intervals_.size(); }

 private:
  // Whether an interval that ends at `last` and one that begins at `first`, or before, are one.
  static bool touches(uint64_t last, uint64_t first) { return last >= first || last + 1 == first; }

  std::map<uint64_t, uint64_t> intervals_;  // first to last; apart by at least one number
};

}  // namespace holdfast
