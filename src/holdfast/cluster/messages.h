// What workers and the coordinator say to each other. See docs/protocol.md, "Coordinator". None of these
// messages is numbered; each is idempotent or repeated until it is answered.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/cluster/device_facts.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/wire/codecs.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

inline constexpr Kind kJoin{16};
inline constexpr Kind kAccepted{17};
inline constexpr Kind kJoinRefused{18};
inline constexpr Kind kWaiting{19};
inline constexpr Kind kReady{20};
inline constexpr Kind kHeartbeat{21};
inline constexpr Kind kHeartbeatAck{22};
inline constexpr Kind kLookup{23};
inline constexpr Kind kFound{24};
inline constexpr Kind kLost{25};
inline constexpr Kind kFenced{26};
inline constexpr Kind kQuiet{27};
inline constexpr Kind kCheck{28};
inline constexpr Kind kReleased{29};
inline constexpr Kind kLeave{30};
inline constexpr Kind kSettled{31};

inline constexpr std::array<KindName, 16> kClusterKinds = {{{kJoin, "JOIN"},
                                                            {kAccepted, "ACCEPTED"},
                                                            {kJoinRefused, "JOIN_REFUSED"},
                                                            {kWaiting, "WAITING"},
                                                            {kReady, "READY"},
                                                            {kHeartbeat, "HEARTBEAT"},
                                                            {kHeartbeatAck, "HEARTBEAT_ACK"},
                                                            {kLookup, "LOOKUP"},
                                                            {kFound, "FOUND"},
                                                            {kLost, "LOST"},
                                                            {kFenced, "FENCED"},
                                                            {kQuiet, "QUIET"},
                                                            {kCheck, "CHECK"},
                                                            {kReleased, "RELEASED"},
                                                            {kLeave, "LEAVE"},
                                                            {kSettled, "SETTLED"}}};

struct Join {
  std::string job;
  std::string name;              // empty: "worker<rank>"
  std::optional<uint32_t> rank;  // none: the lowest free one
  uint32_t world_size = 0;
  std::string address;
  uint64_t instance = 0;               // random, one per start: tells a repeated JOIN from a second worker
  uint64_t frame_bytes_max = 0;        // must be the same everywhere: what one sends another must be able to read
  uint64_t losses_seen = 0;            // how many LOST it has heard, if it was here before
  std::optional<DeviceFacts> devices;  // none: its program does not use libtorch
  HOLDFAST_FIELDS(Join, job, name, rank, world_size, address, instance, frame_bytes_max, losses_seen, devices)
};
// So that JOIN fits into the frame of a connection that is not trusted yet.
inline constexpr size_t kDeviceFactsBytesMax = 48 * 1024;

struct Accepted {
  WorkerInfo self;
  uint32_t world_size = 0;
  uint64_t lease_ms = 0;
  uint64_t losses = 0;  // that a new member need not hear of
  // Up to this loss there is nothing to settle for the worker: they were before its time, or it has said so.
  uint64_t losses_settled = 0;
  HOLDFAST_FIELDS(Accepted, self, world_size, lease_ms, losses, losses_settled)
};

// The device map that a worker has for the one that hears of it.
struct PeerDeviceMap {
  Rank rank;
  Incarnation incarnation;
  DeviceMap map;

  WorkerId id() const { return {rank, incarnation}; }
  HOLDFAST_FIELDS(PeerDeviceMap, rank, incarnation, map)
};

// READY, if others have device maps for the one that hears it; else its body is empty. After a JOIN all such maps,
// later that of a newcomer.
struct Ready {
  std::vector<PeerDeviceMap> maps;
  HOLDFAST_FIELDS(Ready, maps)
};

// JOIN_REFUSED, WAITING, FENCED, LEAVE.
struct Text {
  std::string text;
  HOLDFAST_FIELDS(Text, text)
};

struct Heartbeat {
  uint64_t counter = 0;
  uint64_t losses_seen = 0;     // how many LOST it has heard
  uint64_t losses_settled = 0;  // everything it received before it heard of this loss is confirmed
  uint64_t settled_heard = 0;   // the last SETTLED it heard
  HOLDFAST_FIELDS(Heartbeat, counter, losses_seen, losses_settled, settled_heard)
};

// HEARTBEAT_ACK, CHECK, SETTLED.
struct Counter64 {
  uint64_t value = 0;
  HOLDFAST_FIELDS(Counter64, value)
};

struct Lookup {
  uint64_t request = 0;
  std::string name;  // empty: by rank
  uint32_t rank = 0;
  HOLDFAST_FIELDS(Lookup, request, name, rank)
};

struct Found {
  uint64_t request = 0;
  std::optional<WorkerInfo> worker;
  std::string text;  // why there is none
  HOLDFAST_FIELDS(Found, request, worker, text)
};

struct Lost {
  uint64_t number = 0;  // counts all LOST of the job, from 1
  WorkerInfo worker;
  std::string reason;
  HOLDFAST_FIELDS(Lost, number, worker, reason)
};

struct Quiet {
  uint64_t round = 0;
  bool quiet = false;
  uint64_t activity = 0;
  HOLDFAST_FIELDS(Quiet, round, quiet, activity)
};

// A message of one of these kinds, ready to send.
template <class T>
MessagePtr cluster_message(Kind kind, const T& value) {
  return std::make_shared<const Message>(wire::encode_message(kind, value));
}

inline MessagePtr cluster_message(Kind kind) {
  auto message = std::make_shared<Message>();
  message->kind = kind;
  return message;
}

}  // namespace holdfast
