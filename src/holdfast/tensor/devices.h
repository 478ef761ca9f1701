// Devices: which devices one worker's tensors may go to and come from, by Options::device_maps; and the DeviceMovers
// that take them there. One in each worker, reached like a protocol but without messages of its own: what others have
// to know travels in the job's JOIN and READY (docs/protocol.md, "Device maps"). Any thread, unless a method says
// otherwise. The map of a worker that is lost stays until one that takes its rank has a map.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/protocol.h>
#include <holdfast/tensor/device_copies.h>
#include <holdfast/tensor/device_map.h>

namespace holdfast {

// Whose map says where a tensor goes. Calls go by the caller's map, results back by the same one.
enum class MapOf {
  sender,    // the message is a call, or begins something
  receiver,  // it is the reply to a call of the receiver
};

class Devices final : public Protocol {
 public:
  // Throws InvalidArgument for options that cannot be.
  Devices(Node& node, Host& host);
  ~Devices() override;
  static std::unique_ptr<Protocol> make(Node& node, Host& host);
  static Devices& of(CallHost& host);

  // The device of `to` for tensors that are on `device` here. A failure says what to set.
  Result<c10::Device> target_of(c10::Device device, const WorkerInfo& to, MapOf map) const;
  // Why tensors from that worker may not come to that device; ok: they may.
  Status may_receive(c10::Device device, const WorkerInfo& from) const;
  // See CopyToDevice. `in_order`: who uses it does so on this thread, or waits for the device; otherwise it is complete
  // when this returns.
  at::Tensor copy_to(const at::Tensor& bytes, c10::Device device, bool in_order);

  // Protocol. Under the driver's lock.
  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  void on_device_maps(Step& step, const std::vector<PeerDeviceMap>& maps) override;
  bool idle() const override { return true; }

 private:
  // With mutex_ held.
  std::optional<DevicePlace> by_own_map(DevicePlace place, const WorkerInfo& to) const;
  std::optional<DevicePlace> by_map_of(const WorkerInfo& other, DevicePlace place) const;
  void find_used();

  Host& host_;
  DeviceFacts own_;                     // constant
  std::atomic<bool> has_maps_ = false;  // this worker's, or others'; without any nothing below is looked at
  mutable std::mutex mutex_;
  // Of others, and perhaps this worker itself, for this one.
  std::map<Rank, PeerDeviceMap> maps_for_us_;
  std::set<DevicePlace> used_;          // that tensors may come to
  std::deque<CopyToDevice> under_way_;  // copies that may not have run: they read memory of ours
};

// For the messages between a worker and one peer. On the thread that sends or receives, while both live.
class PeerMover final : public DeviceMover {
 public:
  // `in_order`: for what it receives, see Devices::copy_to.
  PeerMover(CallHost& host, const WorkerInfo& peer, MapOf map, bool in_order)
      : devices_(Devices::of(host)), peer_(peer), map_(map), in_order_(in_order) {}

  Result<c10::Device> target_of(c10::Device device) override { return devices_.target_of(device, peer_, map_); }
  Result<at::Tensor> to_cpu(const at::Tensor& bytes) override { return copy_from_device(bytes); }
  Result<at::Tensor> to_device(const at::Tensor& bytes, c10::Device device) override;

 private:
  Devices& devices_;
  const WorkerInfo& peer_;
  const MapOf map_;
  const bool in_order_;
};

}  // namespace holdfast
