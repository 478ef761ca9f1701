#include <holdfast/wire/codec.h>

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <memory>

#include <holdfast/wire/wire_test_support.h>

namespace holdfast::wire {

enum class Color : uint8_t { red, green = 200 };
enum Plain : int { kPlainOne = 1 };

namespace {

using namespace std::chrono_literals;

// Decodes into an object that held something else, as a codec must be able to.
template <class T>
void round_trip(const T& value, T old = T()) {
  const Message message = encode_message({7}, value);
  EXPECT_EQ(message.kind, Kind{7});
  Reader reader(message);
  decode(reader, old);
  reader.finish();
  EXPECT_TRUE(reader.ok()) << reader.error() << " in " << hex(message.body);
  EXPECT_EQ(old, value) << type_name<T>() << ": " << hex(message.body);
}

template <class T>
void integers_round_trip() {
  using Limits = std::numeric_limits<T>;
  round_trip<T>(Limits::min());
  round_trip<T>(Limits::max());
  Random random(sizeof(T));
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<T>(random_magnitude(random));
    round_trip<T>(value);
    round_trip<T>(static_cast<T>(T{0} - value));
  }
}

TEST(Codec, Integers) {
  integers_round_trip<int8_t>();
  integers_round_trip<int16_t>();
  integers_round_trip<int32_t>();
  integers_round_trip<int64_t>();
  integers_round_trip<uint8_t>();
  integers_round_trip<uint16_t>();
  integers_round_trip<uint32_t>();
  integers_round_trip<uint64_t>();
  integers_round_trip<long long>();
  integers_round_trip<unsigned long long>();
  for (int c = 0; c < 256; ++c) round_trip(static_cast<char>(c));
  EXPECT_EQ(hex(encoded(static_cast<char>(0xff))), "cc ff");
}

TEST(Codec, IntegersOutOfRangeAreNamed) {
  EXPECT_EQ(decode_error<int8_t>(encoded(300)), "at byte 0: expected an i8, found 300, which is out of its range");
  EXPECT_EQ(decode_error<int8_t>(encoded(-129)), "at byte 0: expected an i8, found -129, which is out of its range");
  EXPECT_EQ(decode_error<uint16_t>(encoded(65536)),
            "at byte 0: expected an u16, found 65536, which is out of its range");
  EXPECT_EQ(decode_error<uint8_t>(encoded(-1)), "at byte 0: expected an unsigned integer, found -1");
  EXPECT_NE(decode_error<int64_t>(encoded(UINT64_MAX)), "");
  EXPECT_NE(decode_error<char>(encoded(256)), "");
}

TEST(Codec, FloatsKeepEveryBit) {
  for (const double value : {0.0, -0.0, 1.0, DBL_MAX, DBL_MIN, 4.9e-324, double{INFINITY}, -double{INFINITY}, 0.1}) {
    const double back = decoded<double>(encoded(value)).take();
    EXPECT_EQ(std::bit_cast<uint64_t>(back), std::bit_cast<uint64_t>(value));
  }
  for (const float value : {0.0F, -0.0F, 1.0F, FLT_MAX, FLT_MIN, 1e-45F, INFINITY, -INFINITY, 0.1F}) {
    const float back = decoded<float>(encoded(value)).take();
    EXPECT_EQ(std::bit_cast<uint32_t>(back), std::bit_cast<uint32_t>(value));
  }
  EXPECT_TRUE(std::isnan(decoded<double>(encoded(double{NAN})).take()));
  EXPECT_TRUE(std::isnan(decoded<float>(encoded(NAN)).take()));
}

TEST(Codec, BoolsStringsBytes) {
  round_trip(true);
  round_trip(false, true);
  for (const size_t length : {0, 1, 31, 32, 255, 256, 65535, 65536, 200000}) {
    round_trip(std::string(length, 'x'), std::string("old"));
    round_trip(Bytes(length, 0xfe), Bytes({1, 2}));
  }
  round_trip(std::string("a\0b", 3));
  EXPECT_EQ(hex(encoded(Bytes({1, 2}))), "c4 02 01 02");
  EXPECT_EQ(hex(encoded(std::vector<uint8_t>({1, 2}))), "92 01 02");
}

TEST(Codec, Enums) {
  round_trip(Color::green);
  round_trip(kPlainOne);
  EXPECT_EQ(hex(encoded(Color::green)), "cc c8");
  EXPECT_EQ(decoded<Color>(encoded(77)).take(), static_cast<Color>(77));
  EXPECT_NE(decode_error<Color>(encoded(256)), "");
  EXPECT_EQ(decoded<std::byte>(encoded(std::byte{9})).take(), std::byte{9});
}

TEST(Codec, Durations) {
  round_trip(std::chrono::nanoseconds(-5));
  round_trip(std::chrono::milliseconds(1500));
  round_trip(std::chrono::hours(3));
  round_trip(std::chrono::duration<double>(0.25));
  round_trip(std::chrono::duration<int8_t>(-128));
  EXPECT_EQ(hex(encoded(std::chrono::microseconds(1))), "cd 03 e8");
  EXPECT_EQ(decoded<std::chrono::nanoseconds>(encoded(2s)).take(), 2s);
}

TEST(Codec, DurationsThatDoNotFit) {
  // "For ever" stays for ever, in any unit.
  round_trip(std::chrono::hours::max());
  round_trip(std::chrono::hours::min());
  round_trip(std::chrono::seconds::max());
  EXPECT_EQ(decoded<std::chrono::nanoseconds>(encoded(std::chrono::hours::max())).take(),
            std::chrono::nanoseconds::max());
  EXPECT_EQ(decoded<std::chrono::duration<double>>(encoded(std::chrono::duration<double>(INFINITY))).take(),
            std::chrono::duration<double>::max());
  EXPECT_NE(decode_error<std::chrono::seconds>(encoded(1500ms)), "");
  EXPECT_NE(decode_error<std::chrono::duration<int8_t>>(encoded(128s)), "");
}

TEST(Codec, OptionalsAndVariants) {
  round_trip(std::optional<int>(), std::optional<int>(4));
  round_trip(std::optional<int>(5));
  EXPECT_EQ(hex(encoded(std::optional<int>())), "c0");
  EXPECT_EQ(hex(encoded(std::optional<int>(5))), "05");
  using Variant = std::variant<std::monostate, int, std::string, std::vector<int>>;
  round_trip(Variant(), Variant(3));
  round_trip(Variant(5));
  round_trip(Variant("text"), Variant(3));
  round_trip(Variant(std::vector{1, 2}));
  round_trip(std::variant<int, int>(std::in_place_index<1>, 4));
  EXPECT_EQ(hex(encoded(Variant(5))), "92 01 05");
  EXPECT_EQ(decode_error<Variant>({0x92, 0x04, 0x05}), "at byte 1: expected the index of a variant of 4, found 4");
  EXPECT_EQ(decode_error<Variant>({0x93, 0x01, 0x05, 0x05}),
            "at byte 0: expected an array of 2 for a variant, found 3");
}

TEST(Codec, AVariantWithoutAValueCannotBeSent) {
  struct Thrower {
    Thrower() = default;
    explicit Thrower(int) { throw 1; }
    std::string text;
    HOLDFAST_FIELDS(Thrower, text)
  };
  std::variant<Thrower, std::string> variant("text");
  EXPECT_THROW(variant.emplace<0>(1), int);
  ASSERT_TRUE(variant.valueless_by_exception());
  EXPECT_THROW(encoded(variant), InvalidArgument);
}

TEST(Codec, TuplesPairsArrays) {
  round_trip(std::tuple<>());
  round_trip(std::tuple(1, std::string("two"), 3.0));
  round_trip(std::pair(std::string("a"), 2));
  round_trip(std::array<int, 3>{1, 2, 3});
  round_trip(std::array<std::string, 0>());
  using Pair = std::pair<int, int>;
  using Array = std::array<int, 3>;
  EXPECT_EQ(decode_error<Pair>({0x91, 1}), "at byte 0: expected an array of 2 for a pair, found 1");
  EXPECT_EQ(decode_error<Array>({0x92, 1, 2}),
            "at byte 0: expected an array of 3 for an array of fixed length, found 2");
  EXPECT_NE(decode_error<std::tuple<int>>({0x90}), "");
}

TEST(Codec, TuplesOfReferencesWriteWithoutCopying) {
  int number = 4;
  const std::string text = "four";
  EXPECT_EQ(encoded(std::tie(number, text)), encoded(std::tuple(4, text)));
  EXPECT_EQ((type_name<std::tuple<int&, const std::string&>>()), "tuple<i32,str>");
}

TEST(Codec, Sequences) {
  round_trip(std::vector<int>(), std::vector<int>{1});
  round_trip(std::vector<int>{1, -2, 300000}, std::vector<int>{9, 9, 9, 9});
  round_trip(std::vector<bool>{true, false, true});
  round_trip(std::vector<bool>(70000, true));
  round_trip(std::vector<double>(10000, 0.5));
  round_trip(std::vector<char>{'a', '\xff'});
  round_trip(std::vector<std::vector<std::string>>{{"a"}, {}, {"b", "c"}});
  round_trip(std::deque<std::string>{"a", "b"}, std::deque<std::string>{"z"});
  round_trip(std::list<int64_t>{1, INT64_MIN}, std::list<int64_t>{7});
}

TEST(Codec, SetsAndMaps) {
  round_trip(std::set<int>{3, 1, 2}, std::set<int>{9});
  round_trip(std::unordered_set<std::string>{"a", "b"});
  round_trip(std::map<std::string, int>{{"a", 1}, {"b", 2}}, std::map<std::string, int>{{"z", 9}});
  round_trip(std::map<std::pair<int, int>, std::vector<bool>>{{{1, 2}, {true}}});
  round_trip(std::unordered_map<int, std::map<int, int>>{{1, {{2, 3}}}, {4, {}}});
  EXPECT_EQ(hex(encoded(std::map<int, bool>{{1, true}, {2, false}})), "82 01 c3 02 c2");
}

TEST(Codec, TheSameKeyTwiceFails) {
  EXPECT_EQ((decode_error<std::map<int, int>>({0x82, 1, 5, 1, 6})), "at byte 3: the same key is in a map twice");
  EXPECT_EQ((decode_error<std::unordered_map<int, int>>({0x82, 1, 5, 1, 6})),
            "at byte 3: the same key is in a map twice");
  EXPECT_EQ(decode_error<std::set<int>>({0x92, 1, 1}), "at byte 2: the same element is in a set twice");
  EXPECT_EQ(decode_error<std::unordered_set<int>>({0x92, 1, 1}), "at byte 2: the same element is in a set twice");
}

TEST(Codec, MoreBytesThanTheValueFail) {
  EXPECT_EQ(decode_error<int>({0x01, 0x02}), "at byte 1: expected the end, found 1 bytes more");
  const Result<int> result = decoded<int>({0x01, 0x02});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.failure().code, Code::corrupt);
}

