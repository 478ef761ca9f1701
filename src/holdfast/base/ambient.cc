#include <holdfast/base/ambient.h>

namespace holdfast {

// Not inline: a coroutine may go on on another thread, and a compiler that sees the thread-local itself
// may keep its old address across the suspension.
Ambient& current_ambient() {
  static thread_local Ambient ambient;
  return ambient;
}

}  // namespace holdfast
