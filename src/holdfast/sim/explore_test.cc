// Every order of delivery in small worlds: see explore.h. And that the search can fail.
#include <holdfast/sim/explore.h>

#include <algorithm>
#include <cstdio>
#include <ostream>

#include <gtest/gtest.h>

#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/rref/messages.h>

namespace holdfast::sim {

// For the names of tests.
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name << "; " << scenario.fault(); }

namespace {

std::string lines(const std::vector<std::string>& trace) {
  std::string text;
  for (const std::string& line : trace) text += "  " + line + "\n";
  return text;
}

constexpr uint64_t kStatesMax = 300;

class SmallWorldTest : public testing::TestWithParam<Scenario> {};

TEST_P(SmallWorldTest, KeepsEveryPromiseInEveryOrder) {
  Scenario scenario = GetParam();
  // Under a sanitizer some would take minutes. The dev preset searches them all to the end; the code is the same.
  if (test::kSanitizer) scenario.states_max = kStatesMax;
  const ExploreReport report = explore(scenario);
  std::printf("%s\n%s\n", explore_table_head().c_str(), explore_table_row(report).c_str());
  if (test::kSanitizer && !report.complete) {
    EXPECT_GE(report.states, kStatesMax);
    EXPECT_EQ(report.violations, 0u) << report.violation << "\n" << lines(report.trace);
    return;
  }
  EXPECT_TRUE(report.good()) << report.violation << "\n" << lines(report.trace);
  EXPECT_GT(report.final_states, 0u);
}

std::string name_of(const testing::TestParamInfo<Scenario>& info) {
  std::string name = info.param.name + "_" + info.param.fault();
  std::erase_if(name, [](char letter) { return letter == ','; });
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Quick, SmallWorldTest, testing::ValuesIn(small_worlds(true)), name_of);

Scenario program(const std::string& name) {
  for (const Scenario& scenario : small_worlds()) {
    if (scenario.name == name) return scenario;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(ExploreTest, ABrokenPromiseIsFoundWithTheShortestTrace) {
  Scenario scenario = program("create, fetch");
  scenario.expect_never_freed = true;
  const ExploreReport report = explore(scenario);
  EXPECT_FALSE(report.good());
  EXPECT_GT(report.violations, 0u);
  EXPECT_EQ(report.violation, "the object was freed");
  // Made, arrived, run, accepted (sent, arrived), dropped, deleted (sent, arrived): in some order.
  ASSERT_EQ(report.trace.size(), 8u) << lines(report.trace);
  EXPECT_EQ(report.trace.front(), "worker1 makes an object on worker0");
  EXPECT_TRUE(report.trace.back().starts_with("worker0 hears from worker1: RREF_USER_DELETE")) << report.trace.back();
}

TEST(ExploreTest, ALostForkRequestIsFound) {
  Scenario scenario = program("create, share");
  scenario.swallow = kRRefForkRequest;
  const ExploreReport report = explore(scenario);
  EXPECT_GT(report.violations, 0u);
  EXPECT_EQ(report.violation, "no reference is left, but the object was not freed");
  const bool told = std::any_of(report.trace.begin(), report.trace.end(), [](const std::string& line) {
    return line.starts_with("lost on the way from worker2 to worker0: RREF_FORK_REQUEST");
  });
  EXPECT_TRUE(told) << lines(report.trace);
}

TEST(ExploreTest, TheSameScenarioGivesTheSameNumbers) {
  Scenario scenario = program("create, share");
  if (test::kSanitizer) scenario.states_max = kStatesMax;
  const ExploreReport first = explore(scenario);
  const ExploreReport second = explore(scenario);
  EXPECT_EQ(explore_table_row(first), explore_table_row(second));
}

TEST(ExploreTest, ASearchThatStopsEarlySaysSo) {
  Scenario scenario = program("create, share");
  scenario.states_max = 100;
  const ExploreReport report = explore(scenario);
  EXPECT_EQ(report.states, 100u);
  EXPECT_FALSE(report.complete);
  EXPECT_FALSE(report.good());
  EXPECT_EQ(report.violations, 0u);
}

}  // namespace
}  // namespace holdfast::sim
