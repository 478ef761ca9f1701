#include <holdfast/link/link.h>

#include <algorithm>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/base/check.h>

namespace holdfast {

namespace {

constexpr uint32_t kAckEveryMessages = 64;

MessagePtr bare(Kind kind) {
  return std::make_shared<const Message>(Message{.kind = kind, .body = {}, .attachments = {}});
}

template <class T>
MessagePtr encoded(Kind kind, const T& value) {
  return std::make_shared<const Message>(wire::encode_message(kind, value));
}

}  // namespace

Link::Link(const LinkOptions& options, const WorkerInfo& self, WorkerPtr peer, ConnectionIds& ids, Random random)
    : options_(options), self_(self), peer_(std::move(peer)), ids_(ids), random_(random) {}

uint64_t Link::send(Step& step, MessagePtr message, bool windowed) {
  if (windowed) windowed_bytes_ += message->total_bytes();
  if (unacked_.empty()) {
    start_waiting(step.now);
  }
  unacked_.push_back(std::move(message));
  if (state_ == State::up) {
    step.flush(connection_);
  } else if (state_ == State::idle && step.now >= dial_at_) {
    dial(step);
  }
  return first_unacked_ + unacked_.size() - 1;
}

bool Link::has_room(uint64_t bytes) const {
  const uint64_t inflight = windowed_bytes_ - credit_received_bytes_;
  return inflight == 0 || inflight + bytes <= options_.inflight_bytes_max;
}

void Link::grant_credit(Step& step, uint64_t bytes) {
  credit_given_bytes_ += bytes;
  owe_ack(step, credit_given_bytes_ - credit_reported_bytes_ >= options_.inflight_bytes_max / 4);
}

void Link::owe_ack(Step& step, bool now) {
  if (!ack_owed_) {
    ack_owed_ = true;
    ack_due_ = after(step.now, options_.ack_delay);
  }
  if (now && state_ == State::up) step.flush(connection_);
}

// ---- the connection

void Link::dial(Step& step) {
  state_ = State::dialling;
  connection_ = ids_.next();
  ++epoch_;
  attempt_until_ = after(step.now, options_.dial_timeout);
  step.dials.push_back({connection_, peer_->address});
}

void Link::attempt_failed(Step& step) {
  state_ = State::idle;
  connection_ = {};
  control_.clear();
  attempt_until_ = kNever;
  const uint32_t doublings = std::min(failed_attempts_++, 16u);
  const Duration wait = std::min<Duration>(options_.dial_backoff_first * (1u << doublings), options_.dial_backoff_max);
  // The random part keeps two workers that dial each other from colliding for ever.
  dial_at_ = after(step.now, wait / 2 + Duration(random_.below(static_cast<uint64_t>(wait.count()))));
}

void Link::close(Step& step, Code code, std::string why) {
  step.closes.push_back({connection_, {.code = code, .message = std::move(why)}});
}

void Link::on_connected(Step& step) {
  HOLDFAST_CHECK(state_ == State::dialling);
  state_ = State::greeting;
  control_.push_back(encoded(kHello, Hello{.features = 0,
                                           .job = options_.job,
                                           .from = self_,
                                           .to_rank = peer_->rank,
                                           .to_incarnation = peer_->incarnation,
                                           .epoch = epoch_}));
  step.flush(connection_);
}

void Link::on_welcome(Step& step, const FrameHeader& header, const Welcome& welcome) {
  epoch_ = std::max(epoch_, welcome.epoch);
  become_up(step, header);
}

void Link::on_refused(Step& step, const Refused& refused) {
  epoch_ = std::max(epoch_, refused.epoch);
  close(step, Code::unavailable, refused.text);
  attempt_failed(step);
}

std::optional<Refused> Link::on_hello(Step& step, ConnectionId connection, const FrameHeader& header,
                                      const Hello& hello) {
  bool adopt = true;
  if (state_ == State::up) {
    adopt = hello.epoch > epoch_;  // the peer lost the old connection before we noticed
  } else if (state_ != State::idle) {
    adopt = peer_->rank < self_.rank;  // both dialled: the lower rank's connection stays
  }
  if (!adopt) {
    return Refused{.reason = RefusedReason::busy, .text = "this link has another connection", .epoch = epoch_};
  }
  if (state_ != State::idle) {
    close(step, Code::unavailable, "replaced by a newer connection");
    control_.clear();
  }
  connection_ = connection;
  epoch_ = std::max(epoch_, hello.epoch);
  control_.push_back(encoded(kWelcome, Welcome{.features = 0, .epoch = epoch_}));
  become_up(step, header);
  return std::nullopt;
}

void Link::become_up(Step& step, const FrameHeader& header) {
  state_ = State::up;
  attempt_until_ = kNever;
  ++reconnects_;
  last_heard_ = step.now;
  start_waiting(step.now);
  asked_resend_for_ = 0;
  ack_owed_ = true;  // tell the peer what we have, and our credit, on the new connection
  ack_due_ = after(step.now, options_.ack_delay);
  step.trusts.push_back(connection_);
  step.flush(connection_);
  if (Status status = on_header(step, header); !status.ok()) {
    step.closes.push_back({connection_, std::move(status.failure())});
    attempt_failed(step);
    return;
  }
  next_to_send_ = HOLDFAST_CANARY(not_resent) ? never_sent_from_ : first_unacked_;
}

void Link::on_closed(Step& step, const Failure&) {
  attempt_failed(step);
  if (!waits()) dial_at_ = step.now;
}

void Link::drop(Step& step, const Failure& why) {
  if (state_ != State::idle) step.closes.push_back({connection_, why});
  forget_messages(step);
  state_ = State::idle;
}

void Link::forget_messages(Step& step) {
  for (MessagePtr& message : unacked_) step.garbage.push_back(std::move(message));
  unacked_.clear();
}

// ---- frames

Status Link::on_header(Step& step, const FrameHeader& header) {
  if (header.acknowledged >= never_sent_from_) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("{} acknowledged message {}, but only {} were sent", peer_->name,
                                          header.acknowledged, never_sent_from_ - 1)};
  }
  if (header.credit_bytes > windowed_bytes_) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("{} gave credit for {} bytes, but only {} were sent", peer_->name,
                                          header.credit_bytes, windowed_bytes_)};
  }
  if (header.acknowledged >= first_unacked_) {
    while (first_unacked_ <= header.acknowledged) {
      step.garbage.push_back(std::move(unacked_.front()));
      unacked_.pop_front();
      ++first_unacked_;
    }
    next_to_send_ = std::max(next_to_send_, first_unacked_);
    start_waiting(step.now);
    failed_attempts_ = 0;
  }
  if (header.credit_bytes > credit_received_bytes_) {
    credit_received_bytes_ = header.credit_bytes;
    step.room_opened = true;
  }
  return {};
}

