// at::Tensor as an argument, a result, in containers and structs: see docs/tensor.md. On the wire a tensor is its index
// in the message's tensor table; one that is undefined has an entry there too.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/rpc/cargo.h>
#include <holdfast/tensor/device.h>
#include <holdfast/tensor/outgoing_tensors.h>
#include <holdfast/wire/codec.h>

namespace holdfast {

template <>
struct wire::Codec<at::Tensor> {
  static void encode(Writer& writer, const at::Tensor& tensor);
  static void decode(Reader& reader, at::Tensor& out);
  static std::string type_name() { return "tensor"; }
};

// The tensors of a message that is being encoded: SendContext::tensors. For autograd, which looks at them before they
// are sent.
class TensorsToSend final : public GatheredToSend {
 public:
  // Lives no longer than the context, which has it.
  explicit TensorsToSend(const SendContext& context) : context_(context) {}

  uint32_t add(const at::Tensor& tensor) { return tensors_.add(tensor); }
  const std::vector<at::Tensor>& tensors() const { return tensors_.tensors(); }
  Bytes finish(Message& message) override;

 private:
  const SendContext& context_;
  OutgoingTensors tensors_;
};

namespace call_detail {
inline const size_t kDevicesIndex = devices_index();
}  // namespace call_detail

// Autograd: `tensors` came with a message that belongs to a flow (rpc/flow.h, Section::flow). It may make them outputs
// of a function. A failure: those bytes mean nothing.
using OnTensorsArrived = Status (*)(ReceiveContext& context, ByteView flow, std::vector<at::Tensor>& tensors);
// Before main().
void set_on_tensors_arrived(OnTensorsArrived hook);

}  // namespace holdfast
