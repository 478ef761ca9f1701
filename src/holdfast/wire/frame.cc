#include <holdfast/wire/frame.h>

#include <bit>
#include <cstring>

#include <holdfast/base/check.h>

namespace holdfast {

static_assert(std::endian::native == std::endian::little, "frames are written as this machine stores integers");

namespace {

template <class T>
void put(uint8_t* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <class T>
T get(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

void encode_frame_head(const OutFrame& frame, Bytes& out) {
  const Message& message = *frame.message;
  HOLDFAST_CHECK(message.attachments.size() <= kAttachmentsMax);
  HOLDFAST_CHECK(message.body.size() <= UINT32_MAX);
  const size_t start = out.size();
  out.resize(start + kFrameHeaderBytes + kFrameTableEntryBytes * message.attachments.size());
  uint8_t* at = out.data() + start;
  put<uint16_t>(at, message.kind.value);
  put<uint16_t>(at + 2, static_cast<uint16_t>(message.attachments.size()));
  put<uint32_t>(at + 4, static_cast<uint32_t>(message.body.size()));
  put<uint64_t>(at + 8, frame.header.sequence);
  put<uint64_t>(at + 16, frame.header.acknowledged);
  put<uint64_t>(at + 24, frame.header.credit_bytes);
  at += kFrameHeaderBytes;
  for (const Attachment& attachment : message.attachments) {
    put<uint64_t>(at, attachment.bytes);
    at += kFrameTableEntryBytes;
  }
}

FrameLayout decode_frame_layout(const uint8_t* at) {
  return {.header = {.kind = {get<uint16_t>(at)},
                     .sequence = get<uint64_t>(at + 8),
                     .acknowledged = get<uint64_t>(at + 16),
                     .credit_bytes = get<uint64_t>(at + 24)},
          .attachment_count = get<uint16_t>(at + 2),
          .body_bytes = get<uint32_t>(at + 4)};
}

Bytes encode_frame(const OutFrame& frame) {
  Bytes out;
  encode_frame_head(frame, out);
  const Message& message = *frame.message;
  out.append(message.body);
  for (const Attachment& attachment : message.attachments) {
    out.append(attachment.data, attachment.bytes);
  }
  return out;
}

std::optional<InFrame> decode_frame(ByteView bytes) {
  if (bytes.size() < kFrameHeaderBytes) return std::nullopt;
  const FrameLayout layout = decode_frame_layout(bytes.data());
  uint64_t left = bytes.size() - kFrameHeaderBytes;
  if (left < layout.table_bytes() || left - layout.table_bytes() < layout.body_bytes) return std::nullopt;
  left -= layout.table_bytes() + layout.body_bytes;

  const uint8_t* table = bytes.data() + kFrameHeaderBytes;
  const uint8_t* at = table + layout.table_bytes();
  InFrame frame{.header = layout.header,
                .message = {.kind = layout.header.kind, .body = Bytes(at, at + layout.body_bytes), .attachments = {}}};
  at += layout.body_bytes;
  for (size_t i = 0; i < layout.attachment_count; ++i) {
    const auto length = get<uint64_t>(table + 8 * i);
    if (length > left) return std::nullopt;
    auto copy = std::make_shared<Bytes>(at, at + length);
    frame.message.attachments.push_back({.owner = copy, .data = copy->data(), .bytes = length});
    at += length;
    left -= length;
  }
  if (left != 0) return std::nullopt;
  return frame;
}

}  // namespace holdfast
