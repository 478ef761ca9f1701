#include <holdfast/wire/reader.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <holdfast/wire/wire_test_support.h>

namespace holdfast::wire {
namespace {

// One read of `body`, and the reader's error after it.
template <class F>
std::string error_of(const Bytes& body, F read) {
  Reader reader{ByteView(body)};
  read(reader);
  return reader.error();
}

constexpr auto kInteger = [](Reader& reader) { return reader.integer(); };
constexpr auto kUnsigned = [](Reader& reader) { return reader.unsigned_integer(); };
constexpr auto kDouble = [](Reader& reader) { return reader.float64(); };
constexpr auto kFloat = [](Reader& reader) { return reader.float32(); };

template <class F>
auto read(const Bytes& body, F read_one) {
  Reader reader{ByteView(body)};
  const auto value = read_one(reader);
  reader.finish();
  EXPECT_TRUE(reader.ok()) << reader.error();
  return value;
}

TEST(Reader, IntegersOfAnyEncodingThatFits) {
  EXPECT_EQ(read({0x05}, kInteger), 5);
  EXPECT_EQ(read({0xcc, 0x05}, kInteger), 5);
  EXPECT_EQ(read({0xcf, 0, 0, 0, 0, 0, 0, 0, 5}, kInteger), 5);
  EXPECT_EQ(read({0xd0, 0x05}, kUnsigned), 5U);
  EXPECT_EQ(read({0xd3, 0, 0, 0, 0, 0, 0, 0, 5}, kUnsigned), 5U);
  EXPECT_EQ(read({0xd1, 0xff, 0xff}, kInteger), -1);
  EXPECT_EQ(read({0xcd, 0xff, 0xff}, kInteger), 65535);
  EXPECT_EQ(read({0xce, 0xff, 0xff, 0xff, 0xff}, kInteger), 4294967295);
  EXPECT_EQ(read({0xd2, 0x80, 0, 0, 0}, kInteger), INT32_MIN);
}

TEST(Reader, IntegersThatDoNotFitAreNamed) {
  EXPECT_EQ(error_of({0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, kInteger),
            "at byte 0: expected an integer up to 9223372036854775807, found 18446744073709551615");
  EXPECT_EQ(error_of({0xd0, 0x80}, kUnsigned), "at byte 0: expected an unsigned integer, found -128");
  EXPECT_EQ(error_of({0xff}, kUnsigned), "at byte 0: expected an unsigned integer, found -1");
}

TEST(Reader, FloatsOfAnyEncodingThatIsExact) {
  EXPECT_EQ(read({0xca, 0x3f, 0xc0, 0, 0}, kDouble), 1.5);
  EXPECT_EQ(read({0x07}, kDouble), 7.0);
  EXPECT_EQ(read({0xff}, kDouble), -1.0);
  EXPECT_EQ(read({0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, kDouble), -0x1p63);
  EXPECT_EQ(read({0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0}, kFloat), -0x1p63F);
  EXPECT_EQ(read({0xcf, 0x00, 0x20, 0, 0, 0, 0, 0, 0}, kDouble), 0x1p53);
  EXPECT_EQ(error_of({0xcf, 0x00, 0x20, 0, 0, 0, 0, 0, 1}, kDouble),
            "at byte 0: expected a float64, found the integer 9007199254740993, which it cannot hold exactly");
  EXPECT_EQ(read({0xce, 0x01, 0, 0, 0}, kFloat), 0x1p24F);
  EXPECT_EQ(error_of({0xce, 0x01, 0, 0, 1}, kFloat),
            "at byte 0: expected a float32, found the integer 16777217, which it cannot hold exactly");
}

TEST(Reader, ADoubleIsRoundedToAFloatInItsRange) {
  const auto body = [](double value) { return written([&](Writer& writer) { writer.float64(value); }); };
  EXPECT_EQ(read(body(0.1), kFloat), 0.1F);
  EXPECT_EQ(read(body(INFINITY), kFloat), INFINITY);
  EXPECT_TRUE(std::isnan(read(body(NAN), kFloat)));
  EXPECT_NE(error_of(body(1e300), kFloat), "");
  EXPECT_NE(error_of(body(-1e39), kFloat), "");
}

TEST(Reader, ErrorsSayWhereWhatAndWhat) {
  EXPECT_EQ(error_of({0xa1, 'x'}, kInteger), "at byte 0: expected an integer, found a string");
  EXPECT_EQ(error_of({}, kInteger), "at byte 0: expected an integer, found the end");
  EXPECT_EQ(error_of({0xc1}, kDouble),
            "at byte 0: expected a float64, found the byte 0xc1, which no value begins with");
  EXPECT_EQ(error_of({0x01, 0x02, 0xc0},
                     [](Reader& reader) {
                       reader.integer();
                       reader.integer();
                       reader.string();
                     }),
            "at byte 2: expected a string, found nil");
  EXPECT_EQ(error_of({0xd9, 0x20, 'a'}, [](Reader& reader) { reader.string(); }),
            "at byte 0: expected a string, which needs 32 bytes more, found 1");
  EXPECT_EQ(error_of({0xa5, 'a'}, [](Reader& reader) { reader.string(); }),
            "at byte 0: expected a string, which needs 5 bytes more, found 1");
  EXPECT_EQ(error_of({0xd5, 3, 1, 2}, [](Reader& reader) { reader.extension(4); }),
            "at byte 0: expected an extension of type 4, found one of type 3");
}

TEST(Reader, EveryKindRefusesEveryOther) {
  const std::vector<Bytes> values = {{0xc0},       {0xc3}, {0x01}, {0xca, 0, 0, 0, 0}, {0xa1, 'x'},
                                     {0xc4, 1, 9}, {0x90}, {0x80}, {0xd4, 1, 2}};
  for (size_t i = 0; i < values.size(); ++i) {
    const auto accepted = [&](auto one) { return error_of(values[i], one).empty(); };
    EXPECT_EQ(accepted([](Reader& reader) { reader.nil(); }), i == 0) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.boolean(); }), i == 1) << i;
    EXPECT_EQ(accepted(kInteger), i == 2) << i;
    EXPECT_EQ(accepted(kUnsigned), i == 2) << i;
    EXPECT_EQ(accepted(kFloat), i == 2 || i == 3) << i;
    EXPECT_EQ(accepted(kDouble), i == 2 || i == 3) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.string(); }), i == 4) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.binary(); }), i == 5) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.array_header(); }), i == 6) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.map_header(); }), i == 7) << i;
    EXPECT_EQ(accepted([](Reader& reader) { reader.extension(1); }), i == 8) << i;
    EXPECT_TRUE(accepted([](Reader& reader) { reader.skip(); })) << i;
  }
}

