#include <holdfast/tensor/device.h>

namespace holdfast {

namespace {

// The entry of number n is at n.
constexpr c10::DeviceType kTypes[] = {c10::DeviceType::CPU, c10::DeviceType::Meta,       c10::DeviceType::CUDA,
                                      c10::DeviceType::HIP, c10::DeviceType::XPU,        c10::DeviceType::MPS,
                                      c10::DeviceType::HPU, c10::DeviceType::PrivateUse1};

}  // namespace

std::optional<DeviceNumber> device_number_of(c10::DeviceType type) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] == type) return static_cast<DeviceNumber>(i);
  }
  return std::nullopt;
}

std::optional<c10::DeviceType> device_type_of(DeviceNumber number) {
  const auto i = static_cast<size_t>(number);
  return i < std::size(kTypes) ? std::optional(kTypes[i]) : std::nullopt;
}

}  // namespace holdfast
