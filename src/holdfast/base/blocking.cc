#include <holdfast/base/blocking.h>

namespace holdfast {

namespace {
thread_local BlockingObserver* observer = nullptr;
thread_local int depth = 0;
thread_local uint64_t count = 0;
}  // namespace

BlockingObserver*& blocking_observer() { return observer; }

uint64_t blocking_count() { return count; }

BlockingScope::BlockingScope() {
  if (depth++ > 0) return;
  ++count;
  if (observer == nullptr) return;
  told_ = observer;
  told_->on_block();
}

BlockingScope::~BlockingScope() {
  --depth;
  if (told_ != nullptr) told_->on_unblock();
}

}  // namespace holdfast
