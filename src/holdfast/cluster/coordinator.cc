#include <holdfast/cluster/coordinator.h>

#include <algorithm>

#include <fmt/format.h>

namespace holdfast {

namespace {

// At most this many names in a text: enough to act on, and bounded in a world of thousands.
constexpr size_t kNamesMax = 12;
// So that a text with names fits into the frame of a connection that is not trusted yet.
constexpr size_t kNameBytesMax = 255;
constexpr size_t kAddressBytesMax = 1024;
constexpr size_t kReasonBytesMax = 4096;

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < kNamesMax; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesMax) text += fmt::format(" and {} more", names.size() - kNamesMax);
  return text;
}

}  // namespace

void Coordinator::close(Step& step, ConnectionId connection, Failure why) {
  step.closes.push_back({connection, std::move(why)});
}

void Coordinator::broadcast(Step& step, const MessagePtr& message) {
  for (auto& [rank, member] : members_) {
    if (member.connection.value != 0) outbox_.send(step, member.connection, message);
  }
}

void Coordinator::on_accepted(Step& step, ConnectionId connection) { expect_end(step, connection); }

void Coordinator::expect_end(Step& step, ConnectionId connection) {
  const Time until = after(step.now, options_.handshake_timeout);
  strangers_[connection] = until;
  stranger_deadlines_.emplace_back(until, connection);
}

void Coordinator::on_closed(Step&, ConnectionId connection) {
  strangers_.erase(connection);
  outbox_.forget(connection);
  auto found = joined_.find(connection);
  if (found == joined_.end()) return;
  auto member = members_.find(found->second.rank);
  if (member != members_.end() && member->second.connection == connection) member->second.connection = {};
  joined_.erase(found);
}

template <class T>
bool Coordinator::decode(Step& step, ConnectionId connection, const InFrame& frame, T& out) {
  Result<T> result = wire::decode_message<T>(frame.message);
  if (!result) {
    close(step, connection, std::move(result.failure()));
    return false;
  }
  out = std::move(*result);
  return true;
}

void Coordinator::on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames) {
  for (InFrame& frame : frames) on_frame(step, connection, frame);
}

void Coordinator::on_frame(Step& step, ConnectionId connection, InFrame& frame) {
  if (frame.message.kind == kJoin) {
    Join join;
    if (decode(step, connection, frame, join)) on_join(step, connection, join);
    return;
  }
  auto found = joined_.find(connection);
  if (found == joined_.end()) {
    return close(step, connection, {.code = Code::corrupt, .message = "the first message was not JOIN"});
  }
  if (auto fenced = fenced_.find(found->second.instance); fenced != fenced_.end()) {
    return outbox_.send(step, connection, cluster_message(kFenced, Text{fenced->second}));  // it may not have heard
  }
  auto place = members_.find(found->second.rank);
  if (place == members_.end() || place->second.connection != connection) return;  // it has a newer connection
  Member& member = place->second;
  member.last_heard = step.now;

  const Kind kind = frame.message.kind;
  if (kind == kHeartbeat) {
    Heartbeat heartbeat;
    if (decode(step, connection, frame, heartbeat)) on_heartbeat(step, member, heartbeat);
  } else if (kind == kLookup) {
    Lookup lookup;
    if (decode(step, connection, frame, lookup)) on_lookup(step, connection, lookup);
  } else if (kind == kQuiet) {
    Quiet quiet;
    if (decode(step, connection, frame, quiet)) on_quiet(step, member, quiet);
  } else if (kind == kLeave) {
    Text text;
    if (!decode(step, connection, frame, text)) return;
    remove(step, member.info.rank, text.text, Farewell::none);
    close(step, connection, {.code = Code::shutdown, .message = "the worker has left"});  // it waits for this
  } else {
    close(step, connection,
          {.code = Code::corrupt, .message = fmt::format("kind {} is not for the coordinator", kind.value)});
  }
}

// ---- joining

