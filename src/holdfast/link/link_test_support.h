// For the tests of one link: a link to rank 1 that is driven by events and times.
#pragma once

#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <holdfast/link/link.h>

namespace holdfast::test {

inline constexpr Kind kTestKind{96};
inline const Failure kBroken{.code = Code::unavailable, .message = "the connection broke"};

inline MessagePtr message_of(size_t bytes) {
  return std::make_shared<const Message>(Message{.kind = kTestKind, .body = Bytes(bytes, 0), .attachments = {}});
}

inline FrameHeader header_of(uint64_t acknowledged, uint64_t credit_bytes = 0) {
  return {.kind = kAck, .sequence = 0, .acknowledged = acknowledged, .credit_bytes = credit_bytes};
}

inline Hello hello_of(uint64_t epoch) { return {.epoch = epoch}; }

class LinkTest : public testing::Test {
 protected:
  // The link of the worker with rank `self` to the one with rank 1.
  Link& make(uint32_t self = 0) {
    self_ = {.name = "self", .rank = {self}, .incarnation = {7}, .address = "self:1"};
    auto peer = std::make_shared<const WorkerInfo>(
        WorkerInfo{.name = "peer", .rank = {1}, .incarnation = {9}, .address = "peer:1"});
    link_.emplace(options_, self_, peer, ids_, Random(1));
    return *link_;
  }
  Link& link() { return *link_; }

  template <class F>
  Step run(F&& event) {
    Step step(now_);
    event(step);
    return step;
  }
  uint64_t send(size_t bytes = 10, bool windowed = false) {
    uint64_t number = 0;
    run([&](Step& step) { number = link().send(step, message_of(bytes), windowed); });
    return number;
  }
  Step tick() {
    return run([&](Step& step) { link().on_time(step); });
  }
  Step wait(Duration duration) {
    now_ += duration;
    return tick();
  }
  std::vector<OutFrame> collect(size_t bytes_max = 1 << 20) {
    std::vector<OutFrame> out;
    link().collect(bytes_max, out);
    return out;
  }
  // The numbers of the frames that go out now; 0 for each that is not numbered.
  std::vector<uint64_t> sent(size_t bytes_max = 1 << 20) {
    std::vector<uint64_t> numbers;
    for (const OutFrame& frame : collect(bytes_max)) numbers.push_back(frame.header.sequence);
    return numbers;
  }
  Hello connect() {
    run([&](Step& step) { link().on_connected(step); });
    const std::vector<OutFrame> frames = collect();
    EXPECT_EQ(frames.size(), 1u);
    EXPECT_EQ(frames.at(0).header.kind, kHello);
    return wire::decode_message<Hello>(*frames.at(0).message).take();
  }
  Step welcome(uint64_t acknowledged = 0, uint64_t credit_bytes = 0, uint64_t epoch = 1) {
    return run(
        [&](Step& step) { link().on_welcome(step, header_of(acknowledged, credit_bytes), Welcome{.epoch = epoch}); });
  }
  // An adopted connection.
  void adopt(uint64_t epoch = 1, uint64_t acknowledged = 0, uint64_t credit_bytes = 0) {
    const Step step = run([&](Step& step) {
      EXPECT_FALSE(
          link().on_hello(step, {next_accepted_ += 2}, header_of(acknowledged, credit_bytes), hello_of(epoch)));
    });
    ASSERT_TRUE(link().up());
    ASSERT_EQ(collect().at(0).header.kind, kWelcome);
  }
  Step close() {
    return run([&](Step& step) { link().on_closed(step, kBroken); });
  }
  Result<bool> receive(uint64_t number, Step* at = nullptr) {
    Step step(now_);
    Result<bool> result = link().on_sequence(step, number);
    if (at != nullptr) *at = std::move(step);
    return result;
  }
  Status hear(uint64_t acknowledged, uint64_t credit_bytes = 0) {
    Step step(now_);
    link().on_heard(now_);
    return link().on_header(step, header_of(acknowledged, credit_bytes));
  }
  static std::vector<Kind> kinds(const std::vector<OutFrame>& frames) {
    std::vector<Kind> out;
    for (const OutFrame& frame : frames) out.push_back(frame.header.kind);
    return out;
  }

  LinkOptions options_;
  WorkerInfo self_;
  ConnectionIds ids_;
  std::optional<Link> link_;
  Time now_ = Time{} + 1h;
  uint64_t next_accepted_ = 1;
};

using Numbers = std::vector<uint64_t>;

}  // namespace holdfast::test
