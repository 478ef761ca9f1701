// FaultOptions: which faults a worker makes on purpose, and the text form of that. docs/faults.md is its description.
//
// Plain data, part of Options. What it does is in rpc/message_faults.h (messages) and transport/faulty.h (frames).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <holdfast/base/time.h>

namespace holdfast {

struct FaultPlan;
class KindNames;
class Status;

// What happens to the messages that go to one worker.
struct PeerFaults {
  std::vector<std::string> messages_to_fail;  // kinds, by name
  uint32_t num_fail_sends = 1;                // how often each of those fails before it passes
  std::map<std::string, Duration> messages_to_delay;

  // Probabilities: for each frame, and the last one for each message.
  double drop = 0;
  double duplicate = 0;
  double reorder = 0;
  double delay = 0;  // by up to delay_max
  Duration delay_max = std::chrono::milliseconds(10);
  double cut = 0;   // the connection
  double kill = 0;  // this process

  bool any_for_messages() const { return !messages_to_fail.empty() || !messages_to_delay.empty() || kill > 0; }
  bool any_for_frames() const { return cut > 0 || tampers(); }
  // Frames may be lost, repeated or out of order.
  bool tampers() const { return drop > 0 || duplicate > 0 || reorder > 0 || delay > 0; }
  FaultPlan frame_plan() const;
};

// The base: for every worker that is not among `peers`.
struct FaultOptions : PeerFaults {
  uint64_t seed = 1;
  std::vector<std::string> workers;         // those who make these faults; empty: all
  std::map<std::string, PeerFaults> peers;  // by name; instead of the base

  bool any_for_messages() const;
  bool any_for_frames() const;
  bool tampers() const;
  bool made_by(const std::string& worker) const;
  const PeerFaults& towards(const std::string& peer) const;

  // Both throw InvalidArgument. parse: the text itself; load: the text, or the name of a file that holds it.
  static FaultOptions parse(std::string_view text);
  static FaultOptions load(const std::string& text_or_file);
};

// The text of `text_or_file`, so that it can be handed on. Throws InvalidArgument: no such file.
std::string read_faults(const std::string& text_or_file);

// What makes no sense, with what would.
Status check(const FaultOptions& faults, const KindNames& known);

}  // namespace holdfast
