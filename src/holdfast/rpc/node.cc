#include <holdfast/rpc/node.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

Random seeded(uint64_t seed, uint64_t part) { return Random(seed * 31 + part); }

// Of a message that is to be sent.
uint64_t bytes_with_cargo(const Message& message) {
  const auto* cargo = static_cast<const OutgoingCargo*>(message.cargo.get());
  return message.total_bytes() + (cargo != nullptr ? cargo->bytes_max() : 0);
}

// The same for the same call. Attachments may be large: their sizes have to do.
uint64_t fingerprint_of(const Message& message) {
  const auto* cargo = static_cast<const OutgoingCargo*>(message.cargo.get());
  uint64_t result = text_id({reinterpret_cast<const char*>(message.body.data()), message.body.size()});
  result = result * 31 + (cargo != nullptr ? cargo->fingerprint() : 0);
  for (const Attachment& attachment : message.attachments) result = result * 31 + attachment.bytes;
  return result;
}

// Marks the numbers of messages that waited; those of a link never get so high.
constexpr uint64_t kWaitedBit = uint64_t{1} << 63;

}  // namespace

Node::Node(NodeOptions options, CallHost& host)
    : options_(std::move(options)),
      links_(options_.link, *this, ids_, seeded(options_.seed, 1)),
      member_(options_.member, *this, ids_, seeded(options_.seed, 2)),
      calls_(*this, host) {}

void Node::add_protocol(Kind first, Kind last, Protocol& protocol) { protocols_.push_back({first, last, &protocol}); }

// ---- sending

uint64_t Node::send(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message, bool windowed) {
  if (message->kind > kCancel) ++protocol_messages_;
  for (const Registered& entry : protocols_) entry.protocol->before_send(step, to);
  if (message->cargo) {
    if (stopped_ || fenced_ || links_.is_lost(to->id())) {
      step.garbage.push_back(std::move(message->cargo));
      return 0;
    }
    load(step, to, *message);
  }
  if (!is_self(to->id())) return send_away(step, to, std::move(message), windowed);
  if (windowed) local_inflight_bytes_ += message->total_bytes();
  const Status status = on_message(step, self_, *message);
  HOLDFAST_CHECK(status.ok());  // our own message
  return 1;
}

uint64_t Node::send_away(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) {
  if (faults_ && !stopped_ && !fenced_ && !links_.is_lost(to->id())) {
    if (faults_->kills(*self_, *to)) step.closures.emplace_back([kill = kill_] { kill(); });
    const uint64_t number = faults_->hold(step.now, *self_, to, message, windowed);
    if (number != 0) return kWaitedBit | number;
  }
  return links_.send(step, to, std::move(message), windowed);
}

void Node::send_late(Step& step, const WorkerPtr& to, MessagePtr message, bool windowed) {
  links_.send(step, to, std::move(message), windowed);
}

Status Node::inject_faults(const FaultOptions& faults, std::function<void()> kill) {
  KindNames names = kind_names();
  if (Status status = check(faults, names); !status.ok()) return status;
  if (faults.any_for_messages()) faults_ = std::make_unique<MessageFaults>(faults, std::move(names));
  kill_ = std::move(kill);
  return {};
}

KindNames Node::kind_names() const {
  KindNames names;
  names.add(kRpcKinds);
  for (const Registered& entry : protocols_) names.add(entry.protocol->kinds());
  return names;
}

void Node::load(Step& step, const WorkerPtr& to, Message& message) {
  std::shared_ptr<Cargo> cargo = std::move(message.cargo);
  message.cargo.reset();
  attach_section(message, Section::cargo, static_cast<OutgoingCargo&>(*cargo).load(step, to));
  step.garbage.push_back(std::move(cargo));
}

Status Node::unload(Step& step, const WorkerPtr& from, Message& message) {
  if (!has_sections(message)) return {};
  Result<ByteView> bytes = find_section(message, Section::cargo);
  if (!bytes) return std::move(bytes.failure());
  if (bytes->empty()) return {};
  if (unloader_ == nullptr) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("{} sent cargo, which this program does not know", from->name)};
  }
  Result<std::shared_ptr<Cargo>> cargo = unloader_->unload(step, from, message.kind, *bytes);
  if (!cargo) return std::move(cargo.failure());
  message.cargo = std::move(*cargo);
  step.garbage.push_back(message.cargo);  // wherever the message ends, its cargo ends outside the lock
  return {};
}

bool Node::has_room(const WorkerId& to, uint64_t bytes) const {
  if (!is_self(to)) {
    return links_.has_room(to, bytes) && (!faults_ || faults_->has_room(to, bytes, options_.link.inflight_bytes_max));
  }
  return local_inflight_bytes_ == 0 || local_inflight_bytes_ + bytes <= options_.link.inflight_bytes_max;
}

bool Node::maybe_sent(const WorkerId& to, uint64_t number) const {
  if ((number & kWaitedBit) != 0) return faults_->has_left(to, number & ~kWaitedBit);
  return is_self(to) || links_.maybe_sent(to, number);
}

