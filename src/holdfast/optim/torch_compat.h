// What differs between the versions of libtorch that we build with: an optimizer keeps what it remembers of a parameter
// under the address of its TensorImpl, as a pointer or as text of it. Private to the layer.
#pragma once

#include <sstream>
#include <string>
#include <type_traits>

#include <torch/optim/optimizer.h>

namespace holdfast::optim {

// The key of that parameter in optimizer.state().
template <class Key>
Key state_key_as(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}
inline auto state_key(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  return state_key_as<typename std::decay_t<decltype(optimizer.state())>::key_type>(parameter);
}

}  // namespace holdfast::optim
