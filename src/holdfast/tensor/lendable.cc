#include <holdfast/tensor/lendable.h>

#include <memory>
#include <new>

#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <holdfast/base/error.h>
#include <holdfast/tensor/dtype.h>
#include <holdfast/tensor/geometry.h>
#include <holdfast/tensor/make_tensor.h>
#include <holdfast/transport/shared_area.h>

namespace holdfast {

namespace {

c10::Storage lendable_storage(uint64_t bytes) {
  std::unique_ptr<std::shared_ptr<uint8_t>> owner;
  try {
    owner = std::make_unique<std::shared_ptr<uint8_t>>(allocate_lendable(bytes));
  } catch (const std::bad_alloc&) {
    throw_failure(
        {.code = Code::overloaded, .message = fmt::format("no memory for a lendable tensor of {} bytes", bytes)});
  }
  c10::DataPtr memory(
      owner->get(), owner.get(), [](void* context) { delete static_cast<std::shared_ptr<uint8_t>*>(context); },
      c10::Device(c10::DeviceType::CPU));
  owner.release();
  return {c10::Storage::use_byte_size_t{}, bytes, std::move(memory), c10::GetCPUAllocator(), /*resizable=*/true};
}

}  // namespace

at::Tensor empty_lendable(c10::IntArrayRef sizes, const c10::TensorOptions& options) {
  const auto refuse = [](const std::string& problem) {
    throw_failure({.code = Code::invalid_argument, .message = "no lendable tensor can have " + problem});
  };
  const c10::ScalarType type = c10::typeMetaToScalarType(options.dtype());
  if (!options.device().is_cpu()) refuse(fmt::format("the device {}: the cpu alone", options.device().str()));
  if (options.layout() != c10::Layout::Strided) refuse("a sparse layout");
  if (c10::isQIntType(type)) refuse("a quantised type");
  const Dims dims(sizes.begin(), sizes.end());
  if (const std::string problem = shape_problem(dims, type); !problem.empty()) refuse(problem);
  const uint64_t bytes = bytes_of_elements(type, static_cast<uint64_t>(element_count(dims)));
  const at::Tensor tensor = tensor_over(lendable_storage(bytes), type, 0, dims, row_major_strides(dims));
  return options.requires_grad() ? tensor.set_requires_grad(true) : tensor;
}

at::Tensor lendable(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = empty_lendable(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  copy.copy_(tensor);
  return copy.set_requires_grad(tensor.requires_grad());
}

uint64_t loans(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.is_cpu() || tensor.numel() == 0) return 0;
  const auto area = find_lendable(static_cast<const uint8_t*>(tensor.data_ptr()), 1);
  return area ? area->uses() : 0;
}

}  // namespace holdfast
