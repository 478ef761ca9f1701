// Strong identifiers: an Id of one kind cannot be passed where another kind is expected.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace holdfast {

template <class Tag, class Rep>
struct Id {
  Rep value = 0;
  friend constexpr auto operator<=>(Id, Id) = default;
};

// A worker's place in the world, 0 to world_size - 1.
using Rank = Id<struct RankTag, uint32_t>;
// Given by the coordinator, new at every start of a worker: tells a worker from the one it replaces.
using Incarnation = Id<struct IncarnationTag, uint32_t>;
// One connection of one transport. Even: dialled by us; odd: accepted. Never used again.
using ConnectionId = Id<struct ConnectionTag, uint64_t>;
// One call, unique on the worker that made it during its life.
using CallId = Id<struct CallTag, uint64_t>;

// Names one life of one worker in the whole job.
struct WorkerId {
  Rank rank;
  Incarnation incarnation;
  friend constexpr auto operator<=>(const WorkerId&, const WorkerId&) = default;
};

}  // namespace holdfast

template <class Tag, class Rep>
struct std::hash<holdfast::Id<Tag, Rep>> {
  size_t operator()(holdfast::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>()(id.value); }
};

template <>
struct std::hash<holdfast::WorkerId> {
  size_t operator()(const holdfast::WorkerId& id) const noexcept {
    return std::hash<uint64_t>()((uint64_t{id.incarnation.value} << 32) | id.rank.value);
  }
};
