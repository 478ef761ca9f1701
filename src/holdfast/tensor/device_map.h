// Device maps: what a worker says of its devices when it joins, and what can be wrong with the maps of a whole job.
// Plain data and functions without state: any thread. Private to this layer; Devices (devices.h) uses it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include <holdfast/rpc/options.h>
#include <holdfast/tensor/device.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

// A device by its number on the wire, for processes whose libtorch may differ. The cpu has no index.
struct DevicePlace {
  DeviceNumber number = DeviceNumber::cpu;
  int8_t index = -1;
  friend auto operator<=>(const DevicePlace&, const DevicePlace&) = default;
  HOLDFAST_FIELDS(DevicePlace, number, index)
};

// None: there is no number for it on the wire.
std::optional<DevicePlace> place_of(c10::Device device);
c10::Device device_at(DevicePlace place);
std::string text_of(DevicePlace place);

using DeviceMap = std::map<DevicePlace, DevicePlace>;

// Travels as the traits of a worker: see cluster/messages.h.
struct DeviceFacts {
  std::map<DeviceNumber, uint32_t> counts;  // how many devices it has of each type; none: no entry
  std::vector<DevicePlace> devices;         // Options::devices
  std::map<std::string, DeviceMap> maps;    // Options::device_maps
  HOLDFAST_FIELDS(DeviceFacts, counts, devices, maps)
};

// Throws InvalidArgument for what is wrong whatever the others say.
DeviceFacts device_facts(const Options& options);

// Every device in them is one that there may be: the rest is for what others have said.
bool are_known(const DeviceFacts& facts);

struct WorkerDevices {
  std::string name;
  std::optional<DeviceFacts> facts;  // none: its program does not use libtorch
};
// What is wrong with the maps of these workers, which are all of the job: who, which device, what to do. Empty:
// nothing.
std::string problem_of_maps(const std::vector<WorkerDevices>& workers);

}  // namespace holdfast
