// Ambient: what travels with one flow of work, from a handler into the continuations and coroutines that
// it starts. Future::then() and Task capture the current one and install it again wherever they resume,
// so a flow keeps its worker and deadline when it moves to another thread.
// Each thread has its own current Ambient; only that thread may touch it.
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
};

Ambient& current_ambient();

// Installs an Ambient on this thread and puts the previous one back at the end.
class AmbientScope {
 public:
  explicit AmbientScope(Ambient ambient) : previous_(std::exchange(current_ambient(), std::move(ambient))) {}
  ~AmbientScope() { current_ambient() = std::move(previous_); }
  AmbientScope(const AmbientScope&) = delete;
  AmbientScope& operator=(const AmbientScope&) = delete;

 private:
  Ambient previous_;
};

}  // namespace holdfast
