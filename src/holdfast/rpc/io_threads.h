// IoThreads: makes sure that exactly one thread of a worker waits for the network, although that thread also
// runs short handlers itself. The thread that waits has *the role*. It loses the role when it blocks, or when a
// handler that it runs takes long (a watchdog sees to that); then another thread, a spare or a new one, takes it.
//
// Owned by the Runtime. Threads start when first needed and end in stop().
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <holdfast/base/blocking.h>

namespace holdfast {

class IoThreads final : private BlockingObserver {
 public:
  // `turn` waits for the network once and handles what came. It is called again and again, by the thread that
  // has the role.
  explicit IoThreads(std::function<void()> turn, std::string name);
  ~IoThreads();

  void start();
  // Joins all threads; the caller makes a waiting turn return (`wake`).
  void stop(const std::function<void()>& wake);

  // The calling thread has the role now.
  bool has_role() const;

  // Around each handler that the thread with the role runs itself.
  class Inline {
   public:
    explicit Inline(IoThreads& threads) : threads_(threads), serial_(threads_.begin_inline()) {}
    ~Inline() { threads_.end_inline(serial_); }
    Inline(const Inline&) = delete;
    Inline& operator=(const Inline&) = delete;

   private:
    IoThreads& threads_;
    const uint64_t serial_;
  };

 private:
  void on_block() override;
  void on_unblock() override {}

  uint64_t begin_inline() {
    const uint64_t serial = serial_.fetch_add(1) + 1;
    if (watchdog_asleep_.load()) wake_watchdog();
    return serial;
  }
  void end_inline(uint64_t serial);
  void wake_watchdog();
  void run(uint32_t index);
  void watch();
  void add_thread();                    // mutex_ held
  void take_role_from(uint32_t index);  // mutex_ held

  const std::function<void()> turn_;
  const std::string name_;

  std::mutex mutex_;  // guards threads_, waiting_, and changes of holder_ and stopping_
  std::condition_variable role_free_;
  std::condition_variable watchdog_wake_;
  std::vector<std::thread> threads_;
  size_t waiting_ = 0;
  std::atomic<uint32_t> holder_{0};  // index of the thread with the role, from 1; 0: nobody
  std::atomic<bool> stopping_{false};

  // Odd while the thread with the role runs a handler inline; changes with each. A thread that loses the role inside
  // a handler no longer counts: the number is about the one that has the role now.
  std::atomic<uint64_t> serial_{0};
  std::atomic<bool> watchdog_asleep_{true};
  std::thread watchdog_;
};

}  // namespace holdfast
