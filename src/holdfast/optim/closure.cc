#include <holdfast/optim/closure.h>

#include <utility>

#include <holdfast/base/blocking.h>

namespace holdfast::optim {

double Evaluations::evaluate() {
  const std::shared_ptr<Shared> shared = shared_;
  BlockingScope blocking;
  std::unique_lock lock(shared->mutex);
  if (shared->asked) {
    throw_failure({.code = Code::invalid_argument, .message = "the closure is being evaluated already"});
  }
  shared->asked = true;
  shared->changed.notify_all();
  shared->changed.wait(lock, [&] { return shared->answer || shared->closed; });
  shared->asked = false;
  if (!shared->answer) throw_failure({.code = Code::cancelled, .message = "the step is over"});
  Result<double> answer = std::move(*shared->answer);
  shared->answer.reset();
  lock.unlock();
  return answer.take();
}

bool Evaluations::next() {
  BlockingScope blocking;
  std::unique_lock lock(shared_->mutex);
  // Not while an answer waits for whoever asked for it.
  shared_->changed.wait(lock, [&] { return (shared_->asked && !shared_->answer) || shared_->closed; });
  return !shared_->closed;
}

void Evaluations::answer(Result<double> loss) {
  std::lock_guard lock(shared_->mutex);
  shared_->answer = std::move(loss);
  shared_->changed.notify_all();
}

void Evaluations::close() {
  std::lock_guard lock(shared_->mutex);
  shared_->closed = true;
  shared_->changed.notify_all();
}

}  // namespace holdfast::optim
