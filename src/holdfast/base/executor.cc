#include <holdfast/base/executor.h>

#include <holdfast/base/check.h>
#include <holdfast/base/error.h>

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

namespace holdfast {

namespace {

thread_local const Executor* current_executor = nullptr;

void set_thread_name(const std::string& name) {
  constexpr size_t kLengthMax = 15;  // the kernel's limit
  pthread_setname_np(pthread_self(), name.substr(0, kLengthMax).c_str());
}

}  // namespace

struct Executor::Runner {
  std::thread thread;
  std::condition_variable wake;
  bool awake = false;  // guarded by the executor's mutex_
};

void log_escaped_exception(const char* where) noexcept {
  try {
    Failure failure = describe_current_exception();
    std::fprintf(stderr, "holdfast: %s threw %s%s%s; dropped\n", where, failure.type.c_str(),
                 failure.type.empty() ? "" : ": ", failure.message.c_str());
  } catch (...) {
    std::fprintf(stderr, "holdfast: %s threw; dropped\n", where);
  }
}

Executor::Executor(ExecutorOptions options) : options_(std::move(options)) {
  if (options_.threads == 0 || options_.threads > options_.threads_max) {
    throw_failure({.code = Code::invalid_argument,
                   .message = "executor " + options_.name + ": threads must be from 1 to threads_max"});
  }
}

Executor::~Executor() { stop(); }

bool Executor::on_executor_thread() const { return current_executor == this; }

ExecutorStats Executor::stats() const {
  std::lock_guard lock(mutex_);
  return {.threads = running_ + blocked_ + idle_.size(),
          .blocked = blocked_,
          .idle = idle_.size(),
          .queued = begun_.size() + fresh_.size()};
}

void Executor::post_all(std::span<Closure> work, Turn turn) {
  Runner* woken = nullptr;
  bool unavailable = false;
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    std::deque<Closure>& queue = turn == Turn::begun ? begun_ : fresh_;
    for (Closure& one : work) queue.push_back(std::move(one));
    woken = add_runner();
    unavailable = running_ + blocked_ + idle_.size() == 0;
    for (size_t left = unavailable ? work.size() : 0; left > 0; queue.pop_back()) {
      work[--left] = std::move(queue.back());
    }
  }
  // Outside the lock, so that it does not wake only to wait for it. Runners live as long as the executor.
  if (woken != nullptr) woken->wake.notify_one();
  if (unavailable) {
    throw_failure({.code = Code::unavailable, .message = "executor " + options_.name + " cannot start any thread"});
  }
}

// Call with mutex_ held whenever the queue has grown, running_ has shrunk, or the one that was coming is there.
// Keeps this true: if work is queued, `threads` runners run, or one is coming, or no more can be started. One at a
// time comes, and then calls the next if there is still work: of many short closures it may have done them all by
// itself before another is awake. Returns a parked runner that the caller must notify, or nullptr.
Executor::Runner* Executor::add_runner() {
  if (stopping_ || no_work() || running_ >= options_.threads || coming_ != nullptr) return nullptr;
  if (!idle_.empty()) {
    Runner* runner = idle_.back();
    idle_.pop_back();
    runner->awake = true;
    ++running_;
    coming_ = runner;
    return runner;
  }
  if (running_ + blocked_ < options_.threads_max) start_runner();
  return nullptr;
}

// Under mutex_: starting is rare, and this way a failure is simple to undo.
void Executor::start_runner() {
  auto free = std::ranges::find_if(runners_, [](const auto& runner) { return !runner->thread.joinable(); });
  if (free == runners_.end()) free = runners_.insert(free, std::make_unique<Runner>());
  Runner* runner = free->get();
  try {
    runner->thread = std::thread([this, runner] { run(*runner); });
    ++running_;
    coming_ = runner;
  } catch (const std::system_error&) {
    // No thread to be had. The work stays queued; whichever runner ends its own work first takes it.
  }
}

void Executor::run(Runner& self) {
  set_thread_name(options_.name);
  current_executor = this;
  blocking_observer() = this;
  std::unique_lock lock(mutex_);
  Closure work;
  while (next_work(lock, self, work)) {
    Runner* woken = add_runner();
    lock.unlock();
    if (woken != nullptr) woken->wake.notify_one();
    try {
      work();
    } catch (...) {
      log_escaped_exception("a closure on an executor");
    }
    work.reset();
    lock.lock();
  }
  if (stopping_) return;
  std::thread ended_before = std::exchange(last_ended_, std::move(self.thread));
  lock.unlock();
  if (ended_before.joinable()) ended_before.join();
}

bool Executor::park(std::unique_lock<std::mutex>& lock, Runner& self) {
  --running_;
  self.awake = false;
  idle_.push_back(&self);
  const auto is_awake = [&] { return self.awake; };  // who wakes it has counted it in running_ again
  while (!self.wake.wait_for(lock, options_.idle_max, is_awake)) {
    if (running_ + blocked_ + idle_.size() <= options_.threads) continue;
    std::erase(idle_, &self);
    return false;
  }
  return true;
}

bool Executor::next_work(std::unique_lock<std::mutex>& lock, Runner& self, Closure& work) {
  if (coming_ == &self) coming_ = nullptr;
  while (!stopping_ && (no_work() || running_ > options_.threads)) {
    if (!park(lock, self)) return false;
    if (coming_ == &self) coming_ = nullptr;
  }
  if (stopping_) {
    --running_;
    return false;
  }
  const bool takes_fresh = begun_.empty() || (begun_in_a_row_ >= kBegunInARowMax && !fresh_.empty());
  begun_in_a_row_ = takes_fresh ? 0 : begun_in_a_row_ + 1;
  std::deque<Closure>& queue = takes_fresh ? fresh_ : begun_;
  work = std::move(queue.front());
  queue.pop_front();
  return true;
}

void Executor::on_block() {
  Runner* woken = nullptr;
  {
    std::lock_guard lock(mutex_);
    --running_;
    ++blocked_;
    woken = add_runner();
  }
  if (woken != nullptr) woken->wake.notify_one();
}

// May lift running_ above `threads` until one of them ends its closure: the wait is over, and to hold its
// thread back would only delay the answer.
void Executor::on_unblock() {
  std::lock_guard lock(mutex_);
  --blocked_;
  ++running_;
}

void Executor::stop() {
  HOLDFAST_CHECK(!on_executor_thread());
  std::deque<Closure> dropped[2];
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped[0].swap(begun_);
    dropped[1].swap(fresh_);
    for (Runner* runner : idle_) {
      runner->awake = true;
      ++running_;
      runner->wake.notify_one();
    }
    idle_.clear();
  }
  // Before joining: a destructor may complete a promise for which a running closure waits.
  for (std::deque<Closure>& queue : dropped) {
    while (!queue.empty()) queue.pop_front();
  }
  std::lock_guard join_lock(join_mutex_);
  // runners_ does not change any more: stopping_ is set.
  for (const std::unique_ptr<Runner>& runner : runners_) {
    if (runner->thread.joinable()) runner->thread.join();
  }
  if (last_ended_.joinable()) last_ended_.join();
}

}  // namespace holdfast
