// The names and signatures under which functions are known, and the program's table of them.
#include <holdfast/rpc/rpc_test_support.h>

#include <set>

int global_function(int x) { return x; }

namespace geometry {
struct Point {
  double x = 0, y = 0;
  HOLDFAST_FIELDS(Point, x, y)
  double length() const { return x * x + y * y; }
  Point moved(double by) noexcept { return {x + by, y + by}; }
};
enum class Unit : uint8_t { metre, mile };
double area(Point a, Point b) { return (b.x - a.x) * (b.y - a.y); }
double area(double radius) { return 3 * radius * radius; }
template <class T>
T largest(std::vector<T> values) {
  T best{};
  for (const T& value : values) best = std::max(best, value);
  return best;
}
template <class T, int N>
int times(T value) {
  return static_cast<int>(value) * N;
}
template <class T>
struct Box {
  T value{};
  T get() const { return value; }
  HOLDFAST_FIELDS(Box, value)
};
namespace {
int hidden(int x) { return x; }
}  // namespace
}  // namespace geometry

namespace holdfast::function_test {
namespace {

using namespace test;

constexpr auto kPlusOne = [](int x) { return x + 1; };
void nothing() {}
std::string give_text() { return "text"; }
Task<std::string> in_a_while(std::optional<int> value) { co_return std::to_string(value.value_or(0)); }
Future<void> done_later(std::map<std::string, std::vector<geometry::Unit>>) { return make_ready_future(); }
int by_reference(const std::string& text, std::vector<int>&& numbers) {
  return static_cast<int>(text.size() + numbers.size());
}

template <auto F>
std::string name_of_function() {
  return Registered<F>::entry.name;
}
template <auto F>
std::string signature_of() {
  return Registered<F>::entry.signature;
}

TEST(FunctionNames, AreQualifiedAndReadable) {
  EXPECT_EQ(name_of_function<global_function>(), "global_function");
  EXPECT_EQ(name_of_function<&global_function>(), "global_function");
  EXPECT_EQ(name_of_function<geometry::hidden>(), "geometry::{anonymous}::hidden");
  EXPECT_EQ(name_of_function<&geometry::Point::length>(), "geometry::Point::length");
  EXPECT_EQ(name_of_function<&geometry::Point::moved>(), "geometry::Point::moved");
  EXPECT_EQ(name_of_function<&geometry::Box<int>::get>(), "geometry::Box<int>::get");
  // clang says more of it than g++ does, and one may call what the other has compiled.
  EXPECT_EQ(name_of_function<give_text>(), "holdfast::function_test::{anonymous}::give_text");
}

TEST(FunctionNames, OfTemplatesTellInstancesApart) {
  EXPECT_EQ(name_of_function<geometry::largest<int>>(), "geometry::largest<int>");
  EXPECT_EQ(name_of_function<geometry::largest<double>>(), "geometry::largest<double>");
  EXPECT_NE((name_of_function<geometry::times<int, 2>>()), (name_of_function<geometry::times<int, 3>>()));
  EXPECT_NE((name_of_function<geometry::times<int, 2>>()), (name_of_function<geometry::times<long, 2>>()));
}

TEST(FunctionNames, OfOverloadsAreTheSameAndTheSignatureDecides) {
  using Rectangle = double (*)(geometry::Point, geometry::Point);
  using Circle = double (*)(double);
  const Function& rectangle = Registered<static_cast<Rectangle>(geometry::area)>::entry;
  const Function& circle = Registered<static_cast<Circle>(geometry::area)>::entry;
  EXPECT_EQ(rectangle.name, "geometry::area");
  EXPECT_EQ(circle.name, "geometry::area");
  EXPECT_EQ(circle.id, rectangle.id);
  EXPECT_NE(circle.signature_id, rectangle.signature_id);
  EXPECT_EQ(find_function(circle.id, circle.signature_id).function, &circle);
  EXPECT_EQ(find_function(rectangle.id, rectangle.signature_id).function, &rectangle);

  Worker worker{Options()};
  EXPECT_EQ((worker.self().call<static_cast<Circle>(geometry::area)>(2)), 12.0);
  EXPECT_EQ((worker.self().call<static_cast<Rectangle>(geometry::area)>(geometry::Point{0, 0}, geometry::Point{2, 3})),
            6.0);
  worker.shutdown();
}

TEST(FunctionNames, OfLambdasAreTheirOwn) {
  constexpr auto first = [](int x) { return x * 2; };
  constexpr auto second = [](int x) { return x * 3; };
  const std::set<std::string> names{name_of_function<first>(), name_of_function<second>(),
                                    name_of_function<kPlusOne>()};
  EXPECT_EQ(names.size(), 3u);
  for (const std::string& name : names) EXPECT_FALSE(name.empty());
  Worker worker{Options()};
  EXPECT_EQ(worker.self().call<first>(5), 10);
  EXPECT_EQ(worker.self().call<second>(5), 15);
  worker.shutdown();
}

TEST(Signatures, AreInTheWiresWords) {
  EXPECT_EQ(signature_of<global_function>(), "(i32) -> i32");
  EXPECT_EQ(signature_of<nothing>(), "() -> nil");
  EXPECT_EQ(signature_of<in_a_while>(), "(optional<i32>) -> str");
  EXPECT_EQ(signature_of<done_later>(), "(map<str,list<enum Unit:u8>>) -> nil");
  EXPECT_EQ(signature_of<by_reference>(), "(str, list<i32>) -> i32");
  EXPECT_EQ(signature_of<kPlusOne>(), "(i32) -> i32");
  EXPECT_EQ(signature_of<&geometry::Point::length>(), "(Point{x:f64,y:f64}) -> f64");
  EXPECT_EQ(signature_of<&geometry::Point::moved>(), "(Point{x:f64,y:f64}, f64) -> Point{x:f64,y:f64}");
}

// ---- the table

int first_run = 0;
int second_run = 0;
void run_first(const std::shared_ptr<ServedCall>&) { ++first_run; }
void run_second(const std::shared_ptr<ServedCall>&) { ++second_run; }

TEST(FunctionTable, TheSameAgainIsOneEntry) {
  const Function& one = add_function("table::one", "() -> nil", run_first);
  EXPECT_EQ(&add_function("table::one", "() -> nil", run_first), &one);
  EXPECT_EQ(&name_function("table::one", "() -> nil"), &one);
  EXPECT_EQ(one.text(), "table::one() -> nil");
  const FunctionLookup found = find_function(one.id, one.signature_id);
  EXPECT_EQ(found.function, &one);
  EXPECT_FALSE(found.ambiguous);
}

TEST(FunctionTable, AnotherSignatureIsToldWithWhatThereIs) {
  const Function& one = add_function("table::overloaded", "(i32) -> nil", run_first);
  add_function("table::overloaded", "(str) -> nil", run_second);
  const FunctionLookup found = find_function(one.id, text_id("(f64) -> nil"));
  EXPECT_EQ(found.function, nullptr);
  EXPECT_FALSE(found.ambiguous);
  EXPECT_EQ(found.known_as, "table::overloaded(i32) -> nil and table::overloaded(str) -> nil");
}

TEST(FunctionTable, WhatIsOnlyNamedCannotBeCalled) {
  const Function& named = name_function("table::elsewhere", "() -> nil");
  EXPECT_EQ(find_function(named.id, named.signature_id).function, nullptr);
  EXPECT_EQ(find_function(named.id, named.signature_id).known_as, "");
  // It comes after all.
  const Function& here = add_function("table::elsewhere", "() -> nil", run_first);
  EXPECT_EQ(find_function(named.id, named.signature_id).function, &here);
  EXPECT_FALSE(find_function(named.id, named.signature_id).ambiguous);
}

// Two functions in unnamed namespaces of two files, say.
TEST(FunctionTable, TwoFunctionsUnderOneNameAreAmbiguous) {
  const Function& one = add_function("table::{anonymous}::twin", "() -> nil", run_first);
  const Function& two = add_function("table::{anonymous}::twin", "() -> nil", run_second);
  EXPECT_NE(&one, &two);
  EXPECT_TRUE(find_function(one.id, one.signature_id).ambiguous);
  add_function("table::{anonymous}::twin", "() -> nil", [](const std::shared_ptr<ServedCall>&) {});
  EXPECT_TRUE(find_function(one.id, one.signature_id).ambiguous);  // with a third one too

  Worker worker{Options()};
  const InvalidArgument error =
      expect_throw<InvalidArgument>([&] { worker.self().call_named<void>("table::{anonymous}::twin"); });
  EXPECT_CONTAINS(error.what(), "two different functions");
  EXPECT_EQ(first_run + second_run, 0);
  worker.shutdown();
}

TEST(FunctionTable, IdsAreFnv1a) {
  // From the published test vectors: every language must get the same.
  EXPECT_EQ(text_id(""), 0xcbf29ce484222325u);
  EXPECT_EQ(text_id("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(text_id("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace holdfast::function_test
