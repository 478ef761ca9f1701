// Outbox: unnumbered messages that wait until the transport collects them, by connection.
#pragma once

#include <unordered_map>
#include <vector>

#include <holdfast/link/step.h>
#include <holdfast/wire/frame.h>

namespace holdfast {

class Outbox {
 public:
  void send(Step& step, ConnectionId connection, MessagePtr message) {
    waiting_[connection].push_back(std::move(message));
    step.flush(connection);
  }
  void collect(ConnectionId connection, std::vector<OutFrame>& out) {
    auto found = waiting_.find(connection);
    if (found == waiting_.end()) return;
    for (MessagePtr& message : found->second) {
      const Kind kind = message->kind;
      out.push_back({{.kind = kind}, std::move(message)});
    }
    waiting_.erase(found);
  }
  void forget(ConnectionId connection) { waiting_.erase(connection); }
  bool empty() const { return waiting_.empty(); }

 private:
  std::unordered_map<ConnectionId, std::vector<MessagePtr>> waiting_;
};

}  // namespace holdfast
