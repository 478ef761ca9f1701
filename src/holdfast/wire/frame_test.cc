#include <holdfast/wire/frame.h>

#include <gtest/gtest.h>

#include <memory>

#include <holdfast/wire/wire_test_support.h>

namespace holdfast {
namespace {

Attachment attachment_of(Bytes bytes) {
  auto owner = std::make_shared<Bytes>(std::move(bytes));
  const uint8_t* data = owner->data();
  const uint64_t size = owner->size();
  return {.owner = std::move(owner), .data = data, .bytes = size};
}

OutFrame random_frame(Random& random) {
  auto message = std::make_shared<Message>();
  message->kind = {static_cast<uint16_t>(random.next())};
  message->body = wire::random_bytes(random, random.below(40));
  const uint64_t count = random.below(5);
  for (uint64_t i = 0; i < count; ++i) {
    message->attachments.push_back(attachment_of(wire::random_bytes(random, random.below(30))));
  }
  return {.header = {.kind = message->kind,
                     .sequence = random.next(),
                     .acknowledged = random.next(),
                     .credit_bytes = random.next()},
          .message = std::move(message)};
}

void expect_same(const OutFrame& out, const InFrame& in) {
  EXPECT_EQ(in.header.kind, out.message->kind);
  EXPECT_EQ(in.header.sequence, out.header.sequence);
  EXPECT_EQ(in.header.acknowledged, out.header.acknowledged);
  EXPECT_EQ(in.header.credit_bytes, out.header.credit_bytes);
  EXPECT_EQ(in.message.kind, out.message->kind);
  EXPECT_EQ(in.message.body, out.message->body);
  ASSERT_EQ(in.message.attachments.size(), out.message->attachments.size());
  for (size_t i = 0; i < in.message.attachments.size(); ++i) {
    const Attachment& a = in.message.attachments[i];
    const Attachment& b = out.message->attachments[i];
    EXPECT_EQ(Bytes(a.data, a.data + a.bytes), Bytes(b.data, b.data + b.bytes));
  }
}

TEST(Frame, TheBytesAreAsDocumented) {
  auto message = std::make_shared<Message>();
  message->kind = {0x0102};
  message->body = {0xb0, 0xb1, 0xb2};
  message->attachments.push_back(attachment_of({0xa0, 0xa1}));
  message->attachments.push_back(attachment_of({}));
  const OutFrame frame{.header = {.kind = message->kind, .sequence = 3, .acknowledged = 4, .credit_bytes = 5},
                       .message = message};
  EXPECT_EQ(wire::hex(encode_frame(frame)),
            "02 01 02 00 03 00 00 00 "
            "03 00 00 00 00 00 00 00 04 00 00 00 00 00 00 00 05 00 00 00 00 00 00 00 "
            "02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
            "b0 b1 b2 a0 a1");
}

TEST(Frame, RoundTrip) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const OutFrame out = random_frame(random);
    const auto in = decode_frame(encode_frame(out));
    ASSERT_TRUE(in.has_value());
    expect_same(out, *in);
  }
}

TEST(Frame, AttachmentsOutliveTheBytesTheyCameIn) {
  std::optional<InFrame> in;
  {
    auto message = std::make_shared<Message>();
    message->attachments.push_back(attachment_of({1, 2, 3}));
    in = decode_frame(encode_frame({.header = {}, .message = message}));
  }
  ASSERT_TRUE(in.has_value());
  const Attachment attachment = in->message.attachments.at(0);
  in.reset();
  EXPECT_EQ(Bytes(attachment.data, attachment.data + attachment.bytes), Bytes({1, 2, 3}));
}

TEST(Frame, HeadIsThePrefixOfTheWholeAndTellsItsLayout) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const OutFrame frame = random_frame(random);
    Bytes head = {0xee};  // appended to what is there
    encode_frame_head(frame, head);
    head = Bytes(head.begin() + 1, head.end());
    const Bytes whole = encode_frame(frame);
    ASSERT_EQ(head.size(), kFrameHeaderBytes + 8 * frame.message->attachments.size());
    EXPECT_TRUE(std::equal(head.begin(), head.end(), whole.begin()));
    const FrameLayout layout = decode_frame_layout(whole.data());
    EXPECT_EQ(layout.header.sequence, frame.header.sequence);
    EXPECT_EQ(layout.attachment_count, frame.message->attachments.size());
    EXPECT_EQ(layout.table_bytes(), 8 * frame.message->attachments.size());
    EXPECT_EQ(layout.body_bytes, frame.message->body.size());
  }
}

// Copied to memory of exactly that size, so that AddressSanitizer sees any read beyond it.
std::optional<InFrame> decode_exact(ByteView bytes) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  return decode_frame(ByteView(copy.get(), bytes.size()));
}

TEST(Frame, CutAnywhereIsNoFrame) {
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    const Bytes whole = encode_frame(random_frame(random));
    for (size_t length = 0; length < whole.size(); ++length) {
      EXPECT_FALSE(decode_exact(ByteView(whole).first(length)).has_value()) << length << " of " << whole.size();
    }
    Bytes longer = whole;
    longer.push_back(0);
    EXPECT_FALSE(decode_exact(longer).has_value());
  }
}

TEST(Frame, LengthsThatWouldOverflowAreNoFrame) {
  auto message = std::make_shared<Message>();
  message->attachments = {attachment_of({1, 2}), attachment_of({3, 4})};
  Bytes bytes = encode_frame({.header = {}, .message = message});
  ASSERT_TRUE(decode_exact(bytes).has_value());
  // The two lengths add up to 4 again, modulo 2^64.
  std::fill_n(bytes.begin() + kFrameHeaderBytes, 8, uint8_t{0xff});
  bytes[kFrameHeaderBytes + 8] = 5;
  EXPECT_FALSE(decode_exact(bytes).has_value());
}

TEST(Frame, RandomBytesNeverCrashAndAcceptedOnesAreTrue) {
  Random random(4);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    Bytes bytes = wire::random_bytes(random, random.below(120));
    if (bytes.size() >= kFrameHeaderBytes && i % 2 == 0) {
      // Small numbers, so that some get past the first checks.
      bytes[2] &= 3;
      bytes[3] = 0;
      bytes[4] &= 31;
      bytes[5] = bytes[6] = bytes[7] = 0;
      for (size_t at = kFrameHeaderBytes; at < bytes.size(); ++at) bytes[at] = at % 8 == 0 ? bytes[at] & 31 : 0;
    }
    const auto frame = decode_exact(bytes);
    if (!frame) continue;
    ++accepted;
    auto message = std::make_shared<Message>(frame->message);
    EXPECT_EQ(encode_frame({.header = frame->header, .message = message}), bytes);
  }
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace holdfast
