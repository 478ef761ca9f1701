// Decoding bytes that nobody in their right mind would send. Run under AddressSanitizer and
// UndefinedBehaviorSanitizer, where a read beyond the end or an overflow ends the test.
#include <gtest/gtest.h>

#include <memory>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/wire/wire_test_support.h>

namespace holdfast::wire {
namespace {

// Counts what containers take, to see that no header makes a decoder allocate what was never sent.
struct Allocated {
  size_t now = 0;
  size_t peak = 0;
};
thread_local Allocated allocated;

template <class T>
struct CountingAllocator {
  using value_type = T;
  CountingAllocator() = default;
  template <class U>
  CountingAllocator(const CountingAllocator<U>&) {}
  T* allocate(size_t count) {
    allocated.now += count * sizeof(T);
    allocated.peak = std::max(allocated.peak, allocated.now);
    return std::allocator<T>().allocate(count);
  }
  void deallocate(T* at, size_t count) {
    allocated.now -= count * sizeof(T);
    std::allocator<T>().deallocate(at, count);
  }
  friend bool operator==(const CountingAllocator&, const CountingAllocator&) { return true; }
};

template <class T>
using Vector = std::vector<T, CountingAllocator<T>>;
template <class K, class V>
using Map = std::map<K, V, std::less<K>, CountingAllocator<std::pair<const K, V>>>;

struct Tree {
  int64_t value = 0;
  std::string name;
  Vector<Tree> children;
  HOLDFAST_FIELDS(Tree, value, name, children)
  friend bool operator==(const Tree&, const Tree&) = default;
};

struct Json {
  std::variant<std::monostate, bool, int64_t, double, std::string, Vector<Json>, Map<std::string, Json>> value;
  HOLDFAST_FIELDS(Json, value)
};

enum class Mode : uint8_t { a, b };

struct Everything {
  bool flag = true;
  int8_t small = -100;
  uint64_t big = UINT64_MAX;
  float f = 0.5F;
  double d = 0.1;
  char c = 'c';
  Mode mode = Mode::b;
  std::string text = "some text that is longer than thirty-two bytes";
  Bytes bytes = {1, 2, 3};
  std::optional<int> none;
  std::optional<std::string> some = "some";
  std::variant<int, std::string> either = "or";
  std::pair<int, bool> pair = {70000, true};
  std::tuple<int, double, std::string> tuple = {-5, 1.5, "t"};
  std::array<int16_t, 3> array = {-300, 0, 300};
  Vector<int> numbers = {1, 1000, -1000, 100000, -100000};
  std::vector<bool> flags = {true, false};
  std::deque<std::string> names = {"a", "b"};
  std::list<double> list = {1, 2};
  std::set<int> set = {1, 2, 3};
  std::unordered_set<std::string> hashed = {"x"};
  Map<std::string, Vector<int>> map = {{"k", {1, 2}}, {"l", {}}};
  std::unordered_map<int, int> table = {{1, 2}};
  std::chrono::milliseconds wait{1500};
  Tree tree = {1, "root", {{2, "leaf", {}}}};
  HOLDFAST_FIELDS(Everything, flag, small, big, f, d, c, mode, text, bytes, none, some, either, pair, tuple, array,
                  numbers, flags, names, list, set, hashed, map, table, wait, tree)
  friend bool operator==(const Everything&, const Everything&) = default;
};

// Decodes from memory of exactly that size. Whatever comes out, if it is accepted, must encode and decode to
// itself again.
template <class T>
bool survives(ByteView bytes) {
  const std::unique_ptr<uint8_t[]> copy(new uint8_t[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), copy.get());
  Reader reader(ByteView(copy.get(), bytes.size()));
  T value{};
  decode(reader, value);
  reader.finish();
  EXPECT_EQ(reader.ok(), reader.error().empty());
  if (!reader.ok()) return false;
  // By bytes, for a NaN is not equal to itself.
  const Bytes again = encoded(value);
  EXPECT_EQ(hex(again), hex(encoded(decoded<T>(again).take())));
  return true;
}

TEST(HostileBytes, CutAnywhereFails) {
  const Bytes whole = encoded(Everything());
  ASSERT_TRUE(survives<Everything>(whole));
  ASSERT_EQ(decoded<Everything>(whole).take(), Everything());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(survives<Everything>(ByteView(whole).first(length))) << length;
  }
}

TEST(HostileBytes, EveryByteChangedToEveryOtherNeverCrashes) {
  const Bytes whole = encoded(Everything());
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    // Under a sanitizer every third, of each position others.
    const int step = test::kSanitizer ? 3 : 1;
    for (int byte = static_cast<int>(at) % step; byte < 256; byte += step) {
      Bytes changed = whole;
      changed[at] = static_cast<uint8_t>(byte);
      if (!survives<Everything>(changed)) ++refused;
    }
  }
  EXPECT_GT(refused, whole.size());
}

// Makes values more likely than uniform bytes would: short headers, small numbers, nil.
Bytes random_packed(Random& random, size_t length) {
  Bytes bytes(length);
  for (uint8_t& byte : bytes) {
    switch (random.below(8)) {
      case 0: byte = static_cast<uint8_t>(0x90 | random.below(5)); break;
      case 1: byte = static_cast<uint8_t>(0x80 | random.below(3)); break;
      case 2: byte = static_cast<uint8_t>(0xa0 | random.below(4)); break;
      case 3: byte = static_cast<uint8_t>(0xc0 | random.below(32)); break;
      case 4:
      case 5: byte = static_cast<uint8_t>(random.below(8)); break;
      case 6: byte = 0; break;
      default: byte = static_cast<uint8_t>(random.next()); break;
    }
  }
  return bytes;
}

