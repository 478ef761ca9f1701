#include <holdfast/link/links.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/check.h>

namespace holdfast {

Links::Links(LinkOptions options, LinkReceiver& receiver, ConnectionIds& ids, Random random)
    : options_(std::move(options)), receiver_(receiver), ids_(ids), random_(random) {}

Links::~Links() = default;

Link& Links::link_to(const WorkerPtr& peer) {
  std::unique_ptr<Link>& link = links_[peer->id()];
  if (!link) link = std::make_unique<Link>(options_, self_, peer, ids_, random_.split());
  return *link;
}

void Links::settle(Link& link, ConnectionId before) {
  if (link.connection() != before) {
    if (before.value != 0) connections_.erase(before);
    if (link.connection().value != 0) connections_[link.connection()] = &link;
  }
  // Only ever made earlier here; when it fires too early, on_time sets it anew.
  const Time next = link.next_deadline();
  if (next < link.timer.at) {
    if (link.timer.at != kNever) timers_.remove(link.timer.handle);
    link.timer = {.at = next, .handle = timers_.add(next, &link)};
  }
}

uint64_t Links::send(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) {
  if (closed_ || is_lost(to->id())) return 0;
  Link& link = link_to(to);
  const ConnectionId before = link.connection();
  const uint64_t sequence = link.send(step, std::move(message), windowed);
  settle(link, before);
  return sequence;
}

const Link* Links::find(const WorkerId& worker) const {
  auto found = links_.find(worker);
  return found == links_.end() ? nullptr : found->second.get();
}

const WorkerInfo* Links::peer_of(ConnectionId connection) const {
  auto found = connections_.find(connection);
  return found == connections_.end() ? nullptr : found->second->peer().get();
}

ConnectionId Links::connection_to(const WorkerId& worker) const {
  const Link* link = find(worker);
  return link != nullptr && link->up() ? link->connection() : ConnectionId{};
}

bool Links::has_room(const WorkerId& to, uint64_t bytes) const {
  const Link* link = find(to);
  return link == nullptr || link->has_room(bytes);
}

bool Links::maybe_sent(const WorkerId& to, uint64_t sequence) const {
  const Link* link = find(to);
  return link != nullptr && link->maybe_sent(sequence);
}

void Links::grant_credit(Step& step, const WorkerId& from, uint64_t bytes) {
  auto found = links_.find(from);
  if (found == links_.end()) return;  // the caller was lost meanwhile
  found->second->grant_credit(step, bytes);
  settle(*found->second, found->second->connection());
}

bool Links::is_lost(const WorkerId& worker) const {
  auto found = lost_.find(worker.rank);
  return found != lost_.end() && worker.incarnation <= found->second.newest;
}

std::string Links::lost_name(const WorkerId& worker) const {
  auto found = lost_.find(worker.rank);
  return found != lost_.end() && !found->second.name.empty() ? found->second.name
                                                             : fmt::format("rank {}", worker.rank.value);
}

void Links::lose(Step& step, const WorkerId& worker, const Failure& why) {
  Lost& lost = lost_[worker.rank];
  if (lost.newest <= worker.incarnation) lost = {worker.incarnation, why.worker};
  auto found = links_.find(worker);
  if (found == links_.end()) return;
  Link& link = *found->second;
  if (link.connection().value != 0) connections_.erase(link.connection());
  if (link.timer.at != kNever) timers_.remove(link.timer.handle);
  link.drop(step, why);
  step.room_opened = true;  // whoever waits for room must learn that there will be none
  links_.erase(found);
}

bool Links::settled() const {
  return std::none_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second->has_unacked(); });
}

void Links::hurry(Step& step) {
  for (const auto& [worker, link] : links_) link->hurry(step);
}

// ---- transport events

