#include <holdfast/base/ambient.h>

namespace holdfast {

// Not inline: a coroutine may go on on another thread, and a compiler that sees the thread-local itself
// may keep its old address across the suspension.
Ambient& current_ambient() {
  static thread_local Ambient ambient;
  return ambient;
}

namespace {
FlowCarrier* carrier = nullptr;
}  // namespace

void set_flow_carrier(FlowCarrier& new_carrier) { carrier = &new_carrier; }

FlowCarrier* flow_carrier() { return carrier; }

std::shared_ptr<void> current_flow() {
  const Ambient& ambient = current_ambient();
  if (ambient.flow || ambient.installed || carrier == nullptr) return ambient.flow;
  return carrier->carried();
}

Ambient captured_ambient() {
  Ambient ambient = current_ambient();
  if (!ambient.flow && !ambient.installed && carrier != nullptr) ambient.flow = carrier->carried();
  return ambient;
}

}  // namespace holdfast
