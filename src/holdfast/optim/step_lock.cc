#include <holdfast/optim/step_lock.h>

#include <holdfast/base/blocking.h>
#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/worker.h>

namespace holdfast::optim {

StepTurns& StepTurns::of(Host& host) {
  return static_cast<StepTurns&>(host.protocol(RegisteredProtocol<StepTurns>::index()));
}

Status StepTurns::on_message(Step&, const WorkerPtr&, Message) {
  return Failure{.code = Code::corrupt, .message = "optimizers have no messages of their own"};
}

StepLock::StepLock(Worker& worker) : lock_(StepTurns::of(worker.host()).mutex, std::defer_lock) { lock(); }
StepLock::~StepLock() = default;

void StepLock::unlock() { lock_.unlock(); }

void StepLock::lock() {
  if (lock_.try_lock()) return;
  BlockingScope blocking;
  lock_.lock();
}

}  // namespace holdfast::optim
