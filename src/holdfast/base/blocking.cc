#include <holdfast/base/blocking.h>

namespace holdfast {

namespace {
thread_local BlockingObserver* observer = nullptr;
thread_local int depth = 0;
}  // namespace

BlockingObserver*& blocking_observer() { return observer; }

BlockingScope::BlockingScope() {
  if (depth++ > 0 || observer == nullptr) return;
  told_ = observer;
  told_->on_block();
}

BlockingScope::~BlockingScope() {
  --depth;
  if (told_ != nullptr) told_->on_unblock();
}

}  // namespace holdfast
