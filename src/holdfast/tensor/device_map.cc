#include <holdfast/tensor/device_map.h>

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <holdfast/base/error.h>
#include <holdfast/tensor/device.h>

namespace holdfast {

namespace {

[[noreturn]] void refuse_map(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
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

}  // namespace

std::optional<DevicePlace> place_of(c10::Device device) {
  const auto number = device_number_of(device.type());
  if (!number) return std::nullopt;
  return DevicePlace{.number = *number, .index = device.is_cpu() ? int8_t{-1} : static_cast<int8_t>(device.index())};
}

c10::Device device_at(DevicePlace place) {
  return {device_type_of(place.number).value_or(c10::DeviceType::CPU), place.index};
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

}  // namespace holdfast