void Node::grant_credit(Step& step, const WorkerId& from, uint64_t bytes) {
  if (!is_self(from)) return links_.grant_credit(step, from, bytes);
  local_inflight_bytes_ -= bytes;
  step.room_opened = true;
}

std::optional<Failure> Node::why_not_start(const Step& step, const WorkerInfo& to, const Function& function,
                                           const Message& message, Time deadline) {
  if (stopped_) {
    return Failure{.code = Code::shutdown,
                   .message = fmt::format("{} cannot be called: {}", function.name, stop_reason_)};
  }
  if (fenced_) {
    return Failure{
        .code = Code::worker_lost,
        .message = fmt::format("{} cannot be called: this worker was declared lost: {}", function.name, stop_reason_),
        .worker = self_->name};
  }
  if (bytes_with_cargo(message) > options_.frame_bytes_max) {
    return Failure{
        .code = Code::invalid_argument,
        .message = fmt::format("the arguments of {} take {} bytes, over the limit of {} (Options::frame_bytes_max)",
                               function.name, bytes_with_cargo(message), options_.frame_bytes_max)};
  }
  if (step.now >= deadline) {
    return Failure{.code = Code::timeout,
                   .message = fmt::format("{} on {} was not sent: its time was up before", function.name, to.name)};
  }
  if (faults_ && !is_self(to.id()) && !links_.is_lost(to.id())) {
    return faults_->fail_call(*self_, to, message.kind, function.name, fingerprint_of(message));
  }
  return std::nullopt;
}

CallId Node::start_call(Step& step, WorkerPtr to, const Function& function, std::shared_ptr<Message> message, Term term,
                        Completion completion) {
  if (std::optional<Failure> refusal = why_not_start(step, *to, function, *message, term.deadline)) {
    step.garbage.push_back(std::move(message));
    step.completed.push_back({std::move(completion), std::move(*refusal)});
    return {};
  }
  const CallId call = calls_.start(step, std::move(to), function, std::move(message), term, std::move(completion));
  follow_quiet(step);
  return call;
}

std::optional<Failure> Node::start_kept_call(Step& step, const WorkerPtr& to, const Function& function,
                                             std::shared_ptr<Message> message, Time deadline) {
  if (std::optional<Failure> refusal = why_not_start(step, *to, function, *message, deadline)) {
    step.garbage.push_back(std::move(message));
    return refusal;
  }
  const bool sent = calls_.start_kept(step, to, std::move(message), deadline);
  follow_quiet(step);
  if (sent) return std::nullopt;
  return Failure{.code = Code::worker_lost,
                 .message = fmt::format("{} was not sent: {} is not in the job any more", function.name, to->name),
                 .worker = to->name};
}

Status Node::receive_call(Step& step, const WorkerPtr& from, Message&& message, std::shared_ptr<Keeper> keeper) {
  return calls_.on_call(step, from, std::move(message), std::move(keeper));
}

bool Node::begin(Step& step, ServedCall& call) {
  const bool go = calls_.begin(step, call);
  if (!go) follow_quiet(step);
  return go;
}

void Node::respond(Step& step, ServedCall& call, std::shared_ptr<Message> reply) {
  if (reply && reply->cargo) step.garbage.push_back(reply->cargo);  // whether it is sent or not
  if (reply && bytes_with_cargo(*reply) > options_.frame_bytes_max) {
    reply = failed_reply(
        call.id, {.code = Code::overloaded,
                  .message = fmt::format("the result takes {} bytes, over the limit of {} (Options::frame_bytes_max)",
                                         bytes_with_cargo(*reply), options_.frame_bytes_max)});
  }
  calls_.respond(step, call, std::move(reply));
  follow_quiet(step);
}

// ---- receiving

Status Node::on_message(Step& step, const WorkerPtr& from, Message message) {
  const Kind kind = message.kind;
  if (kind == kCall || kind == kReply) {
    if (Status status = unload(step, from, message); !status.ok()) return status;
  }
  if (kind == kCall) return calls_.on_call(step, from, std::move(message));
  if (kind == kReply) return calls_.on_reply(step, *from, std::move(message));
  if (kind == kCancel) return calls_.on_cancel(step, *from, message);
  for (const Registered& entry : protocols_) {
    if (kind < entry.first || kind > entry.last) continue;
    ++protocol_messages_;
    return entry.protocol->on_message(step, from, std::move(message));
  }
  return Failure{.code = Code::corrupt,
                 .message = fmt::format("{} sent a message of unknown kind {}", from->name, kind.value)};
}

// ---- membership

void Node::on_accepted(Step&, const WorkerInfo& self) {
  self_ = std::make_shared<const WorkerInfo>(self);
  links_.set_self(self);
}

void Node::set_devices(DeviceFacts devices, Protocol& reader) {
  HOLDFAST_CHECK(device_maps_reader_ == nullptr);
  device_maps_reader_ = &reader;
  member_.set_devices(std::move(devices));
}

