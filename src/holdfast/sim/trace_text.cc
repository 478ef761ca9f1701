#include <holdfast/sim/trace_text.h>

#include <fmt/format.h>

#include <holdfast/cluster/messages.h>
#include <holdfast/link/messages.h>
#include <holdfast/rpc/function.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/rref/cargo.h>
#include <holdfast/rref/messages.h>

namespace holdfast::sim {

namespace {

const KindNames& kind_names() {
  static const KindNames names = [] {
    KindNames all;
    all.add(kLinkKinds);
    all.add(kClusterKinds);
    all.add(kRpcKinds);
    all.add(kRRefKinds);
    return all;
  }();
  return names;
}

std::string cargo_text(const Message& message) {
  const Result<ByteView> bytes = find_section(message, Section::cargo);
  if (!bytes || bytes->empty()) return {};
  wire::Reader reader(*bytes);
  std::vector<CargoEntry> entries;
  wire::decode(reader, entries);
  std::string text;
  for (const CargoEntry& entry : entries) {
    constexpr const char* kRoles[] = {"creates", "to owner", "from owner", "shares", "to self"};
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", kRoles[static_cast<size_t>(entry.role)], text_of(entry.rref));
    if (entry.fork) text += " as fork " + text_of(*entry.fork);
  }
  return fmt::format(" [{}]", text);
}

std::string call_text(const Message& message) {
  wire::Reader reader(message);
  const CallHeader header = read_call_header(reader);
  const FunctionLookup found = find_function(header.function, header.signature);
  return fmt::format("{:x} {}", header.call.value, found.function != nullptr ? found.function->name : "?") +
         cargo_text(message);
}

std::string reply_text(const Message& message) {
  wire::Reader reader(message);
  const ReplyHeader header = read_reply_header(reader);
  return fmt::format("{:x}", header.call.value) +
         (header.failure ? fmt::format(" failed: {}", name_of(header.failure->code)) : cargo_text(message));
}

std::string forks_text(const Message& message) {
  const Result<Forks> forks = wire::decode_message<Forks>(message);
  if (!forks) return "?";
  std::string text = fmt::format("({})", forks->number);
  for (const ForkId& fork : forks->forks) text += " fork " + text_of(fork);
  return text;
}

std::string requests_text(const Message& message) {
  const Result<ForkRequests> requests = wire::decode_message<ForkRequests>(message);
  if (!requests) return "?";
  std::string text = fmt::format("({})", requests->number);
  for (const ForkRequest& request : requests->requests) {
    text += fmt::format(" object {} fork {}", text_of(request.rref), text_of(request.fork));
  }
  return text;
}

std::string cluster_text(const Message& message) {
  if (message.kind == kLost) {
    const Result<Lost> lost = wire::decode_message<Lost>(message);
    if (lost) return fmt::format("loss {}: {}.{}", lost->number, lost->worker.name, lost->worker.incarnation.value);
  } else if (message.kind == kSettled) {
    const Result<Counter64> settled = wire::decode_message<Counter64>(message);
    if (settled) return fmt::format("up to loss {}", settled->value);
  } else if (message.kind == kHeartbeat) {
    const Result<Heartbeat> beat = wire::decode_message<Heartbeat>(message);
    if (beat) return fmt::format("losses seen {}, settled {}", beat->losses_seen, beat->losses_settled);
  }
  return {};
}

std::string content_text(const Message& message) {
  const Kind kind = message.kind;
  if (kind == kCall || kind == kRemoteCall || kind == kRRefFetch) return call_text(message);
  if (kind == kReply) return reply_text(message);
  if (kind == kRRefForkRequest) return requests_text(message);
  if (kind == kRRefAccept || kind == kRRefChildAccept || kind == kRRefUserDelete) return forks_text(message);
  return cluster_text(message);
}

}  // namespace

std::string text_of_frame(const FrameHeader& header, const Message& message) {
  std::string text = kind_names().name(header.kind);
  if (header.sequence != 0) text += fmt::format(" #{}", header.sequence);
  const std::string content = content_text(message);
  return content.empty() ? text : text + " " + content;
}

bool is_routine(Kind kind) { return kind == kHeartbeat || kind == kHeartbeatAck || kind == kAck || kind == kPing; }

}  // namespace holdfast::sim