template <class T>
struct Holder {
  enum class Inner : int16_t { one };
};

TEST(TypeName, OfEveryKind) {
  EXPECT_EQ(type_name<bool>(), "bool");
  EXPECT_EQ(type_name<char>(), "char");
  EXPECT_EQ((type_names<int8_t, int16_t, int32_t, int64_t>()), "i8,i16,i32,i64");
  EXPECT_EQ((type_names<uint8_t, uint16_t, uint32_t, uint64_t>()), "u8,u16,u32,u64");
  EXPECT_EQ((type_names<long, long long, unsigned long long>()), "i64,i64,u64");
  EXPECT_EQ((type_names<float, double, std::string, Bytes, std::monostate>()), "f32,f64,str,bytes,nil");
  EXPECT_EQ((type_names<std::chrono::seconds, std::chrono::duration<double>>()), "duration,duration");
  EXPECT_EQ((type_names<Color, Plain>()), "enum Color:u8,enum Plain:i32");
  EXPECT_EQ(type_name<Holder<std::vector<int>>::Inner>(), "enum Inner:i16");
  EXPECT_EQ(type_name<std::optional<int>>(), "optional<i32>");
  EXPECT_EQ((type_name<std::variant<int, std::string>>()), "variant<i32,str>");
  EXPECT_EQ((type_name<std::tuple<int, bool>>()), "tuple<i32,bool>");
  EXPECT_EQ(type_name<std::tuple<>>(), "tuple<>");
  EXPECT_EQ((type_name<std::pair<int, bool>>()), "tuple<i32,bool>");
  EXPECT_EQ((type_name<std::array<float, 3>>()), "array<f32,3>");
  EXPECT_EQ((type_names<std::vector<bool>, std::deque<int>, std::list<int>>()), "list<bool>,list<i32>,list<i32>");
  EXPECT_EQ((type_names<std::set<int>, std::unordered_set<int>>()), "set<i32>,set<i32>");
  EXPECT_EQ((type_name<std::map<std::string, std::vector<int>>>()), "map<str,list<i32>>");
  EXPECT_EQ((type_name<std::unordered_map<int, bool>>()), "map<i32,bool>");
  EXPECT_EQ(type_name<const std::string&>(), "str");
}

TEST(TypeName, EnumsWithoutAName) {
  enum : int { kUnnamed };
  EXPECT_EQ(type_name<decltype(kUnnamed)>(), "enum :i32");
}

struct NoFields {
  int x = 0;
};

// What cannot be sent is told before any function of it is compiled.
static_assert(Encodable<int> && Encodable<std::vector<std::map<std::string, std::optional<double>>>>);
static_assert(!Encodable<NoFields>);
static_assert(!Encodable<std::vector<NoFields>>);
static_assert(!Encodable<std::map<std::string, NoFields>>);
static_assert(!Encodable<std::variant<int, NoFields>>);
static_assert(!Encodable<std::tuple<int, NoFields>>);
static_assert(!Encodable<std::optional<NoFields>>);
static_assert(!Encodable<int*> && !Encodable<const char*> && !Encodable<std::unique_ptr<int>>);
static_assert(!Encodable<std::string_view> && !Encodable<long double> && !Encodable<wchar_t>);

}  // namespace
}  // namespace holdfast::wire
