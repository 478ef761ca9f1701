// Device facts: what a worker says of its devices and of its device maps when it joins, and what can be wrong with a
// map. The coordinator compares them, so nothing here needs libtorch; docs/tensor.md tells what maps are for. Plain
// data and functions without state: any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/wire/codecs.h>
#include <holdfast/wire/fields.h>

namespace holdfast {

// The numbers are the protocol's, not libtorch's.
enum class DeviceNumber : uint8_t { cpu = 0, meta = 1, cuda = 2, hip = 3, xpu = 4, mps = 5, hpu = 6, privateuse1 = 7 };

// A device by its number on the wire, for processes whose libtorch may differ. The cpu has no index.
struct DevicePlace {
  DeviceNumber number = DeviceNumber::cpu;
  int8_t index = -1;
  friend auto operator<=>(const DevicePlace&, const DevicePlace&) = default;
  HOLDFAST_FIELDS(DevicePlace, number, index)
};

// "cuda:1".
std::string text_of(DevicePlace place);
std::string texts_of(const std::vector<DevicePlace>& places);
// The cpu always is.
bool is_among(const std::vector<DevicePlace>& places, const DevicePlace& place);

// From devices of one worker to devices of another.
using DeviceMap = std::map<DevicePlace, DevicePlace>;
// Every device in it is one that there may be: the rest is for what others have said.
bool is_known(const DeviceMap& map);

struct DeviceFacts {
  std::map<DeviceNumber, uint32_t> counts;  // how many devices it has of each type; none: no entry
  std::vector<DevicePlace> devices;         // Options::devices
  std::map<std::string, DeviceMap> maps;    // Options::device_maps
  HOLDFAST_FIELDS(DeviceFacts, counts, devices, maps)
};
bool are_known(const DeviceFacts& facts);

// "has no devices of that type", unless the device is there.
std::string why_missing(const DeviceFacts& facts, const DevicePlace& place);

// What is wrong with the map that worker `from` has for worker `to`, whose facts these are (none: its program does not
// use libtorch): who, which device, what to do. Empty: nothing.
std::string problem_of_map(const std::string& from, const DeviceMap& map, const std::string& to,
                           const std::optional<DeviceFacts>& facts);

}  // namespace holdfast
