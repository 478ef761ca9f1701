// Values: an optimizer's options, or what it remembers of one parameter, as names and values. So they travel, are saved
// and are compared without libtorch's archives, and without a codec for each class. Plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/base/error.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::optim {

[[noreturn]] inline void throw_invalid(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

// The order is the wire's: only add at the end.
using Value =
    std::variant<bool, int64_t, double, std::string, std::vector<double>, at::Tensor, std::vector<at::Tensor>>;
using Values = std::map<std::string, Value>;

}  // namespace holdfast::optim
