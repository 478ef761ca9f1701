// Step: one step of the protocol code. The time goes in; what is to be done comes out. Protocol code does no
// I/O, never blocks, never calls user code and never reads a clock: it appends to a Step. The driver (the
// production worker, or the simulator) makes a Step, calls into the protocol under its lock, releases the
// lock, and then does what the Step says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <holdfast/base/closure.h>
#include <holdfast/base/error.h>
#include <holdfast/base/ids.h>
#include <holdfast/base/time.h>
#include <holdfast/wire/message.h>

namespace holdfast {

// User code to be run: a handler. Runs on the executor, or at once on the reading thread if it is quick.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
  // Past runs of the same function were short and never blocked.
  virtual bool quick() const { return false; }
  // It was begun before, and has waited for something that is there now: it goes before work that was not begun.
  virtual bool has_waited() const { return false; }
};

// What waits for a reply. Called once, outside any lock; quick, must not block.
using Completion = UniqueFunction<void(Result<Message>)>;

struct Step {
  explicit Step(Time time) : now(time) {}

  struct Dial {
    ConnectionId connection;
    std::string address;
  };
  struct Close {
    ConnectionId connection;
    Failure why;
  };
  struct Completed {
    Completion completion;
    Result<Message> result;
  };

  Time now;
  std::vector<Dial> dials;
  std::vector<Close> closes;
  std::vector<ConnectionId> flushes;
  std::vector<ConnectionId> trusts;
  std::vector<Completed> completed;
  std::vector<Closure> closures;                     // quick library code that must run outside the lock
  std::vector<std::shared_ptr<Work>> work;           // handlers to run
  std::vector<std::shared_ptr<const void>> garbage;  // freed outside the lock: users' memory may hang on it
  bool room_opened = false;                          // callers that wait for room on a link may look again

  // Keeps the vectors' memory, for a driver that uses one Step many times.
  void clear() {
    dials.clear();
    closes.clear();
    flushes.clear();
    trusts.clear();
    completed.clear();
    closures.clear();
    work.clear();
    garbage.clear();
    room_opened = false;
  }
  void flush(ConnectionId connection) {
    if (flushes.empty() || flushes.back() != connection) flushes.push_back(connection);
  }
};

// Hands out the ids of dialled connections: even, never used again. One per worker, shared by its parts.
class ConnectionIds {
 public:
  ConnectionId next() { return {last_ += 2}; }

 private:
  uint64_t last_ = 0;
};

}  // namespace holdfast
