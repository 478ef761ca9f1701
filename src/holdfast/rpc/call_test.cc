// What can be called, with which arguments, and the ways to wait for the result. Every test runs twice: against
// another worker and against oneself, which must make no difference.
#include <holdfast/rpc/rpc_test_support.h>

#include <array>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <variant>

namespace holdfast::call_test {
namespace {

using namespace test;

enum class Color : int32_t { red = 0, green = 7, blue = -2 };

struct Point {
  double x = 0, y = 0;
  friend bool operator==(const Point&, const Point&) = default;
  friend auto operator<=>(const Point&, const Point&) = default;
  HOLDFAST_FIELDS(Point, x, y)
};

struct Shape {
  std::string name;
  std::vector<Point> corners;
  std::optional<Color> color;
  std::map<std::string, Point> named;
  friend bool operator==(const Shape&, const Shape&) = default;
  HOLDFAST_FIELDS(Shape, name, corners, color, named)
};

struct Account {
  int64_t balance = 0;
  int64_t after(int64_t deposit) const { return balance + deposit; }
  int64_t spend(int64_t amount) noexcept { return balance -= amount; }
  HOLDFAST_FIELDS(Account, balance)
};

template <class T>
T echo(T value) {
  return value;
}

double scale(double x, double k) { return x * k; }
int64_t square(int64_t x) { return x * x; }
int answer() noexcept { return 42; }
const std::string& longer(const std::string& a, const std::string& b) { return a.size() >= b.size() ? a : b; }
std::string append(std::string text, const std::string& more) { return text += more; }
constexpr auto negate_it = [](int x) { return -x; };

std::atomic<int> notes{0};
void note(int amount) { notes += amount; }

int exported_only(int x) { return x + 1; }
HOLDFAST_EXPORT(exported_only);
std::string shout(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text + "!";
  return out;
}
HOLDFAST_EXPORT_AS(shout, "speech.shout");

std::string who_am_i() { return current_worker().name(); }

Task<int64_t> sum_of_squares(std::vector<int64_t> numbers) {
  Worker& worker = current_worker();
  int64_t sum = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    Peer peer = worker.peer(static_cast<int>(i) % worker.world_size());
    sum += co_await peer.async<square>(numbers[i]);
    if (&current_worker() != &worker) throw std::logic_error("the coroutine went on without its worker");
  }
  co_return sum;
}

Task<void> note_later(int amount) { co_await current_worker().self().async<note>(amount); }

Task<int> task_that_throws() {
  co_await current_worker().self().async<answer>();
  throw std::out_of_range("too far");
}

Future<int64_t> square_plus_one(int64_t x) {
  return current_worker().peer(0).async<square>(x).then([](int64_t value) { return value + 1; });
}

// A handler that waits without a thread, until open_door.
struct Door {
  std::mutex mutex;
  std::vector<Promise<int>> waiting;
} door;
Future<int> wait_at_door() {
  std::lock_guard lock(door.mutex);
  return door.waiting.emplace_back().future();
}
void open_door(int value) {
  std::vector<Promise<int>> all;
  {
    std::lock_guard lock(door.mutex);
    all.swap(door.waiting);
  }
  for (Promise<int>& promise : all) promise.set_value(value);
}

Gate gate;
int pass_gate(int value) { return gate.pass() ? value : -1; }

enum class Callee { self, other };

class CallTest : public testing::TestWithParam<Callee> {
 protected:
  CallTest() : job(2), peer(GetParam() == Callee::self ? job[0].self() : job[0].peer(1)) {
    gate.reset();
    notes = 0;
  }
  ~CallTest() override { job.shutdown(); }

