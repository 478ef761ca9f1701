// Our MessagePack against msgpack-cxx, in both directions, over random values.
#define MSGPACK_NO_BOOST
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <msgpack.hpp>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/wire/wire_test_support.h>

namespace holdfast::wire {
namespace {

// Any MessagePack value. Floats are kept as bits, for a NaN is not equal to itself.
struct Value {
  enum class Kind { nil, boolean, positive, negative, float32, float64, string, binary, array, map, extension };
  Kind kind = Kind::nil;
  uint64_t bits = 0;  // bool, integer, float; the type of an extension
  std::string bytes;
  std::vector<Value> items;  // a map: key, value, key, value
  friend bool operator==(const Value&, const Value&) = default;
};

Value random_value(Random& random, int depth) {
  using Kind = Value::Kind;
  Value value{.kind = static_cast<Kind>(random.below(11))};
  // Mostly short, sometimes over the edge of the next longer header.
  const auto length = [&] { return random.below(random.chance(0.05) ? 300 : (random.chance(0.01) ? 70000 : 20)); };
  switch (value.kind) {
    case Kind::nil: break;
    case Kind::boolean: value.bits = random.below(2); break;
    case Kind::positive: value.bits = random_magnitude(random); break;
    case Kind::negative: value.bits = ~(random_magnitude(random) >> 1); break;
    case Kind::float32: value.bits = random.next() >> 32; break;
    case Kind::float64: value.bits = random.next(); break;
    case Kind::extension:
      value.bits = random.below(256);
      value.bytes = random_text(random, random.chance(0.5) ? uint64_t{1} << random.below(6) : length());
      break;
    case Kind::string:
    case Kind::binary: value.bytes = random_text(random, length()); break;
    case Kind::array:
    case Kind::map: {
      uint64_t count = depth > 0 ? random.below(6) : 0;
      if (random.chance(0.03)) count = random.below(40);
      if (value.kind == Kind::map) count *= 2;
      for (uint64_t i = 0; i < count; ++i) value.items.push_back(random_value(random, depth - 1));
    }
  }
  return value;
}

ByteView view(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

double as_double(const Value& value) {
  if (value.kind == Value::Kind::float32) return std::bit_cast<float>(static_cast<uint32_t>(value.bits));
  return std::bit_cast<double>(value.bits);
}
bool same_number(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// msgpack-cxx packs a float that is a whole number as an integer, which is legal, and so not as we do.
bool has_whole_float(const Value& value) {
  const bool is_float = value.kind == Value::Kind::float32 || value.kind == Value::Kind::float64;
  if (is_float && std::trunc(as_double(value)) == as_double(value)) return true;
  return std::any_of(value.items.begin(), value.items.end(), has_whole_float);
}

void write(Writer& writer, const Value& value) {
  using Kind = Value::Kind;
  switch (value.kind) {
    case Kind::nil: writer.nil(); break;
    case Kind::boolean: writer.boolean(value.bits != 0); break;
    case Kind::positive: writer.unsigned_integer(value.bits); break;
    case Kind::negative: writer.integer(static_cast<int64_t>(value.bits)); break;
    case Kind::float32: writer.float32(std::bit_cast<float>(static_cast<uint32_t>(value.bits))); break;
    case Kind::float64: writer.float64(std::bit_cast<double>(value.bits)); break;
    case Kind::string: writer.string(value.bytes); break;
    case Kind::binary: writer.binary(view(value.bytes)); break;
    case Kind::extension: writer.extension(static_cast<int8_t>(value.bits), view(value.bytes)); break;
    case Kind::array: writer.array_header(value.items.size()); break;
    case Kind::map: writer.map_header(value.items.size() / 2); break;
  }
  for (const Value& item : value.items) write(writer, item);
}

// Reads what should be `expected`.
void read(Reader& reader, const Value& expected) {
  using Kind = Value::Kind;
  const auto same_bytes = [&](ByteView found) { EXPECT_EQ(hex(found), hex(view(expected.bytes))); };
  switch (expected.kind) {
    case Kind::nil: EXPECT_TRUE(reader.try_nil()); break;
    case Kind::boolean: EXPECT_EQ(reader.boolean(), expected.bits != 0); break;
    case Kind::positive: EXPECT_EQ(reader.unsigned_integer(), expected.bits); break;
    case Kind::negative: EXPECT_EQ(reader.integer(), static_cast<int64_t>(expected.bits)); break;
    case Kind::float32: EXPECT_TRUE(same_number(reader.float32(), as_double(expected))); break;
    case Kind::float64: EXPECT_TRUE(same_number(reader.float64(), as_double(expected))); break;
    case Kind::string: EXPECT_EQ(reader.string(), expected.bytes); break;
    case Kind::binary: same_bytes(reader.binary()); break;
    case Kind::extension: same_bytes(reader.extension(static_cast<int8_t>(expected.bits))); break;
    case Kind::array: EXPECT_EQ(reader.array_header(), expected.items.size()); break;
    case Kind::map: EXPECT_EQ(reader.map_header(), expected.items.size() / 2); break;
  }
  for (const Value& item : expected.items) {
    if (reader.ok()) read(reader, item);
  }
}

using Packer = msgpack::packer<msgpack::sbuffer>;

void pack(Packer& packer, const Value& value) {
  using Kind = Value::Kind;
  const auto length = static_cast<uint32_t>(value.bytes.size());
  switch (value.kind) {
    case Kind::nil: packer.pack_nil(); break;
    case Kind::boolean: value.bits != 0 ? packer.pack_true() : packer.pack_false(); break;
    case Kind::positive: packer.pack_uint64(value.bits); break;
    case Kind::negative: packer.pack_int64(static_cast<int64_t>(value.bits)); break;
    case Kind::float32: packer.pack_float(std::bit_cast<float>(static_cast<uint32_t>(value.bits))); break;
    case Kind::float64: packer.pack_double(std::bit_cast<double>(value.bits)); break;
    case Kind::string: packer.pack_str(length).pack_str_body(value.bytes.data(), length); break;
    case Kind::binary: packer.pack_bin(length).pack_bin_body(value.bytes.data(), length); break;
    case Kind::extension:
      packer.pack_ext(length, static_cast<int8_t>(value.bits)).pack_ext_body(value.bytes.data(), length);
      break;
    case Kind::array: packer.pack_array(static_cast<uint32_t>(value.items.size())); break;
    case Kind::map: packer.pack_map(static_cast<uint32_t>(value.items.size() / 2)); break;
  }
  for (const Value& item : value.items) pack(packer, item);
}

Value from_object(const msgpack::object& object) {
  using Kind = Value::Kind;
  Value value;
  switch (object.type) {
    case msgpack::type::NIL: break;
    case msgpack::type::BOOLEAN: value = {.kind = Kind::boolean, .bits = object.via.boolean}; break;
    case msgpack::type::POSITIVE_INTEGER: value = {.kind = Kind::positive, .bits = object.via.u64}; break;
    case msgpack::type::NEGATIVE_INTEGER:
      value = {.kind = Kind::negative, .bits = static_cast<uint64_t>(object.via.i64)};
      break;
    case msgpack::type::FLOAT32:
      value = {.kind = Kind::float32, .bits = std::bit_cast<uint32_t>(static_cast<float>(object.via.f64))};
      break;
    case msgpack::type::FLOAT64:
      value = {.kind = Kind::float64, .bits = std::bit_cast<uint64_t>(object.via.f64)};
      break;
    case msgpack::type::STR:
      value = {.kind = Kind::string, .bytes = std::string(object.via.str.ptr, object.via.str.size)};
      break;
    case msgpack::type::BIN:
      value = {.kind = Kind::binary, .bytes = std::string(object.via.bin.ptr, object.via.bin.size)};
      break;
    case msgpack::type::EXT:
      value = {.kind = Kind::extension,
               .bits = static_cast<uint8_t>(object.via.ext.type()),
               .bytes = std::string(object.via.ext.data(), object.via.ext.size)};
      break;
    case msgpack::type::ARRAY:
      value.kind = Kind::array;
      for (uint32_t i = 0; i < object.via.array.size; ++i) value.items.push_back(from_object(object.via.array.ptr[i]));
      break;
    case msgpack::type::MAP:
      value.kind = Kind::map;
      for (uint32_t i = 0; i < object.via.map.size; ++i) {
        value.items.push_back(from_object(object.via.map.ptr[i].key));
        value.items.push_back(from_object(object.via.map.ptr[i].val));
      }
  }
  return value;
}

// A float32 that is a signalling NaN becomes a quiet one where msgpack-cxx turns it into a double.
void quieten(Value& value) {
  constexpr uint64_t kQuiet = 0x400000;
  if (value.kind == Value::Kind::float32 && (value.bits & 0x7fffffff) > 0x7f800000) value.bits |= kQuiet;
  for (Value& item : value.items) quieten(item);
}

TEST(Oracle, AnyValueInBothDirections) {
  constexpr int kValues = test::kSanitizer ? 2'500 : 10'000;
  Random random(2024);
  int same_bytes = 0;
  for (int i = 0; i < kValues; ++i) {
    Value value{.kind = Value::Kind::array};
    for (uint64_t n = random.between(1, 4); n > 0; --n) value.items.push_back(random_value(random, 4));
    quieten(value);
    const Bytes ours = written([&](Writer& writer) { write(writer, value); });
    const msgpack::object_handle handle = msgpack::unpack(reinterpret_cast<const char*>(ours.data()), ours.size());
    ASSERT_EQ(from_object(handle.get()), value) << hex(ours);

    msgpack::sbuffer buffer;
    Packer packer(buffer);
    pack(packer, value);
    const ByteView theirs(reinterpret_cast<const uint8_t*>(buffer.data()), buffer.size());
    Reader reader(theirs);
    read(reader, value);
    reader.finish();
    ASSERT_TRUE(reader.ok()) << reader.error();
    ASSERT_FALSE(HasFailure()) << hex(theirs);
    Reader skipper(theirs);
    skipper.skip();
    skipper.finish();
    ASSERT_TRUE(skipper.ok()) << skipper.error();

    if (has_whole_float(value)) continue;
    // Both take the shortest form, so the bytes are the same.
    ASSERT_EQ(hex(ours), hex(theirs));
    ++same_bytes;
  }
  EXPECT_GT(same_bytes, kValues / 5);
}

struct Record {
  int64_t id = 0;
  std::string name;
  std::vector<double> weights;
  std::map<std::string, std::vector<int32_t>> table;
  std::tuple<bool, uint8_t, float> flags;
  HOLDFAST_FIELDS(Record, id, name, weights, table, flags)
  MSGPACK_DEFINE(id, name, weights, table, flags)
  friend bool operator==(const Record&, const Record&) = default;
};

// What their adaptors of the same C++ types write and read.
TEST(Oracle, TypedValuesInBothDirections) {
  Random random(7);
  for (int i = 0; i < 5'000; ++i) {
    Record record;
    record.id = static_cast<int64_t>(random_magnitude(random));
    record.name = random_text(random, random.below(50));
    for (uint64_t n = random.below(30); n > 0; --n) {
      record.weights.push_back(static_cast<double>(random.next()) / 7);
    }
    for (uint64_t n = random.below(20); n > 0; --n) {
      record.table[random_text(random, 4)] = {static_cast<int32_t>(random_magnitude(random)), -1};
    }
    record.flags = {random.chance(0.5), static_cast<uint8_t>(random.next()), 1.0F / static_cast<float>(i + 1)};

    const Bytes ours = encoded(record);
    Record theirs_from_ours;
    msgpack::unpack(reinterpret_cast<const char*>(ours.data()), ours.size()).get().convert(theirs_from_ours);
    ASSERT_EQ(theirs_from_ours, record);

    msgpack::sbuffer theirs;
    msgpack::pack(theirs, record);
    const auto* begin = reinterpret_cast<const uint8_t*>(theirs.data());
    const Result<Record> ours_from_theirs = decoded<Record>(Bytes(begin, begin + theirs.size()));
    ASSERT_TRUE(ours_from_theirs.ok()) << ours_from_theirs.failure().message;
    ASSERT_EQ(*ours_from_theirs, record);
  }
}

}  // namespace
}  // namespace holdfast::wire