std::string Coordinator::why_not(const Join& join, Rank rank, const std::string& name) const {
  if (join.job != options_.job) return "this coordinator serves another job";
  if (join.world_size != options_.world_size) {
    return fmt::format("it was started with world size {}, but this job's world size is {}", join.world_size,
                       options_.world_size);
  }
  if (join.rank && *join.rank >= options_.world_size) {
    return fmt::format("rank {} is outside a world of {}", *join.rank, options_.world_size);
  }
  if (!members_.empty() && join.frame_bytes_max != frame_bytes_max_) {
    return fmt::format("its frame_bytes_max is {}, but that of the others is {}", join.frame_bytes_max,
                       frame_bytes_max_);
  }
  if (!join.rank && members_.size() >= options_.world_size) {
    return fmt::format("the world of {} is full: {}", options_.world_size, present_names());
  }
  if (name.size() > kNameBytesMax || join.address.size() > kAddressBytesMax) {
    return fmt::format("its name takes {} bytes and its address {}, over the limits of {} and {}", name.size(),
                       join.address.size(), kNameBytesMax, kAddressBytesMax);
  }
  if (join.devices && !are_known(*join.devices)) return "it names a device of an unknown type";
  if (auto holder = members_.find(rank); holder != members_.end()) {
    return fmt::format("rank {} is taken by {} at {}", rank.value, holder->second.info.name,
                       holder->second.info.address);
  }
  if (auto holder = names_.find(name); holder != names_.end()) {
    return fmt::format("the name {} is taken by rank {} at {}", name, holder->second.value,
                       members_.at(holder->second).info.address);
  }
  return "";
}

void Coordinator::on_join(Step& step, ConnectionId connection, const Join& join) {
  if (auto before = joined_.find(connection); before != joined_.end() && before->second.instance != join.instance) {
    return close(step, connection, {.code = Code::corrupt, .message = "one connection, two workers"});
  }
  if (auto fenced = fenced_.find(join.instance); fenced != fenced_.end()) {
    outbox_.send(step, connection, cluster_message(kFenced, Text{fenced->second}));
    return;
  }
  if (auto known = instances_.find(join.instance); known != instances_.end()) {
    return accept(step, connection, members_.at(known->second), join.losses_seen);  // it was cut off and is back
  }
  if (auto refused = refused_.find(join.instance); refused != refused_.end()) {
    return refuse(step, connection, refused->second);
  }
  while (!join.rank && members_.contains(lowest_free_)) ++lowest_free_.value;
  const Rank rank = join.rank ? Rank{*join.rank} : lowest_free_;
  const std::string name = join.name.empty() ? fmt::format("worker{}", rank.value) : join.name;
  std::string reason = why_not(join, rank, name);
  if (reason.empty()) {
    const Member& member = add(join, rank, name);
    if (ready_) reason = problem_of_newcomer(member);
    if (!reason.empty()) take_out(rank);
  }
  if (!reason.empty()) {
    const std::string who = !join.name.empty() ? join.name.substr(0, kNameBytesMax)
                            : join.rank        ? fmt::format("rank {}", *join.rank)
                                               : "a worker";
    return refuse(step, connection, fmt::format("{} cannot join: {}", who, reason));
  }
  welcome(step, connection, members_.at(rank));
}

Coordinator::Member& Coordinator::add(const Join& join, Rank rank, const std::string& name) {
  Member& member = members_[rank];
  member.info = {.name = name, .rank = rank, .incarnation = {++last_incarnation_}, .address = join.address};
  member.instance = join.instance;
  member.devices = join.devices;
  names_[name] = rank;
  instances_[member.instance] = rank;
  if (member.devices) {
    for (const auto& [peer, map] : member.devices->maps) mapped_by_[peer].insert(rank);
  }
  frame_bytes_max_ = join.frame_bytes_max;
  return member;
}

Coordinator::Member Coordinator::take_out(Rank rank) {
  const auto place = members_.find(rank);
  set_quiet(place->second, false);
  Member member = std::move(place->second);
  members_.erase(place);
  names_.erase(member.info.name);
  instances_.erase(member.instance);
  if (member.devices) {
    for (const auto& [peer, map] : member.devices->maps) {
      const auto mapped = mapped_by_.find(peer);
      mapped->second.erase(rank);
      if (mapped->second.empty()) mapped_by_.erase(mapped);
    }
  }
  lowest_free_ = std::min(lowest_free_, rank);
  return member;
}

