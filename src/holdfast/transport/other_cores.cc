#include <holdfast/transport/other_cores.h>

namespace holdfast {

std::optional<Cores> find_cores() {
  Cores cores;
  const int here = ::sched_getcpu();
  if (::sched_getaffinity(0, sizeof(cores.all), &cores.all) != 0 || here < 0 || !CPU_ISSET(here, &cores.all) ||
      CPU_COUNT(&cores.all) < 2) {
    return std::nullopt;
  }
  cores.others = cores.all;
  CPU_CLR(here, &cores.others);
  return cores;
}

}  // namespace holdfast
