// The messages of calls. See docs/protocol.md, "Calls". Their bodies are a few MessagePack values in front of
// the arguments or the result, which only the function's own types can read. The first one is a set of flags: which
// sections the message has.
#pragma once

#include <array>
#include <optional>
#include <span>

#include <holdfast/base/error.h>
#include <holdfast/base/time.h>
#include <holdfast/wire/kind.h>
#include <holdfast/wire/reader.h>
#include <holdfast/wire/writer.h>

namespace holdfast {

inline constexpr Kind kCall{32};
inline constexpr Kind kReply{33};
inline constexpr Kind kCancel{34};

inline constexpr std::array<KindName, 3> kRpcKinds = {{{kCall, "CALL"}, {kReply, "REPLY"}, {kCancel, "CANCEL"}}};

// What stands before the arguments in a CALL.
struct CallHeader {
  CallId call;
  uint64_t timeout_us = 0;  // what is left; 0: no limit
  uint64_t function = 0;
  uint64_t signature = 0;
};

// The id and the time left are known only once the call is entered in the table, after its arguments were
// encoded, and the sections later still: they have a fixed place, which is filled in by stamp_call and attach_section.
void write_call_header(wire::Writer& writer, uint64_t function, uint64_t signature);
void stamp_call(Message& message, CallId call, Duration time_left);
CallHeader read_call_header(wire::Reader& reader);
// The same call, which leaves so much later than it was stamped for.
std::shared_ptr<Message> delayed_call(const Message& message, Duration delay);

// What stands before the result in a REPLY: the call, then 0, or a Code and the rest of a Failure.
void write_reply_header(wire::Writer& writer, CallId call);
std::shared_ptr<Message> failed_reply(CallId call, const Failure& failure);
struct ReplyHeader {
  CallId call;
  std::optional<Failure> failure;
};
ReplyHeader read_reply_header(wire::Reader& reader);
// Of a reply that is known to hold a result.
void skip_reply_header(wire::Reader& reader);

std::shared_ptr<Message> cancel_message(CallId call);

// What a CALL, a REPLY, or what looks like one carries beside its values, for a layer above: each section is one of its
// last attachments, the one with the lowest flag the very last. So they are attached from the highest flag down.
enum class Section : uint8_t {
  cargo = 1,    // references: rpc/cargo.h
  tensors = 2,  // the table of its tensors, whose bytes are attachments before the sections
  flow = 4,     // what the work that it starts belongs to: rpc/flow.h
};
void attach_section(Message& message, Section section, Bytes bytes);
// Most messages have none. The flags are their first byte.
inline bool has_sections(const Message& message) { return !message.body.empty() && message.body[0] != 0; }
// Its bytes; empty: there is none. A failure: the message says that there is, and that is not so.
Result<ByteView> find_section(const Message& message, Section section);
// The attachments that are not sections.
std::span<const Attachment> attachments_of_values(const Message& message);

}  // namespace holdfast
