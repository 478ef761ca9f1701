#include <holdfast/backward/ids.h>

#include <fmt/format.h>

namespace holdfast {

std::string text_of(const ContextId& id) {
  return fmt::format("{}.{}.{}", id.creator.rank.value, id.creator.incarnation.value, id.counter);
}

std::string text_of(const PassId& id) {
  return fmt::format("{}/{}.{}.{}", text_of(id.context), id.root.rank.value, id.root.incarnation.value, id.counter);
}

}  // namespace holdfast