Result<bool> Link::on_sequence(Step& step, uint64_t sequence) {
  if (sequence == received_ + 1) {
    received_ = sequence;
    owe_ack(step, ++unreported_messages_ >= kAckEveryMessages);
    return true;
  }
  if (sequence <= received_) {
    owe_ack(step, true);
    return HOLDFAST_CANARY(duplicate_delivered);
  }
  if (options_.reliable) {
    return Failure{.code = Code::corrupt,
                   .message = fmt::format("{} sent message {} after message {}", peer_->name, sequence, received_)};
  }
  if (asked_resend_for_ != received_ + 1) {
    asked_resend_for_ = received_ + 1;
    control_.push_back(bare(kResend));
    step.flush(connection_);
  }
  return false;
}

void Link::on_ping(Step& step) { owe_ack(step, true); }

void Link::hurry(Step& step) {
  if (state_ != State::up) return;
  if (!unacked_.empty()) control_.push_back(bare(kPing));
  if (ack_owed_ || !unacked_.empty()) step.flush(connection_);
}

void Link::on_resend(Step& step) {
  next_to_send_ = first_unacked_;
  step.flush(connection_);
}

FrameHeader Link::header(Kind kind, uint64_t sequence) {
  ack_owed_ = false;
  ack_due_ = kNever;
  unreported_messages_ = 0;
  credit_reported_bytes_ = credit_given_bytes_;
  return {.kind = kind, .sequence = sequence, .acknowledged = received_, .credit_bytes = credit_given_bytes_};
}

void Link::collect(size_t bytes_max, std::vector<OutFrame>& out) {
  for (MessagePtr& message : control_) {
    const Kind kind = message->kind;
    out.push_back({header(kind, 0), std::move(message)});
  }
  control_.clear();
  if (state_ != State::up) return;
  size_t bytes = 0;
  const uint64_t end = first_unacked_ + unacked_.size();
  for (; next_to_send_ < end && bytes < bytes_max; ++next_to_send_) {
    const MessagePtr& message = unacked_[next_to_send_ - first_unacked_];
    bytes += kFrameHeaderBytes + message->total_bytes();
    out.push_back({header(message->kind, next_to_send_), message});
  }
  never_sent_from_ = std::max(never_sent_from_, next_to_send_);
  if (ack_owed_) out.push_back({header(kAck, 0), bare(kAck)});
}

// ---- time

void Link::start_waiting(Time now) {
  waiting_since_ = now;
  resend_wait_ = options_.resend_first;
  resend_at_ = after(now, resend_wait_);
}

void Link::on_time(Step& step) {
  switch (state_) {
    case State::idle:
      if (waits() && step.now >= dial_at_) dial(step);
      return;
    case State::dialling:
    case State::greeting:
      if (step.now >= attempt_until_) {
        close(step, Code::timeout, fmt::format("{} at {} did not answer the handshake", peer_->name, peer_->address));
        attempt_failed(step);
      }
      return;
    case State::up: break;
  }
  if (ack_owed_ && step.now >= ack_due_) {
    ack_due_ = after(step.now, options_.ack_delay);  // if the socket is full now, look again later
    step.flush(connection_);
  }
  if (!waits()) return;
  if (!options_.reliable && !unacked_.empty() && step.now >= resend_at_) {
    resend_wait_ = std::min(resend_wait_ * 2, options_.resend_max);
    resend_at_ = after(step.now, resend_wait_);
    on_resend(step);
  }
  const Time silent_since = std::max(last_heard_, waiting_since_);
  if (step.now >= silent_since + 3 * options_.heartbeat) {
    close(step, Code::unavailable, fmt::format("{} at {} was silent for too long", peer_->name, peer_->address));
    attempt_failed(step);
    dial(step);
  } else if (step.now >= std::max(silent_since, pinged_) + options_.heartbeat) {
    pinged_ = step.now;
    control_.push_back(bare(kPing));
    step.flush(connection_);
  }
}

Time Link::next_deadline() const {
  switch (state_) {
    case State::idle: return waits() ? dial_at_ : kNever;
    case State::dialling:
    case State::greeting: return attempt_until_;
    case State::up: break;
  }
  Time next = ack_owed_ ? ack_due_ : kNever;
  if (waits()) {
    if (!options_.reliable && !unacked_.empty()) next = std::min(next, resend_at_);
    next = std::min(next, std::max({last_heard_, waiting_since_, pinged_}) + options_.heartbeat);
  }
  return next;
}

}  // namespace holdfast
