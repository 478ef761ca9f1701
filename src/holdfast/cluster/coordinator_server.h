// CoordinatorServer: a Coordinator that listens on a port, with a thread of its own. Owned by the launcher, or by
// the Worker of rank 0. Any thread may call it.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <holdfast/cluster/coordinator.h>
#include <holdfast/transport/tcp.h>

namespace holdfast {

class CoordinatorServer final : private TransportEvents {
 public:
  // Starts to listen and to serve. Throws Unavailable if it cannot (port in use, ...).
  CoordinatorServer(CoordinatorOptions options, const ListenOptions& listen, TcpOptions tcp = {});
  // Stops at once. Workers that are still there will miss it.
  ~CoordinatorServer() override;

  // "host:port", what workers dial.
  const std::string& address() const { return address_; }
  // The process of that rank has ended; all others learn at once.
  void declare_lost(Rank rank, const std::string& reason, bool returns = false);
  // Waits until nobody is in the job any more (all have left or are lost), for as long as `timeout`.
  bool wait_until_empty(Duration timeout);
  // Workers that are in the job now.
  size_t member_count();

 private:
  void on_accepted(ConnectionId connection) override;
  void on_connected(ConnectionId connection) override;
  void on_frames(ConnectionId connection, std::vector<InFrame>& frames) override;
  void on_progress(ConnectionId connection) override;
  void on_closed(ConnectionId connection, const Failure& why) override;
  void collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) override;

  void serve();
  void perform(Step& step);

  std::mutex mutex_;  // guards the coordinator and stopping_
  std::condition_variable changed_;
  Coordinator coordinator_;
  bool stopping_ = false;

  Step step_;  // of the serving thread
  TcpTransport transport_;
  std::string address_;
  std::thread thread_;
};

}  // namespace holdfast
