#include <holdfast/transport/faulty.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace holdfast {

FaultyTransport::FaultyTransport(TransportEvents& outer, FaultPlan plan, std::function<Time()> now,
                                 const MakeInner& make_inner, PlanOf plan_of)
    : outer_(outer),
      plan_(plan),
      tampers_(plan.drop > 0 || plan.duplicate > 0 || plan.delay > 0 || plan.reorder > 0),
      now_(std::move(now)),
      plan_of_(std::move(plan_of)),
      random_(plan.seed) {
  inner_ = make_inner(*this);
}

void FaultyTransport::on_accepted(ConnectionId connection) {
  {
    const std::lock_guard lock(mutex_);
    held_[connection];
  }
  outer_.on_accepted(connection);
}

void FaultyTransport::on_connected(ConnectionId connection) {
  {
    const std::lock_guard lock(mutex_);
    held_[connection];
  }
  outer_.on_connected(connection);
}

void FaultyTransport::on_closed(ConnectionId connection, const Failure& why) {
  Held forgotten;  // destroyed without the lock
  {
    const std::lock_guard lock(mutex_);
    if (auto node = held_.extract(connection)) forgotten = std::move(node.mapped());
  }
  outer_.on_closed(connection, why);
}

void FaultyTransport::collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) {
  const size_t before = out.size();
  std::vector<OutFrame> fresh;
  bool cut = false;
  // If every frame was dropped there may still be more: an empty answer would mean that there is none.
  do {
    fresh.clear();
    outer_.collect(connection, bytes_max, fresh);
    const FaultPlan plan = plan_of_ ? plan_of_(connection) : plan_;
    const Time now = now_();
    const std::lock_guard lock(mutex_);
    const auto found = held_.find(connection);
    if (found == held_.end() || found->second.cut) return;
    std::move(found->second.due.begin(), found->second.due.end(), std::back_inserter(out));
    found->second.due.clear();
    release(found->second, now, out);
    for (OutFrame& frame : fresh) {
      cut = tamper(plan, found->second, now, std::move(frame), out);
      if (cut) break;
    }
    found->second.cut = cut;
  } while (!cut && out.size() == before && !fresh.empty());
  if (cut)
    inner_->close(connection, {.code = Code::unavailable, .message = "the connection was cut by the fault plan"});
}

void FaultyTransport::release(Held& held, Time now, std::vector<OutFrame>& out) {
  while (!held.delayed.empty() && held.delayed.begin()->first <= now) {
    out.push_back(std::move(held.delayed.extract(held.delayed.begin()).mapped()));
  }
  if (held.overtaken && held.overtaken_until <= now) {
    out.push_back(std::move(*held.overtaken));
    held.overtaken.reset();
  }
}

bool FaultyTransport::tamper(const FaultPlan& plan, Held& held, Time now, OutFrame frame, std::vector<OutFrame>& out) {
  const auto later = [&] {
    return now + Duration(static_cast<Duration::rep>(
                     random_.between(1, static_cast<uint64_t>(std::max<int64_t>(1, plan.delay_max.count())))));
  };
  const bool calm = calm_;
  if (!calm && random_.chance(plan.cut)) {
    ++counts_.cut;
    return true;
  }
  if (!calm && random_.chance(plan.drop)) {
    ++counts_.dropped;
    return false;
  }
  if (!calm && random_.chance(plan.duplicate)) {
    ++counts_.duplicated;
    out.push_back(frame);
    out.push_back(std::move(frame));
  } else if (!calm && random_.chance(plan.delay)) {
    ++counts_.delayed;
    held.delayed.emplace(later(), std::move(frame));
    return false;
  } else if (!calm && !held.overtaken && random_.chance(plan.reorder)) {
    ++counts_.reordered;
    held.overtaken = std::move(frame);
    held.overtaken_until = now + std::max(plan.delay_max, Duration(1));
    return false;
  } else {
    out.push_back(std::move(frame));
  }
  if (held.overtaken) {
    out.push_back(std::move(*held.overtaken));
    held.overtaken.reset();
  }
  return false;
}

Time FaultyTransport::next_wakeup() const {
  const std::lock_guard lock(mutex_);
  Time next = kNever;
  for (const auto& [connection, held] : held_) {
    if (!held.delayed.empty()) next = std::min(next, held.delayed.begin()->first);
    if (held.overtaken) next = std::min(next, held.overtaken_until);
  }
  return next;
}

void FaultyTransport::on_time(Time now) {
  std::vector<ConnectionId> due;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [connection, held] : held_) {
      const size_t before = held.due.size();
      // Out of next_wakeup()'s sight, even if the connection is too full to take them at once.
      release(held, now, held.due);
      if (held.due.size() != before) due.push_back(connection);
    }
  }
  for (const ConnectionId connection : due) inner_->flush(connection);
}

FaultCounts FaultyTransport::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace holdfast