TEST(Reader, TheFirstErrorSticksAndNothingMoreIsRead) {
  const Bytes body = {0xc0, 0x01, 0xa1, 'x', 0x91, 0x01};
  Reader reader{ByteView(body)};
  reader.integer();
  const std::string first = reader.error();
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
  EXPECT_FALSE(reader.try_nil());
  EXPECT_FALSE(reader.boolean());
  EXPECT_EQ(reader.integer(), 0);
  EXPECT_EQ(reader.unsigned_integer(), 0U);
  EXPECT_EQ(reader.float32(), 0);
  EXPECT_EQ(reader.float64(), 0);
  EXPECT_EQ(reader.string(), "");
  EXPECT_TRUE(reader.binary().empty());
  EXPECT_TRUE(reader.extension(1).empty());
  EXPECT_EQ(reader.array_header(), 0U);
  EXPECT_FALSE(reader.array_header_of(0, "a test"));
  EXPECT_EQ(reader.map_header(), 0U);
  EXPECT_EQ(reader.attachment(0), nullptr);
  EXPECT_EQ(reader.peek(), Type::end);
  reader.skip();
  reader.finish();
  reader.fail("another");
  EXPECT_EQ(reader.error(), first);
}

TEST(Reader, AHeaderMayNotPromiseMoreThanThereIs) {
  const auto array = [](Reader& reader) { EXPECT_EQ(reader.array_header(), 0U); };
  const auto map = [](Reader& reader) { EXPECT_EQ(reader.map_header(), 0U); };
  EXPECT_EQ(error_of({0xdd, 0xff, 0xff, 0xff, 0xff, 1, 2}, array),
            "at byte 0: expected an array of 4294967295, which needs 4294967295 bytes more, found 2");
  EXPECT_EQ(error_of({0xdf, 0xff, 0xff, 0xff, 0xff, 1, 2}, map),
            "at byte 0: expected a map of 4294967295, which needs 8589934590 bytes more, found 2");
  EXPECT_NE(error_of({0x93, 1, 2}, array), "");
  EXPECT_NE(error_of({0x82, 1, 2, 3}, map), "");
  EXPECT_EQ(error_of({0x92, 1, 2}, [](Reader& reader) { EXPECT_EQ(reader.array_header(), 2U); }), "");
  EXPECT_EQ(error_of({0x81, 1, 2}, [](Reader& reader) { EXPECT_EQ(reader.map_header(), 1U); }), "");
}

