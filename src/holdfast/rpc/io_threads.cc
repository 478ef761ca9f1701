#include <holdfast/rpc/io_threads.h>

#include <pthread.h>

#include <chrono>
#include <system_error>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

// A handler that runs longer on the thread with the role costs it the role.
constexpr auto kPatience = std::chrono::milliseconds(5);

thread_local uint32_t this_index = 0;
thread_local const IoThreads* this_owner = nullptr;

}  // namespace

IoThreads::IoThreads(std::function<void()> turn, std::string name) : turn_(std::move(turn)), name_(std::move(name)) {}

IoThreads::~IoThreads() { HOLDFAST_CHECK(threads_.empty()); }

void IoThreads::start() {
  std::lock_guard lock(mutex_);
  add_thread();
}

void IoThreads::stop(const std::function<void()>& wake) {
  std::vector<std::thread> threads;
  std::thread watchdog;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    watchdog.swap(watchdog_);
  }
  role_free_.notify_all();
  watchdog_wake_.notify_all();
  wake();
  for (std::thread& thread : threads) thread.join();
  if (watchdog.joinable()) watchdog.join();
}

bool IoThreads::has_role() const { return this_owner == this && holder_.load(std::memory_order_relaxed) == this_index; }

void IoThreads::add_thread() {
  if (stopping_) return;
  const auto index = static_cast<uint32_t>(threads_.size() + 1);
  threads_.emplace_back([this, index] { run(index); });
  pthread_setname_np(threads_.back().native_handle(), name_.substr(0, 15).c_str());
}

void IoThreads::run(uint32_t index) {
  this_index = index;
  this_owner = this;
  blocking_observer() = this;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (holder_ != 0) {
      ++waiting_;
      role_free_.wait(lock, [this] { return holder_ == 0 || stopping_; });
      --waiting_;
      continue;
    }
    holder_ = index;
    lock.unlock();
    while (holder_ == index && !stopping_) turn_();
    lock.lock();
  }
}

void IoThreads::end_inline(uint64_t serial) {
  if (serial_.compare_exchange_strong(serial, serial + 1)) return;
  // The role was taken from this thread meanwhile. Wait until that is complete, so that has_role() tells.
  std::lock_guard lock(mutex_);
}

void IoThreads::take_role_from(uint32_t index) {
  if (holder_ != index) return;
  holder_ = 0;
  if (waiting_ > 0) {
    role_free_.notify_one();
    return;
  }
  try {
    add_thread();
  } catch (const std::system_error&) {
    holder_ = index;  // no thread to be had: this one goes on when it can
  }
}

void IoThreads::on_block() {
  if (!has_role()) return;
  std::lock_guard lock(mutex_);
  if (holder_ != this_index) return;           // the watchdog was faster
  if (serial_ % 2 == 1) serial_.fetch_add(1);  // the handler that blocks
  take_role_from(this_index);
}

void IoThreads::wake_watchdog() {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  watchdog_asleep_ = false;
  if (!watchdog_.joinable()) {
    watchdog_ = std::thread([this] { watch(); });
    pthread_setname_np(watchdog_.native_handle(), "hf-watchdog");
  } else {
    watchdog_wake_.notify_one();
  }
}

// Looks now and then while handlers run inline; sleeps while none do.
void IoThreads::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    uint64_t before = serial_;
    const uint32_t holder = holder_;
    watchdog_wake_.wait_for(lock, kPatience, [this] { return stopping_.load(); });
    if (serial_ != before) continue;
    if (before % 2 == 1) {
      if (!serial_.compare_exchange_strong(before, before + 1)) continue;
      // It is still in the same handler, and cannot begin another before the lock is free.
      take_role_from(holder);
      ++before;
    }
    watchdog_asleep_ = true;
    if (serial_ != before) {
      watchdog_asleep_ = false;  // a handler began in between and may not have seen the flag
      continue;
    }
    watchdog_wake_.wait(lock, [this] { return !watchdog_asleep_ || stopping_; });
  }
}

}  // namespace holdfast
