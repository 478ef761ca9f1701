// The checker itself: each thing that may not be is one that it notices, and what may be it lets pass.
#include <holdfast/sim/ledger.h>

#include <gtest/gtest.h>

namespace holdfast::sim {
namespace {

using namespace std::chrono_literals;

class LedgerTest : public testing::Test {
 protected:
  LedgerTest() {
    for (const char* name : {"a", "b", "c"}) {
      const size_t at = alive_.size();
      alive_.push_back(true);
      ledger_.add_life(name, [this, at] { return alive_[at]; });
    }
  }

  // On a, made by b, and it exists.
  Serial object(bool may_fail = false) {
    const Serial serial = ledger_.plan_object({.creator = kB, .owner = kA, .may_fail = may_fail});
    ledger_.born(serial, kA);
    return serial;
  }
  Token call(std::vector<Serial> carries, Serial subject = 0) {
    return ledger_.begin_call({.what = "f", .from = kB, .to = kC, .carries = std::move(carries), .subject = subject});
  }
  void expect_violation(const std::string& part) {
    ASSERT_EQ(ledger_.violations().size(), 1u);
    EXPECT_NE(ledger_.violations()[0].find(part), std::string::npos) << ledger_.violations()[0];
  }
  void expect_none() { EXPECT_TRUE(ledger_.violations().empty()) << ledger_.violations()[0]; }

  static constexpr LifeIndex kA = 0, kB = 1, kC = 2;
  Time now_{};
  std::vector<bool> alive_;
  Ledger ledger_{[this] { return now_; }};
};

TEST_F(LedgerTest, AnObjectThatNobodyHoldsMayGo) {
  const Serial serial = object();
  ledger_.hold(kB, serial);
  ledger_.release(kB, serial);
  ledger_.ended(serial, kA);
  expect_none();
  EXPECT_EQ(ledger_.left_over(), "");
}

TEST_F(LedgerTest, AnObjectThatIsHeldMayNot) {
  const Serial serial = object();
  ledger_.hold(kC, serial);
  now_ += 3ms;
  ledger_.ended(serial, kA);
  expect_violation("at 3.000 ms: object 1 of a was destroyed although c holds it");
}

TEST_F(LedgerTest, TheDeadAndTheLostHoldNothing) {
  const Serial serial = object();
  ledger_.hold(kB, serial);
  ledger_.hold(kC, serial);
  alive_[kB] = false;
  ledger_.lose(kC);
  ledger_.ended(serial, kA);
  expect_none();
}

TEST_F(LedgerTest, WhatADeadWorkerHadMayGo) {
  const Serial serial = object();
  ledger_.hold(kC, serial);
  alive_[kA] = false;
  ledger_.ended(serial, kA);
  expect_none();
  EXPECT_FALSE(ledger_.can_be_used(serial));
}

TEST_F(LedgerTest, AnObjectThatIsBeingSentMayNotGo) {
  const Serial serial = object();
  call({serial});
  ledger_.ended(serial, kA);
  expect_violation("b sends it to c in call 1 (f)");
}

TEST_F(LedgerTest, NorOneThatIsBeingReturned) {
  const Serial serial = object();
  const Token token = call({});
  ledger_.ran(token, kC);
  ledger_.replies(token, {serial});
  ledger_.ended(serial, kA);
  expect_violation("c returns it to b from call 1 (f)");
}

TEST_F(LedgerTest, ACallThatHasRunOrFailedSendsNothing) {
  const Serial serial = object();
  ledger_.ran(call({serial}), kC);
  const Token failed = call({serial});
  ledger_.cancelled(failed);
  const Failure failure{.code = Code::cancelled, .message = ""};
  ledger_.completed(failed, &failure);
  ledger_.refused(call({serial}));
  ledger_.ended(serial, kA);
  expect_none();
}

TEST_F(LedgerTest, AReferenceToWhatIsGoneMayNotArrive) {
  const Serial serial = object();
  ledger_.received(kC, serial);
  expect_none();
  ledger_.ended(serial, kA);
  ledger_.received(kC, serial);
  expect_violation("c received a reference to object 1 of a, which was destroyed before");
}

TEST_F(LedgerTest, ACreationThatMayFailIsLetGoUntilItWasUsed) {
  const Serial late = object(true);
  ledger_.hold(kC, late);
  ledger_.ended(late, kA);
  expect_none();
  const Serial used = object(true);
  ledger_.hold(kC, used);
  ledger_.used(used);
  ledger_.ended(used, kA);
  expect_violation("object 2 of a was destroyed although c holds it");
}

TEST_F(LedgerTest, ObjectsAreMadeOnceAndEndOnce) {
  const Serial serial = object();
  ledger_.born(serial, kA);
  expect_violation("object 1 was made twice");
  ledger_.ended(serial, kA);
  ledger_.ended(serial, kA);
  EXPECT_EQ(ledger_.violations().size(), 2u);
}

TEST_F(LedgerTest, ACallRunsOnceAndWhereItShould) {
  const Token token = call({});
  ledger_.ran(token, kC);
  expect_none();
  ledger_.ran(token, kC);
  expect_violation("call 1 (f) ran twice");
  ledger_.ran(call({}), kA);
  EXPECT_EQ(ledger_.violations().size(), 2u);
}

TEST_F(LedgerTest, ACallCompletesOnce) {
  const Token token = call({});
  EXPECT_NE(ledger_.open_calls(), "");
  ledger_.completed(token, nullptr);
  EXPECT_EQ(ledger_.open_calls(), "");
  ledger_.completed(token, nullptr);
  expect_violation("call 1 (f) from b to c completed twice");
}

TEST_F(LedgerTest, AFailureNeedsAReason) {
  const Serial doubtful = object(true);
  const Serial sound = object();
  for (const Code code : {Code::worker_lost, Code::timeout, Code::remote_error, Code::cancelled}) {
    const Failure failure{.code = code, .message = "why"};
    const size_t before = ledger_.violations().size();
    ledger_.completed(call({}, doubtful), &failure);
    EXPECT_EQ(ledger_.violations().size(), before) << name_of(code);
    ledger_.completed(call({}, sound), &failure);
    EXPECT_EQ(ledger_.violations().size(), before + 1) << name_of(code);
  }
  const Failure lost{.code = Code::worker_lost, .message = "why"};
  const size_t before = ledger_.violations().size();
  ledger_.lose(kC);
  ledger_.completed(call({}, sound), &lost);
  EXPECT_EQ(ledger_.violations().size(), before);
}

TEST_F(LedgerTest, WhatIsLeftIsNamed) {
  const Serial serial = object();
  ledger_.hold(kB, serial);
  EXPECT_EQ(ledger_.left_over(), "object 1 of a was not destroyed; b holds object 1; ");
  alive_[kB] = false;
  EXPECT_EQ(ledger_.left_over(), "object 1 of a was not destroyed; ");
  ledger_.lose(kA);
  EXPECT_EQ(ledger_.left_over(), "");
}

TEST_F(LedgerTest, AnObjectMadeOnAnotherDependsOnIt) {
  const Serial first = object(true);
  const Serial second = ledger_.plan_object({.creator = kC, .owner = kA, .made_on = first});
  EXPECT_FALSE(ledger_.can_be_used(second));
  const Serial third = ledger_.plan_object({.creator = kC, .owner = kA, .made_on = object()});
  EXPECT_TRUE(ledger_.can_be_used(third));
  ledger_.lose(kC);
  EXPECT_FALSE(ledger_.can_be_used(third));
}

}  // namespace
}  // namespace holdfast::sim
