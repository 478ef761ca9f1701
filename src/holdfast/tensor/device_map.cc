#include <holdfast/tensor/device_map.h>

#include <algorithm>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <holdfast/base/error.h>

namespace holdfast {

namespace {

constexpr size_t kWorkerNamesMax = 12;

[[noreturn]] void refuse_map(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

std::string texts_of(const std::vector<DevicePlace>& places) {
  std::string text;
  for (const DevicePlace& place : places) text += (text.empty() ? "" : ", ") + text_of(place);
  return text;
}

uint32_t count_of(const DeviceFacts& facts, DeviceNumber number) {
  const auto found = facts.counts.find(number);
  return found == facts.counts.end() ? 0 : found->second;
}

// "has no devices of that type", unless the device is there.
std::string why_missing(const DeviceFacts& facts, const DevicePlace& place) {
  if (place.number == DeviceNumber::cpu) return {};
  const uint32_t count = count_of(facts, place.number);
  if (place.index >= 0 && static_cast<uint32_t>(place.index) < count) return {};
  if (count == 0) return "has no devices of that type";
  return fmt::format("has {} of that type, numbered from 0", count);
}

bool is_among(const std::vector<DevicePlace>& places, const DevicePlace& place) {
  return place.number == DeviceNumber::cpu || std::find(places.begin(), places.end(), place) != places.end();
}

DevicePlace parse_device(const std::string& text, const std::string& where) {
  std::optional<DevicePlace> place;
  try {
    place = place_of(c10::Device(text));
  } catch (const c10::Error&) {
    refuse_map(fmt::format("{} has \"{}\", which is no device: one is like \"cuda:0\" or \"cpu\"", where, text));
  }
  if (!place || place->number == DeviceNumber::meta) {
    refuse_map(fmt::format("{} has \"{}\", whose tensors cannot be sent", where, text));
  }
  if (place->number != DeviceNumber::cpu && place->index < 0) {
    refuse_map(fmt::format("{} has \"{}\" without an index: say which one, as in \"{}:0\"", where, text, text));
  }
  return *place;
}

DeviceMap parse_map(const std::string& peer, const std::map<std::string, std::string>& texts) {
  const std::string where = fmt::format("Options::device_maps[\"{}\"]", peer);
  DeviceMap map;
  std::map<DevicePlace, DevicePlace> sources;  // by target
  for (const auto& [from_text, to_text] : texts) {
    const DevicePlace from = parse_device(from_text, where);
    const DevicePlace to = parse_device(to_text, where);
    if (!map.emplace(from, to).second) refuse_map(fmt::format("{} has {} twice", where, text_of(from)));
    if (const auto [other, is_new] = sources.emplace(to, from); !is_new) {
      refuse_map(fmt::format("{} maps both {} and {} to {}: give each a device of its own, for results must find back",
                             where, text_of(other->second), text_of(from), text_of(to)));
    }
  }
  return map;
}

std::string problem_of_target(const WorkerDevices& from, const WorkerDevices& to, const DevicePlace& source,
                              const DevicePlace& target) {
  const std::string what = fmt::format("Options::device_maps[\"{}\"] of {} maps {} to {}", to.name, from.name,
                                       text_of(source), text_of(target));
  if (!to.facts) return fmt::format("{}, but {} runs a program without holdfast::torch", what, to.name);
  if (const std::string why = why_missing(*to.facts, target); !why.empty()) {
    return fmt::format("{}, but {} {}: map it to a device that is there", what, to.name, why);
  }
  if (!to.facts->devices.empty() && !is_among(to.facts->devices, target)) {
    return fmt::format("{}, but Options::devices of {} has only {}: add it there, or map to one of these", what,
                       to.name, texts_of(to.facts->devices));
  }
  return {};
}

}  // namespace

std::optional<DevicePlace> place_of(c10::Device device) {
  const auto number = device_number_of(device.type());
  if (!number) return std::nullopt;
  return DevicePlace{.number = *number, .index = device.is_cpu() ? int8_t{-1} : static_cast<int8_t>(device.index())};
}

c10::Device device_at(DevicePlace place) {
  return {device_type_of(place.number).value_or(c10::DeviceType::CPU), place.index};
}

std::string text_of(DevicePlace place) { return device_at(place).str(); }

bool are_known(const DeviceFacts& facts) {
  const auto is_known = [](const DevicePlace& place) {
    if (place.number == DeviceNumber::cpu) return place.index == -1;
    return place.number != DeviceNumber::meta && device_type_of(place.number) && place.index >= 0;
  };
  bool known = std::all_of(facts.devices.begin(), facts.devices.end(), is_known);
  for (const auto& [peer, map] : facts.maps) {
    for (const auto& [source, target] : map) known = known && is_known(source) && is_known(target);
  }
  return known;
}

DeviceFacts device_facts(const Options& options) {
  DeviceFacts facts;
  for (int number = 1; const auto type = device_type_of(static_cast<DeviceNumber>(number)); ++number) {
    if (*type == c10::DeviceType::Meta || !c10::impl::hasDeviceGuardImpl(*type)) continue;
    const int count = c10::impl::getDeviceGuardImpl(*type)->deviceCount();
    if (count > 0) facts.counts[static_cast<DeviceNumber>(number)] = static_cast<uint32_t>(count);
  }
  for (const std::string& text : options.devices) {
    const DevicePlace place = parse_device(text, "Options::devices");
    if (const std::string why = why_missing(facts, place); !why.empty()) {
      refuse_map(fmt::format("Options::devices has {}, but this worker {}", text_of(place), why));
    }
    facts.devices.push_back(place);
  }
  for (const auto& [peer, texts] : options.device_maps) {
    const DeviceMap& map = facts.maps[peer] = parse_map(peer, texts);
    for (const auto& [source, target] : map) {
      if (const std::string why = why_missing(facts, source); !why.empty()) {
        refuse_map(fmt::format("Options::device_maps[\"{}\"] maps {}, but this worker {}", peer, text_of(source), why));
      }
      if (!facts.devices.empty() && !is_among(facts.devices, source)) {
        refuse_map(fmt::format("Options::device_maps[\"{}\"] maps {}, but Options::devices has only {}: add it there",
                               peer, text_of(source), texts_of(facts.devices)));
      }
    }
  }
  return facts;
}

std::string problem_of_maps(const std::vector<WorkerDevices>& workers) {
  std::map<std::string, const WorkerDevices*> by_name;
  for (const WorkerDevices& worker : workers) by_name.emplace(worker.name, &worker);
  for (const WorkerDevices& worker : workers) {
    if (!worker.facts) continue;
    for (const auto& [peer, map] : worker.facts->maps) {
      const auto found = by_name.find(peer);
      if (found == by_name.end()) {
        std::string names;
        for (size_t i = 0; i < workers.size() && i < kWorkerNamesMax; ++i) {
          names += (i == 0 ? "" : ", ") + workers[i].name;
        }
        if (workers.size() > kWorkerNamesMax) names += fmt::format(" and {} more", workers.size() - kWorkerNamesMax);
        return fmt::format("Options::device_maps of {} names \"{}\", and there is no such worker; there are {}",
                           worker.name, peer, names);
      }
      for (const auto& [source, target] : map) {
        if (std::string problem = problem_of_target(worker, *found->second, source, target); !problem.empty()) {
          return problem;
        }
      }
    }
  }
  return {};
}

}  // namespace holdfast
