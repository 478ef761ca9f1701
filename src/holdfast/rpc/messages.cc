#include <holdfast/rpc/messages.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

// Where the things with a fixed place stand. The id and the time left are written as MessagePack's uint 64
// whatever their size.
constexpr size_t kFlagsAt = 0;
constexpr size_t kCallAt = 1;
constexpr uint8_t kUint64 = 0xcf;
constexpr size_t kUint64Bytes = 9;
constexpr size_t kTimeLeftAt = kCallAt + kUint64Bytes;
constexpr uint8_t kKnownFlags = 7;

void fill_in(Message& message, size_t at, uint64_t value) {
  HOLDFAST_CHECK(message.body.size() >= at + kUint64Bytes && message.body[at] == kUint64);
  const uint64_t big_endian = __builtin_bswap64(value);
  std::memcpy(message.body.data() + at + 1, &big_endian, sizeof(big_endian));
}

void read_flags(wire::Reader& reader) {
  if (reader.unsigned_integer() > kKnownFlags) reader.fail("unknown flags");
}

}  // namespace

void write_call_header(wire::Writer& writer, uint64_t function, uint64_t signature) {
  writer.unsigned_integer(0);
  writer.unsigned_integer(UINT64_MAX);  // the places of the id and of the time left
  writer.unsigned_integer(UINT64_MAX);
  writer.unsigned_integer(function);
  writer.unsigned_integer(signature);
}

void stamp_call(Message& message, CallId call, Duration time_left) {
  const int64_t left_us = std::chrono::duration_cast<std::chrono::microseconds>(time_left).count();
  fill_in(message, kCallAt, call.value);
  fill_in(message, kTimeLeftAt,
          time_left == Duration::max() ? 0 : static_cast<uint64_t>(std::max<int64_t>(left_us, 1)));
}

CallHeader read_call_header(wire::Reader& reader) {
  CallHeader header;
  read_flags(reader);
  header.call = {reader.unsigned_integer()};
  header.timeout_us = reader.unsigned_integer();
  header.function = reader.unsigned_integer();
  header.signature = reader.unsigned_integer();
  return header;
}

std::shared_ptr<Message> delayed_call(const Message& message, Duration delay) {
  auto late = std::make_shared<Message>(message);
  wire::Reader reader(message);
  const uint64_t left_us = read_call_header(reader).timeout_us;
  HOLDFAST_CHECK(reader.ok());
  const auto delay_us = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(delay).count());
  if (left_us != 0) fill_in(*late, kTimeLeftAt, left_us > delay_us ? left_us - delay_us : 1);
  return late;
}

void write_reply_header(wire::Writer& writer, CallId call) {
  writer.unsigned_integer(0);
  writer.unsigned_integer(call.value);
  writer.unsigned_integer(0);
}

std::shared_ptr<Message> failed_reply(CallId call, const Failure& failure) {
  auto message = std::make_shared<Message>();
  message->kind = kReply;
  wire::Writer writer(*message);
  writer.unsigned_integer(0);
  writer.unsigned_integer(call.value);
  writer.unsigned_integer(static_cast<uint8_t>(failure.code));
  writer.string(failure.message);
  writer.string(failure.worker);
  writer.string(failure.type);
  return message;
}

ReplyHeader read_reply_header(wire::Reader& reader) {
  ReplyHeader header;
  read_flags(reader);
  header.call = {reader.unsigned_integer()};
  const uint64_t code = reader.unsigned_integer();
  if (code == 0) return header;
  if (code > UINT8_MAX || !is_code(static_cast<uint8_t>(code))) {
    reader.fail("an unknown error code");
    return header;
  }
  Failure failure{.code = static_cast<Code>(code)};
  failure.message = reader.string();
  failure.worker = reader.string();
  failure.type = reader.string();
  header.failure = std::move(failure);
  return header;
}

void skip_reply_header(wire::Reader& reader) {
  for (int value = 0; value < 3; ++value) reader.unsigned_integer();
}

std::shared_ptr<Message> cancel_message(CallId call) {
  auto message = std::make_shared<Message>();
  message->kind = kCancel;
  wire::Writer writer(*message);
  writer.unsigned_integer(call.value);
  return message;
}

void attach_section(Message& message, Section section, Bytes bytes) {
  const auto flag = static_cast<uint8_t>(section);
  HOLDFAST_CHECK(!message.body.empty());
  uint8_t& flags = message.body[kFlagsAt];
  HOLDFAST_CHECK((flags & (2 * flag - 1)) == 0);  // this one, or one that comes behind it
  flags |= flag;
  auto owner = std::make_shared<const Bytes>(std::move(bytes));
  wire::Writer(message).attach({.owner = owner, .data = owner->data(), .bytes = owner->size()});
}

Result<ByteView> find_section(const Message& message, Section section) {
  const auto flag = static_cast<uint8_t>(section);
  if (message.body.empty() || message.body[kFlagsAt] > kKnownFlags || (message.body[kFlagsAt] & flag) == 0) {
    return ByteView();
  }
  const auto behind = static_cast<size_t>(std::popcount(static_cast<uint8_t>(message.body[kFlagsAt] & (flag - 1))));
  if (message.attachments.size() <= behind || (message.attachments.end() - 1 - behind)->bytes == 0) {
    return Failure{.code = Code::corrupt, .message = "a message without the sections that it speaks of"};
  }
  const Attachment& found = *(message.attachments.end() - 1 - behind);
  if (found.shared) return Failure{.code = Code::corrupt, .message = "a message with a section in shared memory"};
  return ByteView(found.data, found.bytes);
}

std::span<const Attachment> attachments_of_values(const Message& message) {
  const std::span<const Attachment> all = message.attachments;
  if (message.body.empty() || message.body[kFlagsAt] > kKnownFlags) return all;
  const auto sections = static_cast<size_t>(std::popcount(message.body[kFlagsAt]));
  return all.first(all.size() - std::min(sections, all.size()));
}

}  // namespace holdfast
