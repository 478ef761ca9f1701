#include <holdfast/transport/copy_crew.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include <holdfast/transport/other_cores.h>
#include <holdfast/transport/spin_policy.h>
#include <holdfast/transport/streaming_copy.h>

namespace holdfast {

namespace {

constexpr uint32_t kFailuresMax = 6;

}  // namespace

CopyCrew::~CopyCrew() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (helper_.joinable()) helper_.join();
}

uint64_t CopyCrew::take_parts(Job& job) {
  uint64_t parts = 0;
  for (;; ++parts) {
    const size_t at = job.next.fetch_add(kPartBytes, std::memory_order_relaxed);
    if (at >= job.bytes) return parts;
    streaming_copy(job.to + at, job.from + at, std::min(kPartBytes, job.bytes - at));
  }
}

void CopyCrew::copy(uint8_t* to, const uint8_t* from, size_t bytes) {
  Job job{.to = to, .from = from, .bytes = bytes};
  if (bytes < kSharedBytesMin || !begin_job(job)) return streaming_copy(to, from, bytes);
  take_parts(job);
  end_job(job);
}

bool CopyCrew::begin_job(Job& job) {
  // Where the scheduler would put it, beside the thread that wakes it, it would not run before this one is done.
  const std::optional<Cores> cores = find_cores();
  if (!cores) return false;
  {
    const std::lock_guard lock(mutex_);
    if (in_use_) return false;
    if (skip_ > 0) {
      --skip_;
      return false;
    }
    if (!helper_.joinable()) {
      try {
        helper_ = std::thread([this] { help(); });
      } catch (const std::system_error&) {
        return false;  // no thread to be had
      }
      pthread_setname_np(helper_.native_handle(), "hf-copy");
    }
    ::pthread_setaffinity_np(helper_.native_handle(), sizeof(cores->others), &cores->others);
    in_use_ = true;
    job_ = &job;
  }
  wake_.notify_one();
  return true;
}

void CopyCrew::end_job(Job& job) {
  {
    const std::lock_guard lock(mutex_);
    job_ = nullptr;
  }
  // It is in its last part. Nobody else can begin to use this Job.
  while (helping_.load(std::memory_order_acquire)) {
    if (!ask_for_a_moment([this] { return !helping_.load(std::memory_order_acquire); })) ::sched_yield();
  }
  const std::lock_guard lock(mutex_);
  in_use_ = false;
  parts_helped_ += job.parts_helped;
  failures_ = job.parts_helped > 0 ? 0 : std::min(failures_ + 1, kFailuresMax);
  skip_ = failures_ == 0 ? 0 : (uint32_t{1} << failures_) - 2;
}

void CopyCrew::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return job_ != nullptr || stopping_; });
    if (stopping_) return;
    Job& job = *job_;
    job_ = nullptr;
    helping_ = true;
    lock.unlock();
    job.parts_helped = take_parts(job);
    helping_.store(false, std::memory_order_release);
    lock.lock();
  }
}

}  // namespace holdfast