void Links::on_accepted(Step& step, ConnectionId connection) {
  if (closed_) {
    step.closes.push_back({connection, {.code = Code::shutdown, .message = "this worker has ended"}});
    return;
  }
  if (strangers_.size() >= options_.strangers_max) {
    step.closes.push_back(
        {connection, {.code = Code::overloaded, .message = "too many connections that did not say who they are"}});
    return;
  }
  const Time until = after(step.now, options_.dial_timeout);
  strangers_[connection] = {.until = until, .answer = nullptr};
  stranger_deadlines_.emplace_back(until, connection);
}

bool Links::owns(ConnectionId connection) const {
  return connections_.contains(connection) || strangers_.contains(connection);
}

void Links::on_connected(Step& step, ConnectionId connection) {
  auto found = connections_.find(connection);
  if (found == connections_.end()) return;  // given up meanwhile; its close is on the way
  Link& link = *found->second;
  link.on_connected(step);
  settle(link, connection);
}

void Links::on_progress(Step& step, ConnectionId connection) {
  auto found = connections_.find(connection);
  if (found != connections_.end()) found->second->on_heard(step.now);
}

void Links::on_closed(Step& step, ConnectionId connection, const Failure& why) {
  strangers_.erase(connection);
  auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  Link& link = *found->second;
  link.on_closed(step, why);
  settle(link, connection);
}

void Links::collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) {
  if (auto found = connections_.find(connection); found != connections_.end()) {
    found->second->collect(bytes_max, out);
  } else if (auto stranger = strangers_.find(connection); stranger != strangers_.end() && stranger->second.answer) {
    const Kind kind = stranger->second.answer->kind;
    out.push_back({{.kind = kind}, std::move(stranger->second.answer)});
  }
}

void Links::on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames) {
  for (InFrame& frame : frames) {
    auto found = connections_.find(connection);
    if (found == connections_.end()) {
      if (!strangers_.contains(connection)) return;  // the link let go of it; what still arrives is sent again
      on_stranger_frame(step, connection, frame);
      continue;
    }
    Link& link = *found->second;
    link.on_heard(step.now);
    Status status = link.up() ? on_link_frame(step, link, frame) : on_greeting_frame(step, link, frame);
    // The frame may have ended the link itself (see lose); then the connection is not ours any more.
    found = connections_.find(connection);
    if (found == connections_.end()) return;
    if (!status.ok()) {
      step.closes.push_back({connection, status.failure()});
      link.on_closed(step, status.failure());
    }
    settle(link, connection);
  }
}

Status Links::on_greeting_frame(Step& step, Link& link, InFrame& frame) {
  if (frame.message.kind == kWelcome) {
    Result<Welcome> welcome = wire::decode_message<Welcome>(frame.message);
    if (!welcome) return welcome.failure();
    link.on_welcome(step, frame.header, *welcome);
    return {};
  }
  if (frame.message.kind != kRefused) {
    return Failure{
        .code = Code::corrupt,
        .message = fmt::format("{} answered the handshake with kind {}", link.peer()->name, frame.message.kind.value)};
  }
  Result<Refused> refused = wire::decode_message<Refused>(frame.message);
  if (!refused) return refused.failure();
  const ConnectionId connection = link.connection();
  link.on_refused(step, *refused);
  settle(link, connection);
  if (refused->reason == RefusedReason::fenced) receiver_.on_fenced(step, refused->text);
  return {};
}

Status Links::on_link_frame(Step& step, Link& link, InFrame& frame) {
  if (Status status = link.on_header(step, frame.header); !status.ok()) return status;
  if (frame.header.sequence == 0) {
    if (frame.message.kind == kPing) {
      link.on_ping(step);
    } else if (frame.message.kind == kResend && !options_.reliable) {
      link.on_resend(step);
    } else if (frame.message.kind != kAck) {
      return Failure{
          .code = Code::corrupt,
          .message = fmt::format("{} sent kind {} without a number", link.peer()->name, frame.message.kind.value)};
    }
    return {};
  }
  Result<bool> next = link.on_sequence(step, frame.header.sequence);
  if (!next) return std::move(next.failure());
  if (!*next) return {};
  return receiver_.on_message(step, link.peer(), std::move(frame.message));
}

// ---- strangers

