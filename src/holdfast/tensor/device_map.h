// Device maps: from a worker's options to what it says of its devices when it joins. Functions without state: any
// thread. Private to this layer; Devices (devices.h) uses it.
#pragma once

#include <optional>

#include <c10/core/Device.h>

#include <holdfast/cluster/device_facts.h>
#include <holdfast/rpc/options.h>

namespace holdfast {

// None: there is no number for it on the wire.
std::optional<DevicePlace> place_of(c10::Device device);
c10::Device device_at(DevicePlace place);

// Throws InvalidArgument for what is wrong whatever the others say.
DeviceFacts device_facts(const Options& options);

}  // namespace holdfast