void Node::on_device_maps(Step& step, const std::vector<PeerDeviceMap>& maps) {
  if (device_maps_reader_ != nullptr) device_maps_reader_->on_device_maps(step, maps);
}

void Node::on_worker_lost(Step& step, const WorkerInfo& worker, const std::string& reason, uint64_t number) {
  // First the calls: whether they were sent is known only while the link is there.
  calls_.on_worker_lost(step, worker, reason);
  if (faults_) faults_->forget(step, worker.id());
  links_.lose(step, worker.id(),
              {.code = Code::worker_lost,
               .message = fmt::format("{} is lost: {}", worker.name, reason),
               .worker = worker.name});
  for (const Registered& entry : protocols_) entry.protocol->on_worker_lost(step, worker, number);
  if (unloader_ == nullptr) report_settled(step, number);  // nothing here holds references: nothing is unconfirmed
  follow_quiet(step);
}

void Node::on_settled(Step& step, uint64_t number) {
  for (const Registered& entry : protocols_) entry.protocol->on_settled(step, number);
  follow_quiet(step);
}

void Node::on_fenced(Step& step, const std::string& reason) {
  if (fenced_ || stopped_) return;
  fenced_ = true;
  stop_reason_ = reason;
  const Failure why{.code = Code::worker_lost,
                    .message = fmt::format("this worker was declared lost: {}", reason),
                    .worker = self_ ? self_->name : ""};
  calls_.fail_all(step, why);
  if (faults_) faults_->forget_all(step);
  links_.close_all(step, why);
  step.room_opened = true;
}

// ---- the end

bool Node::quiet() const {
  return calls_.idle() && links_.settled() && (!faults_ || faults_->idle()) &&
         std::all_of(protocols_.begin(), protocols_.end(),
                     [](const Registered& entry) { return entry.protocol->idle(); });
}

void Node::follow_quiet(Step& step) {
  if (!owes_quiet() || !quiet()) return;
  on_check(step, 0);
}

void Node::on_check(Step& step, uint64_t round) {
  if (!member_.leaving()) return;
  links_.hurry(step);  // nobody, here or there, is quiet before what was sent is acknowledged
  reported_quiet_ = quiet();
  member_.report_quiet(step, round, reported_quiet_, activity());
}

void Node::shutdown(Step& step, Time deadline, Member::Done done) {
  member_.leave_together(step, deadline, std::move(done));
  on_check(step, 0);
}

void Node::stop(Step& step, const std::string& why) {
  if (stopped_) return;
  member_.leave(step, why);
  stopped_ = true;
  stop_reason_ = why;
  const Failure failure{.code = Code::shutdown, .message = why};
  calls_.refuse_new(why);
  calls_.fail_all(step, failure);
  for (const Registered& entry : protocols_) entry.protocol->stop(step);
  if (faults_) faults_->forget_all(step);
  links_.close_all(step, failure);
  step.room_opened = true;
}

void Node::ended(Step& step) {
  for (const Registered& entry : protocols_) entry.protocol->ended(step);
}

// ---- transport events

void Node::on_accepted(Step& step, ConnectionId connection) { links_.on_accepted(step, connection); }

void Node::on_connected(Step& step, ConnectionId connection) {
  if (member_.owns(connection)) return member_.on_connected(step);
  links_.on_connected(step, connection);
}

void Node::on_frames(Step& step, ConnectionId connection, std::vector<InFrame>& frames) {
  if (member_.owns(connection)) {
    member_.on_frames(step, frames);
  } else {
    links_.on_frames(step, connection, frames);
    follow_quiet(step);
  }
}

void Node::on_progress(Step& step, ConnectionId connection) { links_.on_progress(step, connection); }

void Node::on_closed(Step& step, ConnectionId connection, const Failure& why) {
  if (member_.owns(connection)) return member_.on_closed(step, why);
  links_.on_closed(step, connection, why);
}

void Node::collect(ConnectionId connection, size_t bytes_max, std::vector<OutFrame>& out) {
  if (member_.owns(connection)) return member_.collect(connection, out);
  links_.collect(connection, bytes_max, out);
}

void Node::on_time(Step& step) {
  member_.on_time(step);
  if (!stopped_) {
    if (faults_) faults_->on_time(step, *this);
    links_.on_time(step);
    calls_.on_time(step);
    for (const Registered& entry : protocols_) entry.protocol->on_time(step);
  }
  follow_quiet(step);
}

Time Node::next_wakeup() const {
  if (stopped_) return member_.next_wakeup();
  Time next = std::min({member_.next_wakeup(), links_.next_wakeup(), calls_.next_wakeup()});
  for (const Registered& entry : protocols_) next = std::min(next, entry.protocol->next_wakeup());
  if (faults_) next = std::min(next, faults_->next_wakeup());
  return next;
}

}  // namespace holdfast
