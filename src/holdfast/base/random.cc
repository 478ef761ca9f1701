#include <holdfast/base/random.h>

#include <random>

namespace holdfast {

uint64_t random_seed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace holdfast
