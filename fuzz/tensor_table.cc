// Tensor tables and attachments of a peer: any bytes. What is accepted must be tensors that can be read to the last
// element and that libtorch can work with; what is not must be refused with Code::corrupt, never with an exception.
//
//   input   number of attachments (1 byte), for each its length (2) and its bytes, then the table
#include <ATen/core/grad_mode.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/sum.h>

#include <holdfast/base/check.h>
#include <holdfast/tensor/dtype.h>
#include <holdfast/tensor/geometry.h>
#include <holdfast/tensor/incoming_tensors.h>

#include "allocations.h"
#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr int64_t kReadMax = 1 << 14;
constexpr size_t kAllocatedAlways = 1 << 20;
constexpr size_t kAllocatedPerByteMax = 4096;

void use(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_meta()) return;
  if (tensor.layout() == at::kStrided) {
    const auto span = span_elements(tensor.sizes(), tensor.strides());
    HOLDFAST_CHECK(span);
    HOLDFAST_CHECK(bytes_of_elements(tensor.scalar_type(), static_cast<uint64_t>(tensor.storage_offset()) + *span) <=
                   tensor.storage().nbytes());
  }
  if (tensor.layout() == at::kSparse) {
    use(tensor._indices());
    use(tensor._values());
    if (tensor._values().numel() > kReadMax) return;
  }
  if (tensor.numel() > kReadMax) return;
  // What libtorch itself makes of it. It may not be able to, for that type or layout.
  const at::NoGradGuard no_grad;
  try {
    const at::Tensor copy = tensor.clone();
    if (tensor.layout() == at::kSparse) (void)tensor.coalesce().to_dense();
    if (tensor.layout() == at::kStrided && !tensor.is_quantized()) (void)tensor.contiguous().sum();
  } catch (const c10::Error&) {
  }
}

void check(Input in) {
  std::vector<Attachment> attachments;
  for (size_t n = std::min<size_t>(in.byte(), kAttachmentsPerMessageMax); n > 0; --n) {
    const ByteView bytes = in.take(in.two_bytes());
    const auto owner = std::make_shared<Bytes>(bytes.begin(), bytes.end());
    attachments.push_back({.owner = owner, .data = owner->data(), .bytes = owner->size()});
  }
  const Bytes table(in.rest().begin(), in.rest().end());
  uint64_t total = table.size();
  for (const Attachment& attachment : attachments) total += attachment.bytes;
  std::optional<Result<std::vector<at::Tensor>>> result;
  {
    const Allocations allocations;
    result.emplace(read_tensors(table, attachments));
    HOLDFAST_CHECK(allocations.peak_bytes() <= kAllocatedAlways + kAllocatedPerByteMax * total);
  }
  if (!result->ok()) {
    HOLDFAST_CHECK(result->failure().code == Code::corrupt);
    return;
  }
  for (const at::Tensor& tensor : **result) use(tensor);
}

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::check({data, size});
  return 0;
}