void Coordinator::refuse(Step& step, ConnectionId connection, const std::string& text) {
  outbox_.send(step, connection, cluster_message(kJoinRefused, Text{text.substr(0, kReasonBytesMax)}));
}

void Coordinator::welcome(Step& step, ConnectionId connection, Member& member) {
  returning_.erase(member.info.rank);
  // Nothing from those who were lost before can have reached it.
  member.losses_settled = lost_.size();
  ++settled_count_;
  // It hears of all who are gone: others may tell it about them.
  accept(step, connection, member, 0);
  if (ready_) tell_device_maps_of(step, member);
  if (!ready_ && members_.size() == (options_.start_at > 0 ? options_.start_at : options_.world_size)) try_start(step);
  if (progress_at_ == kNever && !ready_) progress_at_ = after(step.now, options_.progress_every);
  try_settle(step);
}

// All are here.
void Coordinator::try_start(Step& step) {
  for (const auto& [rank, member] : members_) {
    if (const std::string problem = problem_of_maps_of(member); !problem.empty()) {
      return refuse_all(step, fmt::format("the job cannot start: {}", problem));
    }
  }
  ready_ = true;
  for (const auto& [rank, member] : members_) {
    if (member.connection.value != 0) outbox_.send(step, member.connection, ready_message(member));
  }
}

void Coordinator::refuse_all(Step& step, const std::string& text) {
  while (!members_.empty()) {
    const Member member = take_out(members_.begin()->first);
    refused_.emplace(member.instance, text);
    if (member.connection.value == 0) continue;
    refuse(step, member.connection, text);
    expect_end(step, member.connection);
  }
  settled_count_ = 0;
}

void Coordinator::accept(Step& step, ConnectionId connection, Member& member, uint64_t losses_seen) {
  if (member.connection.value != 0 && member.connection != connection) {
    close(step, member.connection, {.code = Code::unavailable, .message = "replaced by a newer connection"});
  }
  strangers_.erase(connection);
  member.connection = connection;
  member.last_heard = step.now;
  lease_check_at_ = std::min(lease_check_at_, after(step.now, options_.lease));
  joined_[connection] = {member.info.rank, member.instance};
  const auto lease_ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.lease).count();
  outbox_.send(step, connection,
               cluster_message(kAccepted, Accepted{.self = member.info,
                                                   .world_size = options_.world_size,
                                                   .lease_ms = static_cast<uint64_t>(lease_ms),
                                                   .losses = losses_seen,
                                                   .losses_settled = member.losses_settled}));
  tell_losses(step, connection, losses_seen);
  tell_settled(step, connection, 0);  // JOIN does not say what it has heard; twice does no harm
  if (ready_) outbox_.send(step, connection, ready_message(member));
  if (released_) outbox_.send(step, connection, cluster_message(kReleased));
}

void Coordinator::tell_losses(Step& step, ConnectionId connection, uint64_t losses_seen) {
  for (uint64_t i = losses_seen; i < lost_.size(); ++i) outbox_.send(step, connection, lost_[i]);
}

void Coordinator::tell_settled(Step& step, ConnectionId connection, uint64_t settled_heard) {
  if (settled_heard < settled_) outbox_.send(step, connection, cluster_message(kSettled, Counter64{settled_}));
}

void Coordinator::on_heartbeat(Step& step, Member& member, const Heartbeat& heartbeat) {
  // More than was known can be settled only of losses that it has heard of. To believe it would free what is in use.
  const uint64_t heard = std::min<uint64_t>(heartbeat.losses_seen, lost_.size());
  if (heartbeat.losses_settled > std::max(member.losses_settled, heard)) {
    return close(step, member.connection,
                 {.code = Code::corrupt,
                  .message = fmt::format("{} says that loss {} is settled, but it has heard of {}", member.info.name,
                                         heartbeat.losses_settled, heard)});
  }
  outbox_.send(step, member.connection, cluster_message(kHeartbeatAck, Counter64{heartbeat.counter}));
  tell_losses(step, member.connection, heartbeat.losses_seen);
  tell_settled(step, member.connection, heartbeat.settled_heard);
  if (heartbeat.losses_settled > member.losses_settled) {
    member.losses_settled = heartbeat.losses_settled;
    if (member.losses_settled == lost_.size()) ++settled_count_;
    try_settle(step);
  }
  if (released_) outbox_.send(step, member.connection, cluster_message(kReleased));
}

