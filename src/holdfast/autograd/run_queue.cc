#include <holdfast/autograd/run_queue.h>

#include <utility>

namespace holdfast::autograd {

bool RunQueue::offer(const std::shared_ptr<Work>& run) {
  {
    std::lock_guard lock(mutex_);
    if (!has_waiter_) return false;
    runs_.push_back(run);
  }
  nudge();
  return true;
}

void RunQueue::nudge() {
  std::optional<Promise<void>> sleeping;
  {
    std::lock_guard lock(mutex_);
    sleeping = std::exchange(something_to_do_, std::nullopt);
  }
  if (sleeping) sleeping->set_value();
}

std::shared_ptr<Work> RunQueue::next_or_wait(Promise<void> something_to_do) {
  std::lock_guard lock(mutex_);
  if (runs_.empty()) {
    something_to_do_ = std::move(something_to_do);
    return nullptr;
  }
  std::shared_ptr<Work> run = std::move(runs_.front());
  runs_.pop_front();
  return run;
}

bool RunQueue::enter() {
  std::lock_guard lock(mutex_);
  return !std::exchange(has_waiter_, true);
}

std::deque<std::shared_ptr<Work>> RunQueue::leave() {
  std::lock_guard lock(mutex_);
  has_waiter_ = false;
  something_to_do_.reset();
  return std::exchange(runs_, {});
}

void RunQueue::run_until_ready(FutureStateBase& pass, const std::shared_ptr<WaitHelper>& helper) {
  while (!pass.ready()) {
    Promise<void> something_to_do;
    if (helper) something_to_do.set_helper(helper);
    const Future<void> waits = something_to_do.future();
    if (const std::shared_ptr<Work> run = next_or_wait(std::move(something_to_do))) {
      run->run();
    } else if (!pass.ready()) {  // it may have ended before the promise was there
      waits.wait();
    }
  }
}

}  // namespace holdfast::autograd
