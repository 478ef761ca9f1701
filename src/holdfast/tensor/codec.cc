#include <holdfast/tensor/codec.h>

#include <array>
#include <cstring>
#include <span>

#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/tensor/devices.h>
#include <holdfast/tensor/incoming_tensors.h>
#include <holdfast/wire/big_endian.h>

namespace holdfast {

namespace {

constexpr int8_t kTensorExtension = 1;

OnTensorsArrived on_tensors_arrived = nullptr;

class ArrivedTensors final : public Gathered {
 public:
  std::vector<at::Tensor> tensors;
};

// A call to oneself hands over the very memory that it was made from; the callee gets its own, as anywhere else.
std::vector<Attachment> copy_of(std::span<const Attachment> attachments) {
  std::vector<Attachment> copies;
  for (const Attachment& attachment : attachments) {
    auto owner = std::make_shared_for_overwrite<uint8_t[]>(attachment.bytes);
    if (attachment.bytes != 0) std::memcpy(owner.get(), attachment.data, attachment.bytes);
    copies.push_back({.owner = owner, .data = owner.get(), .bytes = attachment.bytes});
  }
  return copies;
}

// All tensors of the message, at the first one that is asked for.
Status unpack(ReceiveContext& context) {
  Result<ByteView> table = find_section(context.message, Section::tensors);
  if (!table) return std::move(table.failure());
  auto arrived = std::make_unique<ArrivedTensors>();
  if (!table->empty()) {
    const bool from_self = context.from->id() == context.host.self()->id();
    const std::span<const Attachment> memory = attachments_of_values(context.message);
    // The handler of a call runs on this thread; who waits for a reply may be on any.
    PeerMover mover(context.host, *context.from, MapOf::sender, /*in_order=*/context.message.kind != kReply);
    Result<std::vector<at::Tensor>> tensors =
        from_self ? read_tensors(*table, copy_of(memory), &mover) : read_tensors(*table, memory, &mover);
    if (!tensors) return std::move(tensors.failure());
    arrived->tensors = std::move(*tensors);
    Result<ByteView> flow = find_section(context.message, Section::flow);
    if (!flow) return std::move(flow.failure());
    if (!flow->empty() && on_tensors_arrived != nullptr) {
      if (Status status = on_tensors_arrived(context, *flow, arrived->tensors); !status.ok()) return status;
    }
  }
  context.tensors = std::move(arrived);
  return {};
}

}  // namespace

Bytes TensorsToSend::finish(Message& message) {
  const MapOf map = context_.kind == kReply ? MapOf::receiver : MapOf::sender;
  PeerMover mover(context_.host, *context_.to, map, /*in_order=*/true);
  return tensors_.finish(message, &mover);
}

void set_on_tensors_arrived(OnTensorsArrived hook) { on_tensors_arrived = hook; }

void wire::Codec<at::Tensor>::encode(Writer& writer, const at::Tensor& tensor) {
  auto* context = dynamic_cast<SendContext*>(writer.context());
  if (context == nullptr) {
    throw_failure({.code = Code::invalid_argument, .message = "a tensor can be sent only in a call or its result"});
  }
  if (!context->tensors) context->tensors = std::make_unique<TensorsToSend>(*context);
  std::array<uint8_t, 4> bytes{};
  store_big_endian(bytes.data(), static_cast<TensorsToSend&>(*context->tensors).add(tensor));
  writer.extension(kTensorExtension, bytes);
}

void wire::Codec<at::Tensor>::decode(Reader& reader, at::Tensor& out) {
  const ByteView bytes = reader.extension(kTensorExtension);
  if (!reader.ok()) return;
  auto* context = dynamic_cast<ReceiveContext*>(reader.context());
  if (context == nullptr || bytes.size() != 4) return reader.fail("a tensor that did not come with the message");
  if (!context->tensors) {
    if (Status status = unpack(*context); !status.ok()) return reader.fail(status.failure().message);
  }
  const std::vector<at::Tensor>& tensors = static_cast<ArrivedTensors&>(*context->tensors).tensors;
  const auto index = load_big_endian<uint32_t>(bytes.data());
  if (index >= tensors.size()) return reader.fail("a tensor that did not come with the message");
  out = tensors[index];
}

}  // namespace holdfast
