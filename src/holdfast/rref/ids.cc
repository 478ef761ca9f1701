#include <holdfast/rref/ids.h>

#include <fmt/format.h>

namespace holdfast {

std::string text_of(const RRefId& id) {
  return fmt::format("{}.{}.{}", id.creator.rank.value, id.creator.incarnation.value, id.counter);
}

std::string text_of(const ForkId& id) {
  return fmt::format("{}.{}.{}", id.maker.rank.value, id.maker.incarnation.value, id.counter);
}

}  // namespace holdfast
