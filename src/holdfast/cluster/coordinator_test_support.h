// CoordinatorTest: a coordinator in the hands of a test, which plays all the workers and the clock.
#pragma once

#include <gtest/gtest.h>

#include <holdfast/cluster/coordinator.h>

namespace holdfast {

using namespace std::chrono_literals;

class CoordinatorTest : public testing::Test {
 protected:
  void make(uint32_t world_size) { make({.job = "job", .world_size = world_size}); }
  void make(const CoordinatorOptions& options) { coordinator_.emplace(options); }
  Coordinator& coordinator() { return *coordinator_; }

  struct Heard {
    Kind kind;
    Message message;
    template <class T>
    T as() const {
      return wire::decode_message<T>(message).take();
    }
  };
  // What the coordinator has said on that connection since the last time.
  std::vector<Heard> heard(ConnectionId connection) {
    std::vector<OutFrame> frames;
    coordinator().collect(connection, frames);
    std::vector<Heard> out;
    for (const OutFrame& frame : frames) out.push_back({frame.header.kind, *frame.message});
    return out;
  }
  std::vector<Heard> heard(ConnectionId connection, Kind kind) {
    std::vector<Heard> out = heard(connection);
    std::erase_if(out, [&](const Heard& each) { return each.kind != kind; });
    return out;
  }
  std::vector<Kind> kinds(ConnectionId connection) {
    std::vector<Kind> out;
    for (const Heard& each : heard(connection)) out.push_back(each.kind);
    return out;
  }

  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    return step;
  }
  ConnectionId connect() {
    const ConnectionId connection{next_connection_ += 2};
    run([&](Step& step) { coordinator().on_accepted(step, connection); });
    return connection;
  }
  Step close(ConnectionId connection) {
    return run([&](Step& step) { coordinator().on_closed(step, connection); });
  }
  Step say(ConnectionId connection, const MessagePtr& message) {
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = message->kind}, .message = *message});
    return run([&](Step& step) { coordinator().on_frames(step, connection, frames); });
  }
  Join join_of(std::optional<uint32_t> rank, std::string name = "", uint64_t instance = 0) {
    return {.job = "job",
            .name = std::move(name),
            .rank = rank,
            .world_size = world_size_,
            .address = "host:" + std::to_string(next_connection_),
            .instance = instance != 0 ? instance : ++last_instance_,
            .frame_bytes_max = 1000};
  }
  ConnectionId join(const Join& join) {
    const ConnectionId connection = connect();
    say(connection, cluster_message(kJoin, join));
    return connection;
  }
  // A world of that many workers, ready; who[rank] is the connection of that rank, which has read everything.
  std::vector<ConnectionId> world(uint32_t size) {
    world_size_ = size;
    make(size);
    std::vector<ConnectionId> who;
    for (uint32_t rank = 0; rank < size; ++rank) who.push_back(join(join_of(rank, "", 100 + rank)));
    for (ConnectionId connection : who) heard(connection);
    EXPECT_TRUE(coordinator().ready());
    return who;
  }
  std::string refusal(const Join& wanted) {
    const ConnectionId connection = join(wanted);
    const std::vector<Heard> answer = heard(connection);
    if (answer.size() != 1 || answer[0].kind != kJoinRefused) return "not refused";
    return answer[0].as<Text>().text;
  }
  Step wait(Duration duration) {
    now_ += duration;
    return run([&](Step& step) { coordinator().on_time(step); });
  }
  Step heartbeat(ConnectionId connection, uint64_t losses_seen = 0, uint64_t losses_settled = 0,
                 uint64_t settled_heard = 0) {
    return say(connection, cluster_message(kHeartbeat, Heartbeat{.counter = 1,
                                                                 .losses_seen = losses_seen,
                                                                 .losses_settled = losses_settled,
                                                                 .settled_heard = settled_heard}));
  }
  // It has heard of that many losses and has passed the last of them.
  void settle(ConnectionId connection, uint64_t number) { heartbeat(connection, number, number); }
  void quiet(ConnectionId connection, uint64_t round, bool quiet, uint64_t activity) {
    say(connection, cluster_message(kQuiet, Quiet{.round = round, .quiet = quiet, .activity = activity}));
  }
  // The round that it is asked to confirm; 0: it was not asked.
  uint64_t asked(ConnectionId connection) {
    const std::vector<Heard> checks = heard(connection, kCheck);
    return checks.empty() ? 0 : checks.back().as<Counter64>().value;
  }
  void declare_lost(uint32_t rank, bool returns = false) {
    run([&](Step& step) { coordinator().declare_lost(step, {rank}, "its process ended", returns); });
  }
  std::vector<uint64_t> losses(ConnectionId connection) {
    std::vector<uint64_t> numbers;
    for (const Heard& lost : heard(connection, kLost)) numbers.push_back(lost.as<Lost>().number);
    return numbers;
  }
  std::vector<uint64_t> settled(ConnectionId connection) {
    std::vector<uint64_t> numbers;
    for (const Heard& each : heard(connection, kSettled)) numbers.push_back(each.as<Counter64>().value);
    return numbers;
  }

  uint32_t world_size_ = 2;
  std::optional<Coordinator> coordinator_;
  Time now_ = Time{} + 1h;
  uint64_t next_connection_ = 1;
  uint64_t last_instance_ = 1000;
};

using Numbers = std::vector<uint64_t>;

}  // namespace holdfast
