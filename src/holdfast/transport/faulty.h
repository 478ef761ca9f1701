// FaultyTransport: a decorator that makes any transport misbehave, by a plan and a seed.
//
// It stands between a transport and its user: it is the TransportEvents of the inner transport and passes
// events on, and it tampers with the frames as they are collected. A frame that is dropped is simply never
// sent; the link above recovers. What is held back needs time: the driver asks next_wakeup() after each
// flush and poll, and calls on_time() then (without its own lock, like flush).
//
// Threads: as the inner transport. Its own lock is never held across a call. Over the simulator the same seed
// gives the same faults; over real sockets the order of collects, and so the faults, vary.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <holdfast/base/random.h>
#include <holdfast/transport/transport.h>

namespace holdfast {

// Probabilities for each frame, tried in this order; at most one of them happens to a frame.
struct FaultPlan {
  double cut = 0;        // the connection is closed, the frame and what follows it are lost
  double drop = 0;       // the frame is not sent
  double duplicate = 0;  // it is sent twice
  double delay = 0;      // it is sent up to delay_max later
  double reorder = 0;    // it is sent after the next one (or after delay_max, if there is no next one)
  Duration delay_max = std::chrono::milliseconds(10);
  uint64_t seed = 1;
};

struct FaultCounts {
  uint64_t cut = 0;
  uint64_t dropped = 0;
  uint64_t duplicated = 0;
  uint64_t delayed = 0;
  uint64_t reordered = 0;
  uint64_t total() const { return cut + dropped + duplicated + delayed + reordered; }
};

class FaultyTransport final : public Transport, public TransportEvents {
 public:
  using MakeInner = std::function<std::unique_ptr<Transport>(TransportEvents&)>;

  // What happens to the frames of one connection, where that differs. Called without any lock, for each collect().
  using PlanOf = std::function<FaultPlan(ConnectionId)>;

  // `make_inner` is called once, with this object as the inner transport's events. With `plan_of`, the plan itself
  // only tells the seed and, by what it has, whether the transport is still reliable.
  FaultyTransport(TransportEvents& outer, FaultPlan plan, std::function<Time()> now, const MakeInner& make_inner,
                  PlanOf plan_of = {});

  void connect(ConnectionId connection, const std::string& address) override { inner_->connect(connection, address); }
  void flush(ConnectionId connection) override { inner_->flush(connection); }
  void close(ConnectionId connection, Failure why) override { inner_->close(connection, std::move(why)); }
  void trust(ConnectionId connection) override { inner_->trust(connection); }
  bool reliable() const override { return !tampers_ && inner_->reliable(); }

  Transport& inner() { return *inner_; }
  // When something held back is due; kNever if nothing is.
  Time next_wakeup() const;
  void on_time(Time now);
  // No more faults from now on; what is held back still waits for its time.
  void calm_down() { calm_ = true; }
  FaultCounts counts() const;

  void on_accepted(ConnectionId connection) override;
  void on_connected(ConnectionId connection) override;
  void on_frames(ConnectionId connection, std::vector<InFrame>& frames) override {
    outer_.on_frames(connection, frames);
  }
  void on_progress(ConnectionId connection) override { outer_.on_progress(connection); }
  void on_closed(ConnectionId connection, const Failure& why) override;
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) override;

 private:
  // What is held back on one connection; from on_accepted or on_connected to on_closed.
  struct Held {
    std::vector<OutFrame> due;  // its time has come; waits only until the connection can be written
    std::multimap<Time, OutFrame> delayed;
    std::optional<OutFrame> overtaken;  // waits for the next frame
    Time overtaken_until = kNever;
    bool cut = false;
  };

  // Both with the lock held.
  static void release(Held& held, Time now, std::vector<OutFrame>& out);
  // True: cut the connection.
  bool tamper(const FaultPlan& plan, Held& held, Time now, OutFrame frame, std::vector<OutFrame>& out);

  TransportEvents& outer_;
  const FaultPlan plan_;
  const bool tampers_;
  const std::function<Time()> now_;
  const PlanOf plan_of_;
  std::unique_ptr<Transport> inner_;
  std::atomic<bool> calm_ = false;

  mutable std::mutex mutex_;
  Random random_;
  FaultCounts counts_;
  std::map<ConnectionId, Held> held_;
};

}  // namespace holdfast
