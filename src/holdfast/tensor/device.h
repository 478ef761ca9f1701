// Devices of tensors: libtorch's names for their numbers on the wire, and DeviceMover, the one way by which memory that
// the processor cannot read gets into a message and out of it again. Without a mover only tensors in ordinary memory
// (and meta tensors, which have none) can be sent and received.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include <holdfast/base/error.h>
#include <holdfast/cluster/device_facts.h>

namespace holdfast {

// None: there is no number for it, or no device of that number.
std::optional<DeviceNumber> device_number_of(c10::DeviceType type);
std::optional<c10::DeviceType> device_type_of(DeviceNumber number);

// Every worker of a program that sends tensors has Devices (devices.h): this is their index as a protocol.
size_t devices_index();

// Owned by whoever sends or receives; called on the thread that does. Memory is always moved as whole storages, seen as
// a contiguous tensor of bytes (1 dimension, uint8): what tensors make of them, and which of them share, is not its
// business. What it throws counts as its failure.
class DeviceMover {
 public:
  virtual ~DeviceMover() = default;
  // Sender: the device of the receiver's to which tensors on `device`, perhaps the cpu, go. A failure: they may not be
  // sent.
  virtual Result<c10::Device> target_of(c10::Device device) = 0;
  // Sender: the same bytes in ordinary memory, complete when this returns.
  virtual Result<at::Tensor> to_cpu(const at::Tensor& bytes) = 0;
  // Receiver: the same bytes on `device`. A device that does not exist or is not allowed is a failure.
  virtual Result<at::Tensor> to_device(const at::Tensor& bytes, c10::Device device) = 0;
};

}  // namespace holdfast
