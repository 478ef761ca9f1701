// Copies between ordinary memory and devices, in step with what the program has given to the devices' streams. Written
// against c10's interface for any device. Each copy runs on a stream of its own, from libtorch's pool; a device without
// such streams copies on its current one. Any thread, under no lock: some of it waits.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace holdfast {

// The same bytes in ordinary memory, complete when this returns. Comes after all that the current stream of their
// device has been given so far.
at::Tensor copy_from_device(const at::Tensor& bytes);

// A copy to a device that may not have run yet.
class CopyToDevice {
 public:
  // Begins it. What the current stream of the device is given from now on comes after the copy.
  CopyToDevice(at::Tensor bytes, c10::Device device);

  const at::Tensor& on_device() const { return on_device_; }
  // The bytes that it was made from must live until then.
  bool done() const { return !copied_ || copied_->query(); }
  void wait();
  void forget_result() { on_device_.reset(); }

 private:
  at::Tensor bytes_;
  at::Tensor on_device_;
  c10::Stream stream_;
  std::optional<c10::Event> copied_;  // none: it is done
};

}  // namespace holdfast
