// TimerQueue<Key>: which Key is due next. An indexed binary heap: add, remove and retime take O(log n) and
// allocate nothing once the queue has been as long before. Entries of the same time come out in the order
// in which they were added, so that a simulation is repeatable. Not synchronised: the owner sees to that.
#pragma once

#include <holdfast/base/check.h>
#include <holdfast/base/time.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace holdfast {

// Names one entry until it is popped or removed; then the number may be given to another entry.
using TimerHandle = uint32_t;

template <class Key>
class TimerQueue {
 public:
  TimerHandle add(Time time, Key key) {
    if (free_.empty()) {
      HOLDFAST_CHECK(slots_.size() < kNone);
      free_.push_back(static_cast<TimerHandle>(slots_.size()));
      slots_.emplace_back();
    }
    const TimerHandle handle = free_.back();
    free_.pop_back();
    slots_[handle].key = std::move(key);
    heap_.push_back({time, added_++, handle});
    sift_up(heap_.size() - 1);
    return handle;
  }

  void remove(TimerHandle handle) {
    HOLDFAST_CHECK(contains(handle));
    take_out(slots_[handle].position);
  }

  // Among entries of the same time it now counts as the last one added.
  void retime(TimerHandle handle, Time time) {
    HOLDFAST_CHECK(contains(handle));
    const size_t at = slots_[handle].position;
    heap_[at].time = time;
    heap_[at].order = added_++;
    restore(at);
  }

  // The time of the first entry; kNever if there is none.
  Time next() const { return heap_.empty() ? kNever : heap_[0].time; }

  // Takes the first entry out if its time is `now` or earlier.
  bool pop_due(Time now, Key& out) {
    if (heap_.empty() || heap_[0].time > now) return false;
    out = take_out(0);
    return true;
  }

  bool contains(TimerHandle handle) const { return handle < slots_.size() && slots_[handle].position != kNone; }
  size_t size() const { return heap_.size(); }
  bool empty() const { return heap_.empty(); }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Slot {
    uint32_t position = kNone;  // in heap_; kNone: free
    Key key{};
  };
  struct Entry {
    Time time;
    uint64_t order;
    TimerHandle handle;
    bool before(const Entry& other) const { return time != other.time ? time < other.time : order < other.order; }
  };

  void place(size_t at, const Entry& entry) {
    heap_[at] = entry;
    slots_[entry.handle].position = static_cast<uint32_t>(at);
  }

  void sift_up(size_t at) {
    const Entry entry = heap_[at];
    while (at > 0 && entry.before(heap_[(at - 1) / 2])) {
      place(at, heap_[(at - 1) / 2]);
      at = (at - 1) / 2;
    }
    place(at, entry);
  }

  void sift_down(size_t at) {
    const Entry entry = heap_[at];
    for (;;) {
      size_t child = 2 * at + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
      if (!heap_[child].before(entry)) break;
      place(at, heap_[child]);
      at = child;
    }
    place(at, entry);
  }

  // The entry at `at` has changed.
  void restore(size_t at) {
    if (at > 0 && heap_[at].before(heap_[(at - 1) / 2])) {
      sift_up(at);
    } else {
      sift_down(at);
    }
  }

  Key take_out(size_t at) {
    Slot& slot = slots_[heap_[at].handle];
    slot.position = kNone;
    free_.push_back(heap_[at].handle);
    const Entry last = heap_.back();
    heap_.pop_back();
    if (at < heap_.size()) {
      place(at, last);
      restore(at);
    }
    return std::exchange(slot.key, Key{});
  }

  std::vector<Entry> heap_;
  std::vector<Slot> slots_;  // by handle
  std::vector<TimerHandle> free_;
  uint64_t added_ = 0;
};

}  // namespace holdfast
