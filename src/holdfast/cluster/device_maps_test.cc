// Device maps: who is refused for which, and that a worker hears of those that name it and of no others.
#include <algorithm>

#include <holdfast/cluster/coordinator_test_support.h>
#include <holdfast/cluster/member_test_support.h>

namespace holdfast {
namespace {

DevicePlace cuda(int8_t index) { return {.number = DeviceNumber::cuda, .index = index}; }

// A worker with that many devices, and one map: of its first to that of a peer.
DeviceFacts facts_of(uint32_t count, const std::string& peer = "", DevicePlace target = cuda(0)) {
  DeviceFacts facts;
  facts.counts[DeviceNumber::cuda] = count;
  if (!peer.empty()) facts.maps[peer] = {{cuda(0), target}};
  return facts;
}

class CoordinatorDeviceMaps : public CoordinatorTest {
 protected:
  Join join_with(uint32_t rank, std::optional<DeviceFacts> devices) {
    Join join = join_of(rank);
    join.devices = std::move(devices);
    return join;
  }
  // "0/1 cuda:0-cuda:1" for each map that the last READY has, "" if it has none; "none" if there was no READY.
  static std::string maps_in(const std::vector<Heard>& heard) {
    std::string text = "none";
    for (const Heard& each : heard) {
      if (each.kind != kReady) continue;
      text.clear();
      if (each.message.body.empty()) continue;
      for (const PeerDeviceMap& peer : each.as<Ready>().maps) {
        text +=
            (text.empty() ? "" : ", ") + std::to_string(peer.rank.value) + "/" + std::to_string(peer.incarnation.value);
        for (const auto& [source, target] : peer.map) text += " " + text_of(source) + "-" + text_of(target);
      }
    }
    return text;
  }
  std::string told(ConnectionId connection) { return maps_in(heard(connection)); }
  // The text of the last JOIN_REFUSED.
  std::string refused(ConnectionId connection) {
    const std::vector<Heard> refusals = heard(connection, kJoinRefused);
    return refusals.empty() ? "not refused" : refusals.back().as<Text>().text;
  }
};

TEST_F(CoordinatorDeviceMaps, AreToldToTheWorkersThatTheyName) {
  world_size_ = 3;
  make(3);
  const ConnectionId first = join(join_with(0, facts_of(1, "worker1", cuda(1))));
  const ConnectionId second = join(join_with(1, facts_of(2)));
  EXPECT_EQ(told(first), "none");
  const ConnectionId third = join(join_with(2, facts_of(1, "worker1")));
  EXPECT_EQ(told(first), "");
  EXPECT_EQ(told(second), "0/1 cuda:0-cuda:1, 2/3 cuda:0-cuda:0");
  EXPECT_EQ(told(third), "");
}

TEST_F(CoordinatorDeviceMaps, CostAsMuchPerWorkerInALargerWorld) {
  const auto ready_bytes = [&](uint32_t workers) {
    world_size_ = workers;
    make(workers);
    std::vector<ConnectionId> who;
    for (uint32_t rank = 0; rank < workers; ++rank) {
      who.push_back(join(join_with(rank, facts_of(1, "worker" + std::to_string((rank + 1) % workers)))));
    }
    size_t largest = 0;
    for (const ConnectionId connection : who) {
      for (const Heard& each : heard(connection, kReady)) largest = std::max(largest, each.message.total_bytes());
    }
    return largest;
  };
  const size_t few = ready_bytes(10);
  EXPECT_GT(few, 0u);
  EXPECT_EQ(ready_bytes(100), few);
}

struct WrongMap {
  const char* name;
  DeviceFacts facts;
  std::optional<DeviceFacts> other;
  std::string says;
};

std::vector<WrongMap> wrong_maps() {
  DeviceFacts uses_one = facts_of(2);
  uses_one.devices = {cuda(1)};
  const std::string map = "Options::device_maps[\"worker1\"] of worker0 maps cuda:0 to ";
  return {
      {"no such worker", facts_of(1, "eve"), facts_of(1),
       "Options::device_maps of worker0 names \"eve\", and there is no such worker; there are worker0, worker1"},
      {"no such device", facts_of(1, "worker1", cuda(2)), facts_of(2),
       map + "cuda:2, but worker1 has 2 of that type, numbered from 0: map it to a device that is there"},
      {"no such type", facts_of(1, "worker1"), DeviceFacts(),
       map + "cuda:0, but worker1 has no devices of that type: map it to a device that is there"},
      {"not used", facts_of(1, "worker1"), uses_one,
       map + "cuda:0, but Options::devices of worker1 has only cuda:1: add it there, or map to one of these"},
      {"no libtorch", facts_of(1, "worker1", {}), std::nullopt,
       map + "cpu, but worker1 runs a program without holdfast::torch"},
  };
}

TEST_F(CoordinatorDeviceMaps, ThatDoNotFitKeepTheJobFromStarting) {
  for (const WrongMap& wrong : wrong_maps()) {
    SCOPED_TRACE(wrong.name);
    make(2);
    const std::string text = "the job cannot start: " + wrong.says;
    const Join first = join_with(0, wrong.facts), second = join_with(1, wrong.other);
    const ConnectionId cut_off = join(first);
    EXPECT_EQ(refused(cut_off), "not refused") << "the other is not here yet";
    close(cut_off);
    EXPECT_EQ(refused(join(second)), text);
    EXPECT_EQ(refused(join(first)), text) << "when it is back";
    EXPECT_FALSE(coordinator().ready());
    EXPECT_EQ(coordinator().member_count(), 0u);
    // Others may still make a job of it.
    join(join_with(1, std::nullopt));
    EXPECT_EQ(told(join(join_with(0, std::nullopt))), "");
    EXPECT_TRUE(coordinator().ready());
  }
}

TEST_F(CoordinatorDeviceMaps, OfANewcomerThatDoNotFitAreItsOwnProblem) {
  for (const WrongMap& wrong : wrong_maps()) {
    SCOPED_TRACE(wrong.name);
    make(2);
    join(join_with(0, std::nullopt));
    const ConnectionId other = join(join_with(1, wrong.other));
    heard(other);
    declare_lost(0);
    EXPECT_EQ(refused(join(join_with(0, wrong.facts))), "rank 0 cannot join: " + wrong.says);
    EXPECT_EQ(kinds(other), std::vector<Kind>{kLost}) << "it has heard nothing of the newcomer";
    EXPECT_EQ(told(join(join_with(0, facts_of(1)))), "");
    EXPECT_EQ(coordinator().member_count(), 2u);
  }
}

TEST_F(CoordinatorDeviceMaps, ANewcomerMustFitThoseOfOthersForIt) {
  make(2);
  const ConnectionId first = join(join_with(0, facts_of(1, "worker1", cuda(1))));
  join(join_with(1, facts_of(2)));
  declare_lost(1);
  EXPECT_EQ(
      refused(join(join_with(1, facts_of(1)))),
      "rank 1 cannot join: Options::device_maps[\"worker1\"] of worker0 maps cuda:0 to cuda:1, but worker1 has 1 of "
      "that type, numbered from 0: map it to a device that is there");
  EXPECT_EQ(told(join(join_with(1, facts_of(3)))), "0/1 cuda:0-cuda:1");
  EXPECT_EQ(told(first), "");
}

TEST_F(CoordinatorDeviceMaps, OfANewcomerAreToldToThoseWhomTheyName) {
  make(2);
  const ConnectionId first = join(join_with(0, facts_of(2)));
  join(join_with(1, facts_of(1)));
  EXPECT_EQ(told(first), "");
  declare_lost(1);
  Join again = join_with(1, facts_of(1, "worker0", cuda(1)));
  again.devices->maps["worker1"] = {{cuda(0), cuda(0)}};
  EXPECT_EQ(told(join(again)), "1/3 cuda:0-cuda:0") << "for itself";
  EXPECT_EQ(told(first), "1/3 cuda:0-cuda:1");
  declare_lost(1);
  EXPECT_EQ(told(join(join_with(1, facts_of(1, "worker0")))), "");
  EXPECT_EQ(told(first), "1/4 cuda:0-cuda:0");
  EXPECT_EQ(told(join(join_of(0, "", 1001))), "1/4 cuda:0-cuda:0") << "whoever was cut off hears of all once more";
  declare_lost(1);
  join(join_with(1, std::nullopt));
  EXPECT_EQ(told(join(join_of(0, "", 1001))), "") << "there are none any more";
}

TEST_F(CoordinatorDeviceMaps, WithUnknownDevicesAreRefused) {
  make(2);
  for (const DevicePlace wrong : {DevicePlace{DeviceNumber{8}, 0}, DevicePlace{DeviceNumber::meta, -1},
                                  DevicePlace{DeviceNumber::cpu, 0}, cuda(-1)}) {
    DeviceFacts facts = facts_of(1);
    facts.devices = {wrong};
    EXPECT_EQ(refusal(join_with(0, facts)), "rank 0 cannot join: it names a device of an unknown type");
    EXPECT_EQ(refusal(join_with(0, facts_of(1, "worker1", wrong))),
              "rank 0 cannot join: it names a device of an unknown type");
  }
}

TEST_F(CoordinatorDeviceMaps, ARefusalIsShortEnoughForAStranger) {
  make(2);
  join(join_with(0, std::nullopt));
  join(join_with(1, std::nullopt));
  declare_lost(1);
  const std::string text = refused(join(join_with(1, facts_of(1, std::string(60000, 'x')))));
  EXPECT_EQ(text.find("rank 1 cannot join: Options::device_maps of worker1 names \"xx"), 0u) << text;
  EXPECT_EQ(text.size(), 4096u);
}

class MemberDeviceMaps : public MemberTest {
 protected:
  void on_device_maps(Step&, const std::vector<PeerDeviceMap>& maps) override {
    EXPECT_EQ(joined_.empty(), heard_.empty()) << "the first before the join completes";
    for (const PeerDeviceMap& each : maps) heard_.push_back(each.rank.value);
  }
  static Ready ready(uint32_t rank, DevicePlace target = cuda(1)) {
    return {{{.rank = {rank}, .incarnation = {1}, .map = {{cuda(0), target}}}}};
  }

