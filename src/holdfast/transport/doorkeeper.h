// Doorkeeper: accepted connections that have not yet sent a whole frame, oldest first, and what is said about those
// that are turned away. Strangers can hold so many connections and so much time, no more; each kind of refusal is told
// once for each host. Owned by a TcpTransport; used by the thread in poll(), but for tell_refused(),
// which any thread may call. Does no I/O but that of its log.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <holdfast/base/time.h>

namespace holdfast {

class TcpConnection;
using Log = std::function<void(const std::string& line)>;

class Doorkeeper {
 public:
  using Connection = std::shared_ptr<TcpConnection>;

  Doorkeeper(size_t strangers_max, Duration patience, Log log);

  // From now on its time runs. Answers those that must go to make room for it.
  std::vector<Connection> admit(const Connection& stranger, Time now);
  // A connection that we dial ourselves: its time runs, too, but it takes nobody's room.
  void watch(const Connection& dialled, Time now);
  // Those whose time is up; they are not answered again.
  std::vector<Connection> take_late(Time now);
  Time next_deadline() const { return waiting_.empty() ? kNever : waiting_.front().until; }

  void tell_refused(const std::string& address, const std::string& cause);

 private:
  // Entries come with admit() and watch(); they go when they are late, when there is no room, or when they are seen to
  // be settled: proved, or gone.
  struct Waiting {
    Time until;
    bool is_stranger;
    std::weak_ptr<TcpConnection> connection;
  };
  static bool is_settled(const Waiting& waiting);
  void drop_settled();

  const size_t strangers_max_;
  const Duration patience_;
  const Log log_;
  std::deque<Waiting> waiting_;

  std::mutex told_mutex_;
  std::set<std::pair<std::string, std::string>> told_;  // host, cause
};

}  // namespace holdfast
