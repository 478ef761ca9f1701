// StepLock: steps of optimizers on one worker happen one at a time, whoever asked for them, because optimizers of
// different trainers may have the same parameters. One lock per worker, not per process: several workers live in one.
// For handlers; not recursive.
#pragma once

#include <memory>
#include <mutex>

#include <holdfast/rpc/protocol.h>

namespace holdfast {

class Worker;

namespace optim {

// Holds the lock of one worker. A protocol only in that every worker has one: it has no messages.
class StepTurns final : public Protocol {
 public:
  static std::unique_ptr<Protocol> make(Node&, Host&) { return std::make_unique<StepTurns>(); }
  static StepTurns& of(Host& host);

  Status on_message(Step&, const WorkerPtr&, Message) override;
  bool idle() const override { return true; }

  std::mutex mutex;
};

class StepLock {
 public:
  // Waits for its turn; the executor has another thread work meanwhile.
  explicit StepLock(Worker& worker);
  ~StepLock();
  StepLock(const StepLock&) = delete;
  StepLock& operator=(const StepLock&) = delete;

  // Lets others step until lock().
  void unlock();
  void lock();

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace optim
}  // namespace holdfast