Json random_json(Random& random, int depth) {
  Json json;
  switch (random.below(depth > 0 ? 7 : 5)) {
    case 0: break;
    case 1: json.value = random.chance(0.5); break;
    case 2: json.value = static_cast<int64_t>(random_magnitude(random)); break;
    case 3: json.value = static_cast<double>(random_magnitude(random)) / 3; break;
    case 4: json.value = random_text(random, random.below(40)); break;
    case 5: {
      auto& list = json.value.emplace<Vector<Json>>();
      for (uint64_t i = random.below(5); i > 0; --i) list.push_back(random_json(random, depth - 1));
      break;
    }
    default: {
      auto& map = json.value.emplace<Map<std::string, Json>>();
      for (uint64_t i = random.below(5); i > 0; --i) map[random_text(random, 3)] = random_json(random, depth - 1);
    }
  }
  return json;
}

// Bytes in containers may be at most this many times the bytes received: an element takes at least one byte
// on the wire and sizeof(T) here, at each of a few nested containers that all claim the same bytes.
constexpr size_t kAllocatedPerByteMax = kDepthMax * sizeof(Json);

constexpr int kTries = test::kThreadSanitizer ? 20'000 : 50'000;

template <class T>
size_t accepted_of_random(uint64_t seed, int count) {
  Random random(seed);
  size_t accepted = 0;
  for (int i = 0; i < count; ++i) {
    const size_t length = random.below(64);
    const Bytes bytes = i % 4 == 0 ? random_bytes(random, length) : random_packed(random, length);
    allocated = {};
    if (survives<T>(bytes)) ++accepted;
    EXPECT_EQ(allocated.now, 0U);
    EXPECT_LE(allocated.peak, kAllocatedPerByteMax * (length + 1));
  }
  return accepted;
}

TEST(HostileBytes, RandomBytesNeverCrash) {
  EXPECT_GT((accepted_of_random<Map<int64_t, Vector<std::string>>>(1, kTries)), 0U);
  EXPECT_GT((accepted_of_random<Vector<std::optional<std::pair<double, bool>>>>(2, kTries)), 0U);
  accepted_of_random<Tree>(3, kTries);
  accepted_of_random<Json>(4, kTries);
  accepted_of_random<Everything>(5, kTries / 10);
}

TEST(HostileBytes, ChangedValuesNeverCrash) {
  Random random(6);
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < kTries; ++i) {
    Bytes bytes = encoded(random_json(random, 5));
    for (uint64_t changes = random.below(4); changes > 0; --changes) {
      bytes[random.below(bytes.size())] = random_packed(random, 1)[0];
    }
    if (random.chance(0.1)) bytes.resize(random.below(bytes.size() + 1));
    ++(survives<Json>(bytes) ? accepted : refused);
  }
  EXPECT_GT(accepted, kTries / 50);
  EXPECT_GT(refused, kTries / 50);
}

TEST(HostileBytes, RandomBytesAreSkippedOrRefused) {
  Random random(7);
  int skipped = 0;
  for (int i = 0; i < 2 * kTries; ++i) {
    const Bytes bytes = random_packed(random, random.below(40));
    Reader reader{ByteView(bytes)};
    reader.skip();
    if (reader.ok()) {
      ++skipped;
      EXPECT_LT(reader.remaining(), bytes.size());
    }
  }
  EXPECT_GT(skipped, kTries / 50);
}

TEST(HostileBytes, ABombOfNestingFailsByDepth) {
  // Tree in Tree in Tree, never closed.
  Bytes bomb;
  for (int i = 0; i < 100'000; ++i) bomb.append(Bytes{0x93, 0x01, 0xa0, 0x91});
  EXPECT_NE(decode_error<Tree>(bomb).find("nests deeper than 64 levels"), std::string::npos);
  Bytes variants;
  for (int i = 0; i < 100'000; ++i) variants.append(Bytes{0x91, 0x92, 0x05, 0x91});
  EXPECT_NE(decode_error<Json>(variants).find("nests deeper than 64 levels"), std::string::npos);
}

TEST(HostileBytes, AHugeHeaderFailsAtOnce) {
  allocated = {};
  EXPECT_EQ(decode_error<Vector<Tree>>({0xdd, 0xff, 0xff, 0xff, 0xff}),
            "at byte 0: expected an array of 4294967295, which needs 4294967295 bytes more, found 0");
  EXPECT_NE((decode_error<Map<int, int>>({0xdf, 0x7f, 0xff, 0xff, 0xff})), "");
  EXPECT_NE(decode_error<std::string>({0xdb, 0xff, 0xff, 0xff, 0xff}), "");
  EXPECT_NE(decode_error<Bytes>({0xc6, 0xff, 0xff, 0xff, 0xff}), "");
  EXPECT_EQ(allocated.peak, 0U);
}

TEST(HostileBytes, ALongArrayOfNonsenseTakesLittleMemory) {
  // The bytes are there, as many as the header says, but the very first is no Tree.
  Bytes body(1'000'000, 0xc0);
  const uint8_t header[] = {0xdd, 0x00, 0x0f, 0x00, 0x00};
  std::copy(std::begin(header), std::end(header), body.begin());
  allocated = {};
  EXPECT_EQ(decode_error<Vector<Tree>>(body), "at byte 5: expected an array, found nil");
  EXPECT_GT(allocated.peak, 0U);
  EXPECT_LE(allocated.peak, kReserveMax * sizeof(Tree));
}

}  // namespace
}  // namespace holdfast::wire
