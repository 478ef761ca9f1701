#include <holdfast/wire/writer.h>

#include <gtest/gtest.h>

#include <limits>

#include <holdfast/base/error.h>
#include <holdfast/wire/frame.h>
#include <holdfast/wire/wire_test_support.h>

namespace holdfast::wire {
namespace {

std::string signed_hex(int64_t value) {
  return hex(written([&](Writer& writer) { writer.integer(value); }));
}
std::string unsigned_hex(uint64_t value) {
  return hex(written([&](Writer& writer) { writer.unsigned_integer(value); }));
}

TEST(Writer, IntegersTakeTheirShortestForm) {
  EXPECT_EQ(signed_hex(0), "00");
  EXPECT_EQ(signed_hex(127), "7f");
  EXPECT_EQ(signed_hex(128), "cc 80");
  EXPECT_EQ(signed_hex(255), "cc ff");
  EXPECT_EQ(signed_hex(256), "cd 01 00");
  EXPECT_EQ(signed_hex(65535), "cd ff ff");
  EXPECT_EQ(signed_hex(65536), "ce 00 01 00 00");
  EXPECT_EQ(signed_hex(4294967295), "ce ff ff ff ff");
  EXPECT_EQ(signed_hex(4294967296), "cf 00 00 00 01 00 00 00 00");
  EXPECT_EQ(signed_hex(INT64_MAX), "cf 7f ff ff ff ff ff ff ff");
  EXPECT_EQ(signed_hex(-1), "ff");
  EXPECT_EQ(signed_hex(-32), "e0");
  EXPECT_EQ(signed_hex(-33), "d0 df");
  EXPECT_EQ(signed_hex(-128), "d0 80");
  EXPECT_EQ(signed_hex(-129), "d1 ff 7f");
  EXPECT_EQ(signed_hex(-32768), "d1 80 00");
  EXPECT_EQ(signed_hex(-32769), "d2 ff ff 7f ff");
  EXPECT_EQ(signed_hex(INT32_MIN), "d2 80 00 00 00");
  EXPECT_EQ(signed_hex(int64_t{INT32_MIN} - 1), "d3 ff ff ff ff 7f ff ff ff");
  EXPECT_EQ(signed_hex(INT64_MIN), "d3 80 00 00 00 00 00 00 00");
  EXPECT_EQ(unsigned_hex(127), "7f");
  EXPECT_EQ(unsigned_hex(128), "cc 80");
  EXPECT_EQ(unsigned_hex(UINT64_MAX), "cf ff ff ff ff ff ff ff ff");
}

TEST(Writer, SimpleValues) {
  EXPECT_EQ(hex(written([](Writer& writer) {
              writer.nil();
              writer.boolean(false);
              writer.boolean(true);
              writer.float32(1.5F);
              writer.float64(-2.0);
              writer.string("hi");
            })),
            "c0 c2 c3 ca 3f c0 00 00 cb c0 00 00 00 00 00 00 00 a2 68 69");
}

template <class F>
std::string head(F write) {
  const Bytes bytes = written(write);
  return hex(ByteView(bytes).first(std::min<size_t>(bytes.size(), 5)));
}

TEST(Writer, LengthsTakeTheirShortestForm) {
  const auto string = [](size_t n) { return head([&](Writer& w) { w.string(std::string(n, 'a')); }); };
  EXPECT_EQ(string(0), "a0");
  EXPECT_EQ(string(31), "bf 61 61 61 61");
  EXPECT_EQ(string(32), "d9 20 61 61 61");
  EXPECT_EQ(string(255), "d9 ff 61 61 61");
  EXPECT_EQ(string(256), "da 01 00 61 61");
  EXPECT_EQ(string(65536), "db 00 01 00 00");
  const auto binary = [](size_t n) { return head([&](Writer& w) { w.binary(Bytes(n, 7)); }); };
  EXPECT_EQ(binary(0), "c4 00");
  EXPECT_EQ(binary(255), "c4 ff 07 07 07");
  EXPECT_EQ(binary(256), "c5 01 00 07 07");
  EXPECT_EQ(binary(65536), "c6 00 01 00 00");
  const auto array = [](size_t n) { return head([&](Writer& w) { w.array_header(n); }); };
  EXPECT_EQ(array(15), "9f");
  EXPECT_EQ(array(16), "dc 00 10");
  EXPECT_EQ(array(65536), "dd 00 01 00 00");
  const auto map = [](size_t n) { return head([&](Writer& w) { w.map_header(n); }); };
  EXPECT_EQ(map(15), "8f");
  EXPECT_EQ(map(16), "de 00 10");
  EXPECT_EQ(map(65536), "df 00 01 00 00");
  const auto extension = [](size_t n) { return head([&](Writer& w) { w.extension(-3, Bytes(n, 7)); }); };
  EXPECT_EQ(extension(0), "c7 00 fd");
  EXPECT_EQ(extension(1), "d4 fd 07");
  EXPECT_EQ(extension(2), "d5 fd 07 07");
  EXPECT_EQ(extension(3), "c7 03 fd 07 07");
  EXPECT_EQ(extension(4), "d6 fd 07 07 07");
  EXPECT_EQ(extension(8), "d7 fd 07 07 07");
  EXPECT_EQ(extension(16), "d8 fd 07 07 07");
  EXPECT_EQ(extension(17), "c7 11 fd 07 07");
  EXPECT_EQ(extension(256), "c8 01 00 fd 07");
  EXPECT_EQ(extension(65536), "c9 00 01 00 00");
}

// numbers() has a path of its own; it must write what the single values write.
template <class T>
void numbers_equal_single_values(uint64_t seed) {
  Random random(seed);
  std::vector<T> values;
  for (int i = 0; i < 1000; ++i) values.push_back(static_cast<T>(random_magnitude(random) * (i % 2 == 0 ? 1 : -1)));
  const Bytes run = written([&](Writer& writer) { writer.numbers(std::span<const T>(values)); });
  const Bytes single = written([&](Writer& writer) {
    for (const T value : values) encode(writer, value);
  });
  EXPECT_EQ(hex(run), hex(single));
}

TEST(Writer, NumbersEqualSingleValues) {
  numbers_equal_single_values<int8_t>(1);
  numbers_equal_single_values<uint16_t>(2);
  numbers_equal_single_values<int32_t>(3);
  numbers_equal_single_values<int64_t>(4);
  numbers_equal_single_values<uint64_t>(5);
  numbers_equal_single_values<float>(6);
  numbers_equal_single_values<double>(7);
}

TEST(Writer, AppendsToWhatTheBodyHolds) {
  Message message;
  message.body = {0xaa};
  Writer(message).integer(5);
  Writer(message).string(std::string(300, 'x'));
  EXPECT_EQ(message.body.size(), 1U + 1 + 3 + 300);
  EXPECT_EQ(message.body[0], 0xaa);
  EXPECT_EQ(message.body[1], 5);
  EXPECT_EQ(message.body.back(), 'x');
}

TEST(Writer, GrowsGeometrically) {
  Message message;
  Writer writer(message);
  size_t growths = 0;
  for (size_t i = 0; i < 100'000; ++i) {
    const size_t before = message.body.capacity();
    writer.float64(1.0);
    if (message.body.capacity() != before) ++growths;
  }
  EXPECT_EQ(message.body.size(), 900'000U);
  EXPECT_LE(growths, 20U);
}

TEST(Writer, AttachmentsAreNumberedAndLimited) {
  Message message;
  Writer writer(message);
  EXPECT_EQ(writer.attach({}), 0U);
  EXPECT_EQ(writer.attach({.owner = nullptr, .data = nullptr, .bytes = 0}), 1U);
  message.attachments.resize(kAttachmentsMax - 1);
  EXPECT_EQ(writer.attach({}), kAttachmentsMax - 1);
  EXPECT_THROW(writer.attach({}), InvalidArgument);
  EXPECT_EQ(message.attachments.size(), kAttachmentsMax);
}

TEST(Writer, TooLongThrowsBeforeItIsRead) {
  Message message;
  Writer writer(message);
  EXPECT_THROW(writer.array_header(size_t{UINT32_MAX} + 1), InvalidArgument);
  EXPECT_THROW(writer.map_header(size_t{UINT32_MAX} + 1), InvalidArgument);
  const uint8_t one = 0;  // the bytes behind it do not exist, and must not be touched
  EXPECT_THROW(writer.binary(ByteView(&one, size_t{UINT32_MAX} + 1)), InvalidArgument);
  EXPECT_THROW(writer.extension(1, ByteView(&one, size_t{UINT32_MAX} + 1)), InvalidArgument);
  EXPECT_THROW(writer.string({reinterpret_cast<const char*>(&one), size_t{UINT32_MAX} + 1}), InvalidArgument);
  // It fits its own length, but not the body behind what is there already.
  EXPECT_THROW(writer.binary(ByteView(&one, size_t{UINT32_MAX} - 3)), InvalidArgument);
}

TEST(Writer, HandsTheContextThrough) {
  struct Peer : WireContext {
  } peer;
  Message message;
  EXPECT_EQ(Writer(message, &peer).context(), &peer);
  EXPECT_EQ(Writer(message).context(), nullptr);
}

}  // namespace
}  // namespace holdfast::wire
