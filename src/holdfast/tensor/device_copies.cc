#include <holdfast/tensor/device_copies.h>

#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include <holdfast/base/blocking.h>

namespace holdfast {

namespace {

c10::Stream stream_for_copies(c10::Device device) {
  const c10::impl::VirtualGuardImpl backend(device.type());
  try {
    return backend.getStreamFromGlobalPool(device);
  } catch (const c10::Error&) {
    return backend.getStream(device);  // it has no others
  }
}

// `later` goes on only when all that `earlier` has been given so far has run.
std::optional<c10::Event> put_in_order(const c10::Stream& earlier, const c10::Stream& later) {
  if (earlier == later) return std::nullopt;
  c10::Event reached(earlier.device_type());
  reached.record(earlier);
  reached.block(later);
  return reached;
}

void wait_for(const c10::Stream& stream) {
  const BlockingScope blocking;
  stream.synchronize();
}

}  // namespace

at::Tensor copy_from_device(const at::Tensor& bytes) {
  const c10::Device device = bytes.device();
  const c10::Stream stream = stream_for_copies(device);
  const auto produced = put_in_order(c10::impl::VirtualGuardImpl(device.type()).getStream(device), stream);
  at::Tensor copy = at::empty({bytes.numel()}, c10::ScalarType::Byte);
  {
    const c10::StreamGuard guard(stream);
    copy.copy_(bytes, /*non_blocking=*/true);
  }
  wait_for(stream);
  return copy;
}

CopyToDevice::CopyToDevice(at::Tensor bytes, c10::Device device)
    : bytes_(std::move(bytes)), stream_(stream_for_copies(device)) {
  const c10::impl::VirtualGuardImpl backend(device.type());
  const c10::Stream consumer = backend.getStream(device);
  {
    const c10::StreamGuard guard(stream_);
    on_device_ = at::empty({bytes_.numel()}, at::TensorOptions(c10::ScalarType::Byte).device(device));
    on_device_.copy_(bytes_, /*non_blocking=*/true);
  }
  copied_ = put_in_order(stream_, consumer);
  if (copied_) {
    // The memory belongs to our stream: it must not be given to somebody else while the consumer's still uses it.
    backend.recordDataPtrOnStream(on_device_.storage().data_ptr(), consumer);
  } else {
    wait();  // without events there is no other way to know when it is done
  }
}

void CopyToDevice::wait() {
  wait_for(stream_);
  copied_.reset();
}

}  // namespace holdfast
