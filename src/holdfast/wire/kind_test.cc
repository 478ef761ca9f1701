#include <holdfast/wire/kind.h>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

constexpr KindName kFirst[] = {{{32}, "CALL"}, {{33}, "REPLY"}};
constexpr KindName kSecond[] = {{{48}, "RREF_FETCH"}};

TEST(KindNames, BothWaysOverSeveralTables) {
  KindNames names;
  names.add(kFirst);
  names.add(kSecond);
  EXPECT_EQ(names.name({33}), "REPLY");
  EXPECT_EQ(names.name({48}), "RREF_FETCH");
  ASSERT_NE(names.find("CALL"), nullptr);
  EXPECT_EQ(*names.find("CALL"), Kind{32});
  ASSERT_NE(names.find("RREF_FETCH"), nullptr);
  EXPECT_EQ(*names.find("RREF_FETCH"), Kind{48});
  EXPECT_EQ(names.all(), "CALL, REPLY, RREF_FETCH");
}

TEST(KindNames, TheUnknown) {
  KindNames names;
  EXPECT_EQ(names.all(), "");
  names.add(kFirst);
  EXPECT_EQ(names.name({77}), "KIND 77");
  EXPECT_EQ(names.find("call"), nullptr);
  EXPECT_EQ(names.find("CAL"), nullptr);
  EXPECT_EQ(names.find(""), nullptr);
}

}  // namespace
}  // namespace holdfast
