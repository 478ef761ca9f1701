#include <holdfast/tensor/devices.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/rpc/node.h>

namespace holdfast {

namespace {

DeviceFacts own_facts(const Host& host) {
  const Options* options = host.options_if_any();
  return options != nullptr ? device_facts(*options) : DeviceFacts();
}

Failure no_target(DevicePlace place, const std::string& self, const std::string& to, MapOf map) {
  const std::string device = text_of(place);
  std::string text = fmt::format("cannot send a tensor: it is on {} of {}, and ", device, self);
  if (map == MapOf::receiver) {
    text +=
        fmt::format("no device of {} is mapped to that: set Options::device_maps[\"{}\"] of {}, or return tensor.cpu()",
                    to, self, to);
  } else {
    text += fmt::format("goes to {} by no map: set Options::device_maps[\"{}\"][\"{}\"] of {}, or send tensor.cpu()",
                        to, to, device, self);
  }
  return {.code = Code::invalid_argument, .message = std::move(text)};
}

}  // namespace

size_t devices_index() { return RegisteredProtocol<Devices>::index(); }

std::unique_ptr<Protocol> Devices::make(Node& node, Host& host) { return std::make_unique<Devices>(node, host); }

Devices& Devices::of(CallHost& host) {
  return static_cast<Devices&>(dynamic_cast<Host&>(host).protocol(devices_index()));
}

Devices::Devices(Node& node, Host& host) : host_(host), own_(own_facts(host)), has_maps_(!own_.maps.empty()) {
  if (host.options_if_any() == nullptr) return;
  if (const size_t bytes = wire::encode_message({}, own_).body.size(); bytes > kDeviceFactsBytesMax) {
    throw_failure({.code = Code::invalid_argument,
                   .message = fmt::format("Options::device_maps takes {} bytes, over the limit of {}", bytes,
                                          kDeviceFactsBytesMax)});
  }
  node.set_devices(own_, *this);
  find_used();
}

Devices::~Devices() {
  for (CopyToDevice& copy : under_way_) {
    try {
      copy.wait();
    } catch (...) {  // the device is gone, and so is whatever read that memory
    }
  }
}

Status Devices::on_message(Step&, const WorkerPtr&, Message) {
  return Failure{.code = Code::corrupt, .message = "a message for something that has none"};
}

void Devices::on_device_maps(Step&, const std::vector<PeerDeviceMap>& maps) {
  std::lock_guard lock(mutex_);
  for (const PeerDeviceMap& each : maps) maps_for_us_[each.rank] = each;
  has_maps_ = true;
  find_used();
}

void Devices::find_used() {
  used_ = std::set<DevicePlace>(own_.devices.begin(), own_.devices.end());
  if (!used_.empty()) return;
  for (const auto& [peer, map] : own_.maps) {
    for (const auto& [source, target] : map) used_.insert(source);
  }
  for (const auto& [rank, peer] : maps_for_us_) {
    for (const auto& [source, target] : peer.map) used_.insert(target);
  }
}

std::optional<DevicePlace> Devices::by_own_map(DevicePlace place, const WorkerInfo& to) const {
  const auto map = own_.maps.find(to.name);
  if (map == own_.maps.end()) return std::nullopt;
  const auto found = map->second.find(place);
  return found == map->second.end() ? std::nullopt : std::optional(found->second);
}

std::optional<DevicePlace> Devices::by_map_of(const WorkerInfo& other, DevicePlace place) const {
  const auto found = maps_for_us_.find(other.rank);
  if (found == maps_for_us_.end() || found->second.id() != other.id()) return std::nullopt;
  for (const auto& [source, target] : found->second.map) {
    if (target == place) return source;
  }
  return std::nullopt;
}

Result<c10::Device> Devices::target_of(c10::Device device, const WorkerInfo& to, MapOf map) const {
  if (device.is_cpu() && !has_maps_) return device;
  const std::optional<DevicePlace> place = place_of(device);
  if (!place) {
    return Failure{.code = Code::invalid_argument,
                   .message = fmt::format("cannot send a tensor: {} has no number on the wire", device.str())};
  }
  std::optional<DevicePlace> target;
  {
    std::lock_guard lock(mutex_);
    target = map == MapOf::sender ? by_own_map(*place, to) : by_map_of(to, *place);
  }
  if (target) return device_at(*target);
  // To oneself everything stays where it is, unless a map says otherwise.
  if (device.is_cpu() || to.id() == host_.self()->id()) return device;
  return no_target(*place, host_.self()->name, to.name, map);
}

Status Devices::may_receive(c10::Device device, const WorkerInfo& from) const {
  const std::optional<DevicePlace> place = place_of(device);
  const auto count = place ? own_.counts.find(place->number) : own_.counts.end();
  if (count == own_.counts.end() || place->index < 0 || static_cast<uint32_t>(place->index) >= count->second) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("a tensor for {}, which {} does not have", device.str(), host_.self()->name)};
  }
  if (from.id() == host_.self()->id()) return {};
  std::lock_guard lock(mutex_);
  if (used_.contains(*place)) return {};
  return Failure{.code = Code::corrupt,
                 .message = fmt::format("a tensor for {}, which no device map and not Options::devices of {} names",
                                        device.str(), host_.self()->name)};
}

at::Tensor Devices::copy_to(const at::Tensor& bytes, c10::Device device, bool in_order) {
  CopyToDevice copy(bytes, device);
  const at::Tensor on_device = copy.on_device();
  if (!in_order) copy.wait();
  if (copy.done()) return on_device;
  copy.forget_result();
  std::deque<CopyToDevice> done;  // memory goes outside the lock
  std::lock_guard lock(mutex_);
  under_way_.push_back(std::move(copy));
  while (!under_way_.empty() && under_way_.front().done()) {
    done.push_back(std::move(under_way_.front()));
    under_way_.pop_front();
  }
  return on_device;
}

Result<at::Tensor> PeerMover::to_device(const at::Tensor& bytes, c10::Device device) {
  if (Status status = devices_.may_receive(device, peer_); !status.ok()) return std::move(status.failure());
  return devices_.copy_to(bytes, device, in_order_);
}

}  // namespace holdfast
