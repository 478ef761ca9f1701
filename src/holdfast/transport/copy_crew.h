// CopyCrew: copies large pieces of memory with a second thread's help. One core alone does not use all of a machine's
// memory: two copy up to twice as fast (docs/performance.md, Large tensors).
//
// The caller's thread copies part after part, and so does the helper, if a core is free for it: whoever comes takes the
// next one. So a helper that does not get to run costs nothing but the attempt, and after attempts in vain it is not
// woken for a while. It must be waited for only if it loses its core in the middle of a part. It runs on the cores that
// the caller's thread may use, but not on the one that it is on.
//
// Owned by a transport. copy() may be called by any thread; one copy at a time has the helper, others are made alone.
// The thread (hf-copy) starts when it is first needed, and ends in the destructor.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace holdfast {

class CopyCrew {
 public:
  // Less than this is copied alone: to wake a thread takes longer.
  static constexpr size_t kSharedBytesMin = 2 * 1024 * 1024;
  static constexpr size_t kPartBytes = 256 * 1024;

  CopyCrew() = default;
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // As streaming_copy(), which it is made of.
  void copy(uint8_t* to, const uint8_t* from, size_t bytes);
  // How many parts the helper has copied so far.
  uint64_t parts_helped() const { return parts_helped_; }

 private:
  struct Job {
    uint8_t* to;
    const uint8_t* from;
    size_t bytes;
    std::atomic<size_t> next = 0;  // where the next part begins
    uint64_t parts_helped = 0;     // the helper's, while it helps
  };

  // Copies parts until none is left; how many.
  static uint64_t take_parts(Job& job);
  // True: the helper knows of it, and end_job() must follow.
  bool begin_job(Job& job);
  void end_job(Job& job);
  void help();

  std::mutex mutex_;  // guards what follows; held for a few instructions at a time
  std::condition_variable wake_;
  Job* job_ = nullptr;   // for the helper to begin; the caller's, who takes it back before it returns
  bool in_use_ = false;  // from begin_job() to end_job()
  bool stopping_ = false;
  uint32_t failures_ = 0;  // attempts in a row that the helper had no part in
  uint32_t skip_ = 0;      // so many more copies are made alone for that
  std::thread helper_;

  std::atomic<bool> helping_ = false;  // the helper uses a Job. It is set under mutex_
  std::atomic<uint64_t> parts_helped_ = 0;
};

}  // namespace holdfast