std::string Coordinator::present_names() const {
  std::vector<std::string> names;
  for (const auto& [rank, member] : members_) names.push_back(member.info.name);
  return join_names(names);
}

std::string Coordinator::missing_ranks() const {
  std::vector<std::string> ranks;
  for (uint32_t rank = 0; rank < options_.world_size; ++rank) {
    if (!members_.contains(Rank{rank})) ranks.push_back(fmt::format("rank {}", rank));
  }
  return join_names(ranks);
}

void Coordinator::on_lookup(Step& step, ConnectionId connection, const Lookup& lookup) {
  Found found{.request = lookup.request};
  auto named = names_.find(lookup.name);
  const Rank rank = named != names_.end() ? named->second : Rank{lookup.rank};
  const bool exists = lookup.name.empty() ? members_.contains(rank) : named != names_.end();
  if (exists) found.worker = members_.at(rank).info;
  if (!found.worker) {
    const std::string wanted =
        lookup.name.empty() ? fmt::format("rank {}", lookup.rank) : fmt::format("\"{}\"", lookup.name);
    found.text = fmt::format("there is no worker {} in this job; there are {}", wanted, present_names());
  }
  outbox_.send(step, connection, cluster_message(kFound, found));
}

// ---- leaving

void Coordinator::remove(Step& step, Rank rank, const std::string& why, Farewell farewell) {
  if (!members_.contains(rank)) return;
  const std::string reason = why.substr(0, kReasonBytesMax);
  const Member gone = take_out(rank);
  fenced_.emplace(gone.instance, reason);
  if (farewell == Farewell::fence && gone.connection.value != 0) {
    outbox_.send(step, gone.connection, cluster_message(kFenced, Text{reason}));
    expect_end(step, gone.connection);
  }
  checking_ = false;  // what the others confirmed may have to do with the one who is gone: ask once more
  if (!released_) {
    lost_.push_back(cluster_message(kLost, Lost{.number = lost_.size() + 1, .worker = gone.info, .reason = reason}));
    broadcast(step, lost_.back());
    settled_count_ = 0;  // nobody can have passed this loss yet
  }
  try_release(step);
}

// Only the latest loss is ever said to be settled. A worker that is lost before it had confirmed what it got from one
// lost earlier may have passed that on: so the earlier loss is not settled before the later one is, though all who are
// left have passed the earlier one.
void Coordinator::try_settle(Step& step) {
  if (released_ || members_.empty() || settled_count_ != members_.size() || settled_ == lost_.size()) return;
  settled_ = lost_.size();
  broadcast(step, cluster_message(kSettled, Counter64{settled_}));
}

void Coordinator::declare_lost(Step& step, Rank rank, const std::string& reason, bool returns) {
  if (returns) {
    returning_.insert(rank);
  } else {
    returning_.erase(rank);
  }
  remove(step, rank, reason, Farewell::fence);
  try_release(step);
}

void Coordinator::set_quiet(Member& member, bool quiet) {
  if (member.quiet != quiet) quiet_count_ += quiet ? 1 : -1;
  member.quiet = quiet;
  if (!quiet && round_ != 0 && member.confirmed_round == round_) {
    --confirmed_count_;
    member.confirmed_round = 0;
  }
}

void Coordinator::on_quiet(Step& step, Member& member, const Quiet& quiet) {
  member.leaving = true;
  if (progress_at_ == kNever) progress_at_ = after(step.now, options_.progress_every);
  const bool unchanged = member.quiet && quiet.quiet && member.activity == quiet.activity;
  set_quiet(member, quiet.quiet);
  member.activity = quiet.activity;
  if (checking_ && quiet.round == round_ && unchanged && member.confirmed_round != round_) {
    member.confirmed_round = round_;
    ++confirmed_count_;
  }
  // A change since the last report makes this round worthless, whatever the others answer.
  if (checking_ && !unchanged) checking_ = false;
  try_release(step);
}