  TestJob job;
  Peer peer;
};

TEST_P(CallTest, FreeFunctions) {
  EXPECT_EQ(peer.call<scale>(3.0, 2.0), 6.0);
  EXPECT_EQ(peer.call<answer>(), 42);
  EXPECT_EQ(peer.call<&square>(-9), 81);
  EXPECT_EQ(peer.call<longer>(std::string("short"), std::string("longest")), "longest");
  EXPECT_EQ(peer.call<append>(std::string("a"), std::string("b")), "ab");
  EXPECT_EQ(peer.call<exported_only>(1), 2);
  EXPECT_EQ(peer.call<who_am_i>(), peer.name());
}

TEST_P(CallTest, LambdasAndMemberFunctions) {
  EXPECT_EQ(peer.call<negate_it>(5), -5);
  EXPECT_EQ(peer.call<&Account::after>(Account{40}, 2), 42);
  EXPECT_EQ(peer.call<&Account::spend>(Account{40}, 2), 38);
}

TEST_P(CallTest, ResultsOfVoidFunctions) {
  peer.call<note>(3);
  EXPECT_EQ(notes, 3);
  peer.async<note>(4).get();
  EXPECT_EQ(notes, 7);
}

TEST_P(CallTest, ArgumentsConvertAsInACall) {
  EXPECT_EQ(peer.call<scale>(3, 2), 6.0);            // int -> double
  EXPECT_EQ(peer.call<longer>("abc", "ab"), "abc");  // literal -> std::string
  EXPECT_EQ(peer.call<square>(short{5}), 25);        // short -> int64_t
  EXPECT_EQ(peer.call<echo<std::optional<int>>>(5), 5);
  EXPECT_EQ(peer.call<echo<bool>>(true), true);
}

template <class T>
void expect_echo(const Peer& peer, const T& value) {
  EXPECT_EQ(peer.call<echo<T>>(value), value) << typeid(T).name();
}

template <class... T>
void expect_echo_of_limits(const Peer& peer) {
  (expect_echo<T>(peer, std::numeric_limits<T>::lowest()), ...);
  (expect_echo<T>(peer, std::numeric_limits<T>::max()), ...);
  (expect_echo<T>(peer, T{}), ...);
}

TEST_P(CallTest, NumbersKeepTheirValue) {
  expect_echo_of_limits<int8_t, int16_t, int32_t, int64_t>(peer);
  expect_echo_of_limits<uint8_t, uint16_t, uint32_t, uint64_t>(peer);
  expect_echo_of_limits<float, double>(peer);
  expect_echo(peer, std::numeric_limits<double>::infinity());
  expect_echo(peer, 'x');
  expect_echo(peer, true);
}

TEST_P(CallTest, StringsAndBytes) {
  expect_echo<std::string>(peer, "");
  expect_echo<std::string>(peer, std::string("nul \0 inside", 12));
  expect_echo<std::string>(peer, std::string(100'000, 'x'));
  expect_echo(peer, Bytes{});
  Bytes large(3 << 20);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<uint8_t>(i * 7);
  expect_echo(peer, large);
}

TEST_P(CallTest, EnumsOptionalsVariants) {
  expect_echo(peer, Color::green);
  expect_echo(peer, Color::blue);
  expect_echo(peer, std::optional<std::string>());
  expect_echo(peer, std::optional<std::string>("there"));
  using Either = std::variant<int64_t, std::string, Point>;
  expect_echo(peer, Either(int64_t{5}));
  expect_echo(peer, Either("five"));
  expect_echo(peer, Either(Point{1, 2}));
}

TEST_P(CallTest, Containers) {
  expect_echo(peer, std::pair<int, std::string>(1, "one"));
  expect_echo(peer, std::tuple<int, std::string, double>(1, "one", 1.5));
  expect_echo(peer, std::vector<int>{1, 2, 3});
  expect_echo(peer, std::vector<bool>{true, false, true});
  expect_echo(peer, std::vector<std::vector<std::string>>{{"a"}, {}, {"b", "c"}});
  expect_echo(peer, std::array<double, 3>{1, 2, 3});
  expect_echo(peer, std::map<std::string, int>{{"a", 1}, {"b", 2}});
  expect_echo(peer, std::set<int>{3, 1, 2});
  expect_echo(peer, std::set<Point>{{1, 2}, {3, 4}});
}

TEST_P(CallTest, StructsInsideStructs) {
  const Shape shape{.name = "triangle",
                    .corners = {{0, 0}, {1, 0}, {0, 1}},
                    .color = Color::green,
                    .named = {{"centre", {0.3, 0.3}}}};
  expect_echo(peer, shape);
  expect_echo(peer, std::vector<Shape>{shape, {}, shape});
}

TEST_P(CallTest, ByName) {
  EXPECT_EQ(peer.call_named<std::string>("speech.shout", "hey", 2), "hey!hey!");
  EXPECT_EQ(peer.async_named<std::string>("speech.shout", std::string("ho"), 1).get(), "ho!");
}

TEST_P(CallTest, ManyAtOnce) {
  std::vector<Future<int64_t>> squares;
  for (int64_t i = 0; i < 500; ++i) squares.push_back(peer.async<square>(i));
  const std::vector<int64_t> all = when_all(squares).get();
  ASSERT_EQ(all.size(), 500u);
  for (int64_t i = 0; i < 500; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i * i);
}

TEST_P(CallTest, FromManyThreads) {
  std::vector<std::function<void()>> runs;
  for (int64_t thread = 0; thread < 8; ++thread) {
    runs.emplace_back([&, thread] {
      for (int64_t i = 0; i < 100; ++i) {
        if (peer.call<square>(thread * 1000 + i) != (thread * 1000 + i) * (thread * 1000 + i)) {
          throw std::logic_error("a thread got another's result");
        }
      }
    });
  }
  EXPECT_NO_THROW(run_together(runs));
}

TEST_P(CallTest, ThenAndWhenAny) {
  EXPECT_EQ(peer.async<square>(3).then([](int64_t nine) { return nine + 1; }).get(), 10);
  // A continuation that makes the next call.
  EXPECT_EQ(peer.async<square>(3).then([this](int64_t nine) { return peer.async<square>(nine); }).get(), 81);

  std::vector<Future<int>> race{peer.async<pass_gate>(1), peer.async<answer>()};
  EXPECT_EQ(when_any(race).get().first, 1u);
  gate.open();
  EXPECT_EQ(race[0].get(), 1);
}

TEST_P(CallTest, WaitForGivesUpWithoutEndingTheCall) {
  Future<int> passed = peer.async<pass_gate>(5);
  ASSERT_TRUE(gate.wait_for_arrivals(1));
  EXPECT_FALSE(passed.wait_for(1ms));
  gate.open();
  EXPECT_EQ(passed.get(), 5);
}

TEST_P(CallTest, Coroutines) {
  EXPECT_EQ(peer.call<sum_of_squares>(std::vector<int64_t>{1, 2, 3, 4}), 30);
  peer.call<note_later>(5);
  EXPECT_EQ(notes, 5);
  const RemoteError error = expect_throw<RemoteError>([&] { peer.call<task_that_throws>(); });
  EXPECT_EQ(error.type(), "std::out_of_range");
  EXPECT_CONTAINS(error.what(), "too far");
}

TEST_P(CallTest, HandlersThatReturnAFuture) { EXPECT_EQ(peer.call<square_plus_one>(6), 37); }

// Asynchronous handlers hold no thread: more of them wait than there are threads.
TEST_P(CallTest, WaitingCoroutinesHoldNoThread) {
  std::vector<Future<int>> waiting;
  for (int i = 0; i < 50; ++i) waiting.push_back(peer.async<wait_at_door>());
  const int callee = peer.rank();
  ASSERT_TRUE(eventually([&] {
    std::lock_guard lock(door.mutex);
    return door.waiting.size() == 50;
  }));
  EXPECT_EQ(job[callee].stats().calls_served, 50u);
  EXPECT_LT(job[callee].stats().threads, 10u);
  peer.call<open_door>(8);
  for (Future<int>& future : waiting) EXPECT_EQ(future.get(), 8);
}

TEST_P(CallTest, ThreadsDoNotGrowWithoutEnd) {
  for (int round = 0; round < 20; ++round) {
    std::vector<Future<int64_t>> sums;
    for (int i = 0; i < 20; ++i) sums.push_back(peer.async<sum_of_squares>(std::vector<int64_t>{1, 2}));
    for (Future<int64_t>& sum : sums) EXPECT_EQ(sum.get(), 5);
  }
  EXPECT_TRUE(job.quiet());
  for (int rank = 0; rank < job.size(); ++rank) EXPECT_LT(job[rank].stats().threads, 30u);
}

INSTANTIATE_TEST_SUITE_P(To, CallTest, testing::Values(Callee::self, Callee::other),
                         [](const auto& info) { return info.param == Callee::self ? "Self" : "Other"; });

}  // namespace
}  // namespace holdfast::call_test
