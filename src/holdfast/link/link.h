// Link: the reliable session between this worker and one life of one peer. It carries numbered messages in
// order and exactly once while both live, over one connection at a time, and outlives connections.
//
// Protocol code: no I/O, no clock, no lock of its own (the driver's lock guards it). Owned by Links, from
// the first message in either direction until the peer is declared lost. When the peer is lost the link is
// thrown away whole; what was not acknowledged goes with it, and the layers above are told.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/base/random.h>
#include <holdfast/link/messages.h>
#include <holdfast/link/step.h>
#include <holdfast/wire/frame.h>

namespace holdfast {

using namespace std::chrono_literals;

struct LinkOptions {
  std::string job;
  uint64_t inflight_bytes_max = 64 << 20;
  Duration heartbeat = 2s;            // silence after which a waiting link pings; after three, it redials
  Duration ack_delay = 20ms;          // how long an acknowledgement may wait for company
  Duration dial_timeout = 5s;         // for connecting and for the handshake
  Duration dial_backoff_first = 5ms;  // doubles
  Duration dial_backoff_max = 500ms;
  Duration resend_first = 100ms;  // unreliable transports only; doubles
  Duration resend_max = 2s;
  size_t strangers_max = 256;  // accepted connections that have not said HELLO yet
  bool reliable = true;        // the transport neither loses nor reorders frames
};

class Link {
 public:
  Link(const LinkOptions& options, const WorkerInfo& self, WorkerPtr peer, ConnectionIds& ids, Random random);

  const WorkerPtr& peer() const { return peer_; }
  ConnectionId connection() const { return connection_; }
  bool up() const { return state_ == State::up; }
  bool has_unacked() const { return !unacked_.empty(); }
  // The peer owes an acknowledgement, or credit for calls: while this is so the link wants a connection.
  bool waits() const { return !unacked_.empty() || windowed_bytes_ != credit_received_bytes_; }
  size_t unacked_count() const { return unacked_.size(); }
  uint64_t reconnects() const { return reconnects_; }

  // Queues a message; returns its number. `windowed` ones (calls) count against the window.
  uint64_t send(Step& step, MessagePtr message, bool windowed);
  // Whether a call of that size may be sent now.
  bool has_room(uint64_t bytes) const;
  // This side has started (or dropped) a call of that size that came over this link.
  void grant_credit(Step& step, uint64_t bytes);
  // The message with this number was given to a connection at least once, so the peer may have it.
  bool maybe_sent(uint64_t sequence) const { return sequence < never_sent_from_; }

  // Events of the connection that this link dialled or adopted.
  void on_connected(Step& step);
  void on_welcome(Step& step, const FrameHeader& header, const Welcome& welcome);
  void on_refused(Step& step, const Refused& refused);
  void on_closed(Step& step, const Failure& why);
  void on_heard(Time now) { last_heard_ = now; }

  // A HELLO came on another connection. Answers nothing if it was adopted (WELCOME is queued), else why not.
  std::optional<Refused> on_hello(Step& step, ConnectionId connection, const FrameHeader& header, const Hello& hello);

  // The header part of any frame after the handshake. Fails if the peer acknowledges what was never sent.
  Status on_header(Step& step, const FrameHeader& header);
  // The sequence number of a numbered frame: true if it is the next one and to be delivered.
  Result<bool> on_sequence(Step& step, uint64_t sequence);
  void on_ping(Step& step);
  // Sends the acknowledgement that this side owes, and asks for those that it waits for: somebody waits for them.
  void hurry(Step& step);
  void on_resend(Step& step);

  void collect(size_t bytes_max, std::vector<OutFrame>& out);

  void on_time(Step& step);
  // When on_time wants to be called next.
  Time next_deadline() const;
  // Closes the connection, if any, because the link ends.
  void drop(Step& step, const Failure& why);
  // What was not acknowledged goes where it is freed outside the lock.
  void forget_messages(Step& step);

  // The time for which Links has set this link's timer; kept here so that it is at hand.
  struct Timer {
    Time at = kNever;
    uint32_t handle = 0;
  } timer;

 private:
  enum class State { idle, dialling, greeting, up };

  void dial(Step& step);
  void attempt_failed(Step& step);
  void become_up(Step& step, const FrameHeader& header);
  void owe_ack(Step& step, bool now);
  FrameHeader header(Kind kind, uint64_t sequence);
  void start_waiting(Time now);
  void close(Step& step, Code code, std::string why);

  const LinkOptions& options_;
  const WorkerInfo& self_;
  const WorkerPtr peer_;
  ConnectionIds& ids_;
  Random random_;

  // The connection.
  State state_ = State::idle;
  ConnectionId connection_;
  uint64_t epoch_ = 0;
  uint32_t failed_attempts_ = 0;
  uint64_t reconnects_ = 0;
  Time dial_at_{};                   // idle: not before
  Time attempt_until_ = kNever;      // dialling, greeting
  std::vector<MessagePtr> control_;  // goes out first, unnumbered; emptied when the connection ends

  // Sending.
  std::deque<MessagePtr> unacked_;  // from first_unacked_ on; entries leave when acknowledged
  uint64_t first_unacked_ = 1;
  uint64_t next_to_send_ = 1;     // on the current connection
  uint64_t never_sent_from_ = 1;  // on any connection
  uint64_t windowed_bytes_ = 0;   // of all calls ever queued
  uint64_t credit_received_bytes_ = 0;
  Time waiting_since_{};  // unacked_ became non-empty, or an acknowledgement moved it
  Duration resend_wait_{};
  Time resend_at_{};  // unreliable transports

  // Receiving.
  uint64_t received_ = 0;
  uint64_t asked_resend_for_ = 0;  // RESEND was sent because this number was skipped
  uint64_t credit_given_bytes_ = 0;
  uint64_t credit_reported_bytes_ = 0;
  bool ack_owed_ = false;
  uint32_t unreported_messages_ = 0;
  Time ack_due_ = kNever;
  Time last_heard_{};
  Time pinged_{};
};

}  // namespace holdfast