// Two rounds: all quiet, then all quiet again with nothing done in between. See docs/protocol.md.
void Coordinator::try_release(Step& step) {
  if (released_ || members_.empty()) return;
  if (quiet_count_ != members_.size() || !returning_.empty()) {
    checking_ = false;
  } else if (!checking_) {
    checking_ = true;
    ++round_;
    confirmed_count_ = 0;
    broadcast(step, cluster_message(kCheck, Counter64{round_}));
  } else if (confirmed_count_ == members_.size()) {
    released_ = true;
    broadcast(step, cluster_message(kReleased));
  }
}

// ---- time

void Coordinator::tell_progress(Step& step) {
  std::string text;
  if (!ready_) {
    text = fmt::format("{} of {} workers are here; missing: {}", members_.size(), options_.world_size, missing_ranks());
  } else {
    std::vector<std::string> working;
    std::vector<std::string> busy;
    std::vector<std::string> asked;
    for (const auto& [rank, member] : members_) {
      if (!member.leaving) working.push_back(member.info.name);
      if (member.leaving && !member.quiet) busy.push_back(member.info.name);
      if (checking_ && member.confirmed_round != round_) asked.push_back(member.info.name);
    }
    for (const Rank rank : returning_) working.push_back(fmt::format("rank {}, which is started again", rank.value));
    if (!working.empty()) text = fmt::format("not yet in shutdown: {}", join_names(working));
    if (!busy.empty()) text += fmt::format("{}still busy with calls: {}", text.empty() ? "" : "; ", join_names(busy));
    if (text.empty() && !asked.empty()) text = fmt::format("no answer yet from {}", join_names(asked));
  }
  const MessagePtr message = cluster_message(kWaiting, Text{text});
  for (auto& [rank, member] : members_) {
    if ((!ready_ || member.leaving) && member.connection.value != 0) outbox_.send(step, member.connection, message);
  }
  // A CHECK or its answer may have been cut off: ask again.
  if (checking_) broadcast(step, cluster_message(kCheck, Counter64{round_}));
}

void Coordinator::on_time(Step& step) {
  if (step.now >= lease_check_at_) check_leases(step);
  while (!stranger_deadlines_.empty() && stranger_deadlines_.front().first <= step.now) {
    const ConnectionId connection = stranger_deadlines_.front().second;
    stranger_deadlines_.pop_front();
    if (auto found = strangers_.find(connection); found != strangers_.end() && found->second <= step.now) {
      strangers_.erase(found);
      close(step, connection, {.code = Code::timeout, .message = "a connection did not join in time"});
    }
  }
  if (step.now >= progress_at_) {
    tell_progress(step);
    const bool leaving =
        std::any_of(members_.begin(), members_.end(), [](const auto& entry) { return entry.second.leaving; });
    progress_at_ = (!ready_ || leaving) && !released_ ? after(step.now, options_.progress_every) : kNever;
  }
}

void Coordinator::check_leases(Step& step) {
  std::vector<Rank> lost;
  lease_check_at_ = kNever;
  for (const auto& [rank, member] : members_) {
    const Time expiry = after(member.last_heard, options_.lease);
    if (step.now >= expiry) {
      lost.push_back(rank);
    } else {
      lease_check_at_ = std::min(lease_check_at_, expiry);
    }
  }
  for (Rank rank : lost) {
    const auto seconds = std::chrono::duration<double>(options_.lease).count();
    remove(step, rank, fmt::format("no heartbeat for {:g} s (the lease)", seconds), Farewell::fence);
  }
}

Time Coordinator::next_wakeup() const {
  const Time strangers = stranger_deadlines_.empty() ? kNever : stranger_deadlines_.front().first;
  return std::min({progress_at_, lease_check_at_, strangers});
}

}  // namespace holdfast