TEST(Reader, PeekKnowsEveryFirstByte) {
  const auto peek = [](uint8_t byte) { return Reader(ByteView(&byte, 1)).peek(); };
  EXPECT_EQ(Reader(ByteView()).peek(), Type::end);
  EXPECT_EQ(peek(0x00), Type::integer);
  EXPECT_EQ(peek(0x7f), Type::integer);
  EXPECT_EQ(peek(0x80), Type::map);
  EXPECT_EQ(peek(0x8f), Type::map);
  EXPECT_EQ(peek(0x90), Type::array);
  EXPECT_EQ(peek(0x9f), Type::array);
  EXPECT_EQ(peek(0xa0), Type::string);
  EXPECT_EQ(peek(0xbf), Type::string);
  EXPECT_EQ(peek(0xc0), Type::nil);
  EXPECT_EQ(peek(0xc1), Type::invalid);
  for (const int byte : {0xc2, 0xc3}) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::boolean);
  for (int byte = 0xc4; byte <= 0xc6; ++byte) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::binary);
  for (int byte = 0xc7; byte <= 0xc9; ++byte) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::extension);
  for (const int byte : {0xca, 0xcb}) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::floating);
  for (int byte = 0xcc; byte <= 0xd3; ++byte) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::integer);
  for (int byte = 0xd4; byte <= 0xd8; ++byte) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::extension);
  for (int byte = 0xd9; byte <= 0xdb; ++byte) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::string);
  for (const int byte : {0xdc, 0xdd}) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::array);
  for (const int byte : {0xde, 0xdf}) EXPECT_EQ(peek(static_cast<uint8_t>(byte)), Type::map);
  EXPECT_EQ(peek(0xe0), Type::integer);
  EXPECT_EQ(peek(0xff), Type::integer);
}

TEST(Reader, ExtensionsOfEveryLength) {
  for (const size_t length : {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 255, 256, 65535, 65536}) {
    const Bytes content(length, 0x42);
    const Bytes body = written([&](Writer& writer) { writer.extension(-7, content); });
    Reader reader{ByteView(body)};
    EXPECT_TRUE(reader.next_is_extension(-7));
    EXPECT_FALSE(reader.next_is_extension(7));
    const ByteView found = reader.extension(-7);
    reader.finish();
    EXPECT_TRUE(reader.ok()) << reader.error();
    EXPECT_EQ(Bytes(found.begin(), found.end()), content) << length;
  }
  const Bytes cut = {0xc8, 0x00};  // the type is not there
  EXPECT_FALSE(Reader(ByteView(cut)).next_is_extension(0));
}

TEST(Reader, SkipPassesExactlyOneValue) {
  const Bytes body = written([](Writer& writer) {
    writer.array_header(3);
    writer.map_header(1);
    writer.string("key");
    writer.array_header(2);
    writer.float32(1);
    writer.extension(1, Bytes(300));
    writer.binary(Bytes(70'000));
    writer.unsigned_integer(UINT64_MAX);
    writer.integer(-7);
  });
  Reader reader{ByteView(body)};
  reader.skip();
  EXPECT_EQ(reader.integer(), -7);
  reader.finish();
  EXPECT_TRUE(reader.ok()) << reader.error();
}

TEST(Reader, SkipTakesAnyDepth) {
  Bytes body(1'000'000, 0x91);
  body.push_back(0xc0);
  EXPECT_EQ(error_of(body,
                     [](Reader& reader) {
                       reader.skip();
                       EXPECT_EQ(reader.remaining(), 0U);
                     }),
            "");
  body.pop_back();
  EXPECT_NE(error_of(body, [](Reader& reader) { reader.skip(); }), "");
}

TEST(Reader, FinishWantsTheEnd) {
  EXPECT_EQ(error_of({0x01, 0x02, 0x03},
                     [](Reader& reader) {
                       reader.integer();
                       reader.finish();
                     }),
            "at byte 1: expected the end, found 2 bytes more");
}

TEST(Reader, AttachmentsByIndex) {
  const uint8_t byte = 9;
  const std::vector<Attachment> attachments = {{.owner = nullptr, .data = &byte, .bytes = 1}};
  Reader reader(ByteView(), attachments);
  EXPECT_EQ(reader.attachment_count(), 1U);
  ASSERT_NE(reader.attachment(0), nullptr);
  EXPECT_EQ(reader.attachment(0)->data, &byte);
  EXPECT_EQ(reader.attachment(1), nullptr);
  EXPECT_EQ(reader.error(), "at byte 0: attachment 1 does not exist: the message has 1");
}

TEST(Reader, DepthIsBounded) {
  Reader reader{ByteView()};
  for (size_t i = 0; i < kDepthMax; ++i) reader.enter();
  EXPECT_TRUE(reader.ok());
  reader.leave();
  reader.enter();
  EXPECT_TRUE(reader.ok());
  reader.enter();
  EXPECT_EQ(reader.error(), "at byte 0: the value nests deeper than 64 levels");
}

TEST(Reader, HandsTheContextThrough) {
  struct Peer : WireContext {
  } peer;
  EXPECT_EQ(Reader(ByteView(), {}, &peer).context(), &peer);
}

}  // namespace
}  // namespace holdfast::wire
