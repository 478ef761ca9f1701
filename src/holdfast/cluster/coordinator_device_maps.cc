// The coordinator's part in device maps: it compares each with the devices of the worker that it names, and tells that
// worker of it. See docs/protocol.md, "Device maps".
#include <fmt/format.h>

#include <holdfast/cluster/coordinator.h>

namespace holdfast {

std::string Coordinator::problem_of_maps_of(const Member& member) const {
  if (!member.devices) return {};
  for (const auto& [peer, map] : member.devices->maps) {
    const auto named = names_.find(peer);
    if (named == names_.end()) {
      return fmt::format("Options::device_maps of {} names \"{}\", and there is no such worker; there are {}",
                         member.info.name, peer, present_names());
    }
    std::string problem = problem_of_map(member.info.name, map, peer, members_.at(named->second).devices);
    if (!problem.empty()) return problem;
  }
  return {};
}

std::string Coordinator::problem_of_newcomer(const Member& member) const {
  std::string problem = problem_of_maps_of(member);
  for (const Rank rank : mappers_of(member)) {
    if (!problem.empty()) break;
    const Member& other = members_.at(rank);
    problem =
        problem_of_map(other.info.name, other.devices->maps.at(member.info.name), member.info.name, member.devices);
  }
  return problem;
}

const std::set<Rank>& Coordinator::mappers_of(const Member& member) const {
  static const std::set<Rank> nobody;
  const auto found = mapped_by_.find(member.info.name);
  return found == mapped_by_.end() ? nobody : found->second;
}

MessagePtr Coordinator::ready_message(const Member& member) const {
  Ready ready;
  for (const Rank rank : mappers_of(member)) {
    const Member& other = members_.at(rank);
    ready.maps.push_back({rank, other.info.incarnation, other.devices->maps.at(member.info.name)});
  }
  return ready.maps.empty() ? cluster_message(kReady) : cluster_message(kReady, ready);
}

void Coordinator::tell_device_maps_of(Step& step, const Member& newcomer) {
  if (!newcomer.devices) return;
  for (const auto& [peer, map] : newcomer.devices->maps) {
    const Member& named = members_.at(names_.at(peer));
    if (named.connection.value == 0) continue;  // it hears of it when it is back
    const PeerDeviceMap told{newcomer.info.rank, newcomer.info.incarnation, map};
    outbox_.send(step, named.connection, cluster_message(kReady, Ready{{told}}));
  }
}

}  // namespace holdfast