void Links::refuse(Step& step, ConnectionId connection, Refused refused) {
  auto message = std::make_shared<const Message>(wire::encode_message(kRefused, refused));
  strangers_[connection].answer = std::move(message);  // the dialler closes; if not, the deadline does
  step.flush(connection);
}

void Links::on_stranger_frame(Step& step, ConnectionId connection, InFrame& frame) {
  Result<Hello> decoded = frame.message.kind == kHello && frame.header.sequence == 0
                              ? wire::decode_message<Hello>(frame.message)
                              : Failure{.code = Code::corrupt, .message = "the first message was not HELLO"};
  if (!decoded) {
    step.closes.push_back({connection, std::move(decoded.failure())});
    strangers_.erase(connection);
    return;
  }
  const Hello& hello = *decoded;
  if (self_.name.empty()) {
    return refuse(step, connection, {.reason = RefusedReason::busy, .text = "this worker has not joined yet"});
  }
  if (hello.job != options_.job) {
    return refuse(step, connection,
                  {.reason = RefusedReason::stranger, .text = fmt::format("{} belongs to another job", self_.name)});
  }
  if (hello.to_rank != self_.rank || hello.to_incarnation != self_.incarnation) {
    return refuse(step, connection,
                  {.reason = RefusedReason::stranger,
                   .text = fmt::format("this is {} (rank {}, incarnation {}), not rank {}, incarnation {}", self_.name,
                                       self_.rank.value, self_.incarnation.value, hello.to_rank.value,
                                       hello.to_incarnation.value)});
  }
  if (hello.from.rank == self_.rank) {
    // Messages from oneself are trusted, so nobody else may pass for us.
    return refuse(
        step, connection,
        {.reason = RefusedReason::stranger, .text = fmt::format("rank {} is {} itself", self_.rank.value, self_.name)});
  }
  if (is_lost(hello.from.id())) {
    return refuse(step, connection,
                  {.reason = RefusedReason::fenced,
                   .text = fmt::format("{} (rank {}, incarnation {}) was declared lost", hello.from.name,
                                       hello.from.rank.value, hello.from.incarnation.value)});
  }
  Link& link = link_to(std::make_shared<const WorkerInfo>(hello.from));
  const ConnectionId before = link.connection();
  if (std::optional<Refused> refused = link.on_hello(step, connection, frame.header, hello)) {
    return refuse(step, connection, std::move(*refused));
  }
  strangers_.erase(connection);
  settle(link, before);
}

// ---- time

void Links::on_time(Step& step) {
  Link* link = nullptr;
  while (timers_.pop_due(step.now, link)) {
    link->timer.at = kNever;
    const ConnectionId before = link->connection();
    link->on_time(step);
    settle(*link, before);
  }
  while (!stranger_deadlines_.empty() && stranger_deadlines_.front().first <= step.now) {
    const ConnectionId connection = stranger_deadlines_.front().second;
    stranger_deadlines_.pop_front();
    if (strangers_.contains(connection)) {
      step.closes.push_back(
          {connection, {.code = Code::timeout, .message = "a connection did not say who it is in time"}});
    }
  }
}

Time Links::next_wakeup() const {
  const Time strangers = stranger_deadlines_.empty() ? kNever : stranger_deadlines_.front().first;
  return std::min(timers_.next(), strangers);
}

void Links::close_all(Step& step, const Failure& why) {
  closed_ = true;
  std::vector<ConnectionId> open;
  for (auto& [connection, link] : connections_) open.push_back(connection);
  for (auto& [connection, stranger] : strangers_) open.push_back(connection);
  std::sort(open.begin(), open.end());  // the same order in every run
  for (ConnectionId connection : open) step.closes.push_back({connection, why});
  for (auto& [id, link] : links_) {
    if (link->timer.at != kNever) timers_.remove(link->timer.handle);
    link->forget_messages(step);
  }
  connections_.clear();
  strangers_.clear();
  stranger_deadlines_.clear();
  links_.clear();
}

}  // namespace holdfast
