// How contexts travel with calls (rpc/flow.h), and how tensors in messages become functions of the graph: a send on one
// side, a recv on the other. The section is [context, creator, number]; no creator: it is the sender; number 0: nothing
// was recorded.
#include <c10/util/ThreadLocalDebugInfo.h>

#include <holdfast/autograd/context.h>
#include <holdfast/autograd/context_state.h>
#include <holdfast/rpc/flow.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/wire/fields.h>

namespace holdfast::autograd {

namespace {

struct FlowSection {
  ContextId context;
  std::optional<WorkerInfo> creator;
  uint64_t send = 0;
  HOLDFAST_FIELDS(FlowSection, context, creator, send)
};

Result<FlowSection> read(ByteView bytes, const WorkerPtr& from) {
  wire::Reader reader(bytes);
  FlowSection section;
  wire::decode(reader, section);
  reader.finish();
  const WorkerId creator = section.creator ? section.creator->id() : from->id();
  if (reader.ok() && creator != section.context.creator) reader.fail("a context of somebody else's");
  if (!reader.ok()) return Failure{.code = Code::corrupt, .message = "the context of a message: " + reader.error()};
  return section;
}

class Hooks final : public FlowHooks {
 public:
  Bytes on_send(SendContext& context) override {
    const std::shared_ptr<ContextState> state = ContextState::current();
    if (&state->host != &context.host) return {};  // another worker's, on a thread that speaks for both
    const auto* tensors = static_cast<const TensorsToSend*>(context.tensors.get());
    std::shared_ptr<SendFunction> send = tensors != nullptr ? make_send(tensors->tensors()) : nullptr;
    if (context.kind == kReply && !send) return {};  // the caller knows its context
    state->will_send(context.to);
    FlowSection section{.context = state->id, .creator = {}, .send = 0};
    if (state->creator->id() != context.host.self()->id()) section.creator = *state->creator;
    if (send) section.send = state->add_send(std::move(send)).value;
    return wire::encode_message(kCall, section).body;
  }

  Result<std::shared_ptr<void>> on_call(CallHost& host, const WorkerPtr& from, ByteView bytes) override {
    Result<FlowSection> section = read(bytes, from);
    if (!section) return std::move(section.failure());
    auto& full_host = dynamic_cast<Host&>(host);
    const WorkerPtr creator =
        section->creator ? std::make_shared<const WorkerInfo>(std::move(*section->creator)) : from;
    return std::shared_ptr<void>(Backwards::of(full_host).enter_context(section->context, creator, from->id(),
                                                                        ContextState::maker(full_host, creator)));
  }
};

Status on_tensors_arrived(ReceiveContext& context, ByteView bytes, std::vector<at::Tensor>& tensors) {
  Result<FlowSection> section = read(bytes, context.from);
  if (!section) return std::move(section.failure());
  if (section->send == 0) return {};
  auto& host = dynamic_cast<Host&>(context.host);
  // In a handler it is the current one. In a caller the reply may come when no context is current, or another.
  std::shared_ptr<ContextState> state = ContextState::current();
  if (!state || state->id != section->context || &state->host != &host) {
    state = std::static_pointer_cast<ContextState>(Backwards::of(host).find_context(section->context));
  }
  if (!state) return {};  // it has ended: nobody will want gradients
  const bool is_reply = context.message.kind == kReply;
  if (auto recv = make_recv(tensors, {.context = section->context,
                                      .sender = context.from,
                                      .number = {section->send},
                                      .came_in_reply = is_reply})) {
    state->add_recv(recv);
  }
  return {};
}

// What libtorch takes along from thread to thread (at::ThreadLocalState) has a place for debug information of several
// kinds. The flow is one more kind, with a number that libtorch does not use.
constexpr auto kFlowInfo = static_cast<c10::DebugInfoKind>(0xf0);

struct FlowInfo final : c10::DebugInfoBase {
  explicit FlowInfo(std::shared_ptr<void> flow) : flow(std::move(flow)) {}
  const std::shared_ptr<void> flow;
};

class TorchThreads final : public FlowCarrier {
 public:
  std::shared_ptr<void> carry(std::shared_ptr<void> flow) override {
    return std::make_shared<c10::DebugInfoGuard>(kFlowInfo, std::make_shared<FlowInfo>(std::move(flow)));
  }
  std::shared_ptr<void> carried() override {
    const auto* info = static_cast<const FlowInfo*>(c10::ThreadLocalDebugInfo::get(kFlowInfo));
    return info != nullptr ? info->flow : nullptr;
  }
  void carry_again(const std::shared_ptr<void>& flow) override {
    try {
      while (carried() != flow) c10::ThreadLocalDebugInfo::_pop(kFlowInfo);
    } catch (const c10::Error&) {
      // Somebody else's information lies above it, or there is none: then it is not ours to put in order.
    }
  }
};

}  // namespace

bool install() {
  static Hooks hooks;
  set_flow_hooks(hooks);
  static TorchThreads threads;
  set_flow_carrier(threads);
  set_on_tensors_arrived(on_tensors_arrived);
  RegisteredProtocol<Backwards>::index();
  return true;
}

}  // namespace holdfast::autograd
