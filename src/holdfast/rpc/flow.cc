#include <holdfast/rpc/flow.h>

#include <holdfast/base/check.h>
#include <holdfast/rpc/messages.h>

namespace holdfast {

namespace {

FlowHooks* hooks = nullptr;

}  // namespace

void set_flow_hooks(FlowHooks& new_hooks) {
  HOLDFAST_CHECK(hooks == nullptr || hooks == &new_hooks);
  hooks = &new_hooks;
}

void SendContext::finish_more(Message& message) {
  // What becomes of the tensors depends on the flow, so that is asked first; but the sections come last.
  Bytes flow;
  if (hooks != nullptr && current_flow()) flow = hooks->on_send(*this);
  Bytes table;
  if (tensors) table = tensors->finish(message);
  if (!flow.empty()) attach_section(message, Section::flow, std::move(flow));
  if (!table.empty()) attach_section(message, Section::tensors, std::move(table));
}

Result<std::shared_ptr<void>> enter_flow(CallHost& host, const WorkerPtr& from, const Message& message) {
  if (!has_sections(message)) return std::shared_ptr<void>();
  Result<ByteView> bytes = find_section(message, Section::flow);
  if (!bytes) return bytes.failure();
  if (bytes->empty() || hooks == nullptr) return std::shared_ptr<void>();
  return hooks->on_call(host, from, *bytes);
}

}  // namespace holdfast