  std::vector<uint32_t> heard_;
};

TEST_F(MemberDeviceMaps, AreSaidInEveryJoin) {
  member().set_devices(facts_of(2, "worker1"));
  start_join();
  for (int i = 0; i < 2; ++i) {
    connect();
    const Join join = wire::decode_message<Join>(said(kJoin).at(0)).take();
    ASSERT_TRUE(join.devices);
    EXPECT_EQ(join.devices->counts.at(DeviceNumber::cuda), 2u);
    EXPECT_EQ(join.devices->maps.at("worker1").at(cuda(0)), cuda(0));
    break_connection();
    wait(1s);
  }
}

TEST_F(MemberDeviceMaps, OfOthersAreHandedUp) {
  start_join();
  connect();
  hear(kReady, ready(5));
  EXPECT_TRUE(heard_.empty()) << "READY before ACCEPTED";
  hear(kAccepted, accepted());
  hear(kReady, ready(5));
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_TRUE(joined_[0].ok());
  hear(kReady, ready(6));
  EXPECT_EQ(heard_, (std::vector<uint32_t>{5, 6}));
  EXPECT_EQ(joined_.size(), 1u);
}

TEST_F(MemberDeviceMaps, WithUnknownDevicesEndTheConnection) {
  join();
  const Step step = hear(kReady, ready(5, {DeviceNumber{99}, 0}));
  ASSERT_EQ(step.closes.size(), 1u);
  EXPECT_EQ(step.closes[0].why.code, Code::corrupt);
  EXPECT_TRUE(heard_.empty());
}

TEST_F(MemberDeviceMaps, ThatDoNotFitEndTheJoinOfAWorkerThatWasAccepted) {
  start_join();
  connect();
  hear(kAccepted, accepted());
  hear(kJoinRefused, Text{"the job cannot start: no device"});
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_EQ(joined_[0].failure().code, Code::invalid_argument);
  EXPECT_EQ(joined_[0].failure().message, "the job cannot start: no device (coordinator at boss:1)");
  EXPECT_FALSE(member().fenced());
  EXPECT_EQ(member().next_wakeup(), kNever);
}

}  // namespace
}  // namespace holdfast
