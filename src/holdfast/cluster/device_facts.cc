#include <holdfast/cluster/device_facts.h>

#include <algorithm>

#include <fmt/format.h>

namespace holdfast {

namespace {

// libtorch's names. The entry of number n is at n.
constexpr const char* kDeviceTypeNames[] = {"cpu", "meta", "cuda", "hip", "xpu", "mps", "hpu", "privateuseone"};

bool is_known_place(const DevicePlace& place) {
  if (place.number == DeviceNumber::cpu) return place.index == -1;
  return place.number != DeviceNumber::meta && static_cast<size_t>(place.number) < std::size(kDeviceTypeNames) &&
         place.index >= 0;
}

}  // namespace

std::string text_of(DevicePlace place) {
  const auto number = static_cast<size_t>(place.number);
  const char* name = number < std::size(kDeviceTypeNames) ? kDeviceTypeNames[number] : "unknown";
  return place.index < 0 ? name : fmt::format("{}:{}", name, place.index);
}

std::string texts_of(const std::vector<DevicePlace>& places) {
  std::string text;
  for (const DevicePlace& place : places) text += (text.empty() ? "" : ", ") + text_of(place);
  return text;
}

bool is_among(const std::vector<DevicePlace>& places, const DevicePlace& place) {
  return place.number == DeviceNumber::cpu || std::find(places.begin(), places.end(), place) != places.end();
}

bool is_known(const DeviceMap& map) {
  return std::all_of(map.begin(), map.end(),
                     [](const auto& entry) { return is_known_place(entry.first) && is_known_place(entry.second); });
}

bool are_known(const DeviceFacts& facts) {
  return std::all_of(facts.devices.begin(), facts.devices.end(), is_known_place) &&
         std::all_of(facts.maps.begin(), facts.maps.end(), [](const auto& entry) { return is_known(entry.second); });
}

std::string why_missing(const DeviceFacts& facts, const DevicePlace& place) {
  if (place.number == DeviceNumber::cpu) return {};
  const auto found = facts.counts.find(place.number);
  const uint32_t count = found == facts.counts.end() ? 0 : found->second;
  if (place.index >= 0 && static_cast<uint32_t>(place.index) < count) return {};
  if (count == 0) return "has no devices of that type";
  return fmt::format("has {} of that type, numbered from 0", count);
}

std::string problem_of_map(const std::string& from, const DeviceMap& map, const std::string& to,
                           const std::optional<DeviceFacts>& facts) {
  for (const auto& [source, target] : map) {
    const std::string what =
        fmt::format("Options::device_maps[\"{}\"] of {} maps {} to {}", to, from, text_of(source), text_of(target));
    if (!facts) return fmt::format("{}, but {} runs a program without holdfast::torch", what, to);
    if (const std::string why = why_missing(*facts, target); !why.empty()) {
      return fmt::format("{}, but {} {}: map it to a device that is there", what, to, why);
    }
    if (!facts->devices.empty() && !is_among(facts->devices, target)) {
      return fmt::format("{}, but Options::devices of {} has only {}: add it there, or map to one of these", what, to,
                         texts_of(facts->devices));
    }
  }
  return {};
}

}  // namespace holdfast
