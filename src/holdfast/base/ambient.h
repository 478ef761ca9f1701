// Ambient: what travels with one flow of work, from a handler into the continuations and coroutines that
// it starts. Future::then() and Task capture the current one and install it again wherever they resume,
// so a flow keeps its worker and deadline when it moves to another thread.
// Each thread has its own current Ambient; only that thread may touch it.
//
// A library that goes on with a user's work on threads of its own (libtorch: torch::jit::fork, at::launch) does not
// know of Ambients. A FlowCarrier makes it take the flow along.
#pragma once

#include <holdfast/base/time.h>

#include <atomic>
#include <memory>
#include <utility>

namespace holdfast {

struct Ambient {
  void* worker = nullptr;                        // the Worker; base does not know that type
  Time deadline = kNever;                        // calls made by this flow end no later
  std::shared_ptr<std::atomic<bool>> cancelled;  // true: nobody waits for this flow's result any more
  std::shared_ptr<void> flow;                    // what an upper layer lets travel with it, over calls too
  bool installed = false;                        // by an AmbientScope: no flow then means none
};

Ambient& current_ambient();

// One for the whole program; any thread.
class FlowCarrier {
 public:
  virtual ~FlowCarrier() = default;
  // From now on work that the library takes from this thread to others belongs to that flow (null: to none), until the
  // returned object is destroyed.
  virtual std::shared_ptr<void> carry(std::shared_ptr<void> flow) = 0;
  // What came to this thread with such work, or is carried away from it; null: nothing.
  virtual std::shared_ptr<void> carried() = 0;
  // What is carried away from this thread is that flow again: work has moved elsewhere (a coroutine) before it ended
  // what it had begun here.
  virtual void carry_again(const std::shared_ptr<void>& flow) = 0;
};
// Before main().
void set_flow_carrier(FlowCarrier& carrier);
FlowCarrier* flow_carrier();

// The flow that this thread works for: the Ambient's, or else what a library brought along. Null: none.
std::shared_ptr<void> current_flow();
// The current Ambient, with that flow: for work that goes on later.
Ambient captured_ambient();

// Installs an Ambient on this thread and puts the previous one back at the end.
class AmbientScope {
 public:
  explicit AmbientScope(Ambient ambient) : previous_(std::exchange(current_ambient(), std::move(ambient))) {
    Ambient& current = current_ambient();
    current.installed = true;
    if (current.flow != previous_.flow && flow_carrier() != nullptr) carried_ = flow_carrier()->carry(current.flow);
  }
  ~AmbientScope() {
    Ambient& current = current_ambient();
    const bool flow_changed = current.flow != previous_.flow;
    current = std::move(previous_);
    if (!carried_ && flow_changed && flow_carrier() != nullptr) flow_carrier()->carry_again(current.flow);
  }
  AmbientScope(const AmbientScope&) = delete;
  AmbientScope& operator=(const AmbientScope&) = delete;

 private:
  Ambient previous_;
  std::shared_ptr<void> carried_;
};

}  // namespace holdfast
