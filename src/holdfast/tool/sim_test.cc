// `holdfast sim` from the outside.
#include <gtest/gtest.h>

#include <holdfast/tool/launcher_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

TEST(Sim, OneSeedPrintsItsHistory) {
  const Outcome once = run({"sim", "--seed", "7"});
  EXPECT_EQ(once.status, 0) << once.out << once.err;
  for (const char* part :
       {" ms  ", "makes object 1", "everything heals", "nothing is left", "trace hash ", "\nno violations\n"}) {
    EXPECT_TRUE(contains(once.out, part)) << part;
  }
  EXPECT_EQ(run({"sim", "--seed", "7"}).out, once.out);
  EXPECT_NE(run({"sim", "--seed", "8"}).out, once.out);
}

TEST(Sim, ManySeedsAreSummedUp) {
  const Outcome one = run({"sim", "--seeds", "30", "--jobs", "1"});
  EXPECT_EQ(one.status, 0) << one.out << one.err;
  for (const char* part : {"worlds ", "messages ", "connections cut", "deaths seen", "frames lost", "violations "}) {
    EXPECT_TRUE(contains(one.out, part)) << part;
  }
  EXPECT_TRUE(contains(lines_of(one.out).at(0), " 30")) << one.out;
  EXPECT_EQ(run({"sim", "--seeds", "30", "--jobs", "2"}).out, one.out);
  EXPECT_NE(run({"sim", "--seeds", "30", "--first-seed", "2"}).out, one.out);
}

TEST(Sim, MistakesAreNamed) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"sim"}, "--seeds"},
      {{"sim", "--seed", "x"}, "--seed"},
      {{"sim", "--seed", "1", "--seeds", "2"}, "--seeds"},
      {{"sim", "--seeds", "1", "more"}, "more"},
  };
  for (const auto& [arguments, part] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << part;
    EXPECT_TRUE(contains(outcome.err, part)) << outcome.err;
  }
}

}  // namespace
}  // namespace holdfast
