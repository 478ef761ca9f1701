// One seed makes one world: workers on a simulated clock and network that run a random program of references
// (program.h) while connections are cut, networks are partitioned, frames are lost, repeated and reordered, and workers
// die and are replaced. Then everything heals; whatever is held must be usable; everything is dropped; and within a
// bound nothing may be left anywhere. The ledger (ledger.h) checks what happens meanwhile.
//
// Any thread may run a world; several may run at the same time, on a thread each.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace holdfast::sim {

enum class Fault : uint8_t {
  cut,
  partition,
  coordinator_cut,
  coordinator_partition,
  death,
  death_by_lease,
  declared_lost,
  rejoin,
  loss,
  duplication,
  reordering,
  repetition,
};
inline constexpr std::array<std::string_view, 12> kFaultNames = {
    "connections cut",        "partitions",       "coordinator connections cut",
    "coordinator partitions", "deaths seen",      "deaths found by lease",
    "declared lost alive",    "rejoins",          "frames lost",
    "frames duplicated",      "frames reordered", "control messages repeated"};

struct WorldReport {
  uint64_t seed = 0;
  uint64_t trace_hash = 0;
  uint64_t messages = 0;  // frames that arrived
  uint64_t actions = 0;
  uint64_t objects = 0;
  uint64_t calls = 0;
  std::array<uint64_t, kFaultNames.size()> faults{};
  // What was not as it must be; each says what, where and when.
  std::vector<std::string> violations;
};

// Lines of what happens, for people.
using TraceLine = std::function<void(const std::string&)>;

WorldReport run_rref_world(uint64_t seed, const TraceLine& trace = nullptr);
// The seed of the world that runs on this thread, for whoever looks at a crash. Safe in a signal handler.
uint64_t running_seed();
// "seed 7: ... (holdfast sim --seed 7 shows the whole history)", a line for each violation.
std::string describe_violations(const WorldReport& report);

}  // namespace holdfast::sim
