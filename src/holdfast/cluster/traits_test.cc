// Traits: how what the layers above say of a worker gets from its JOIN to the READY of the others, and that it costs
// nothing where nobody asks.
#include <holdfast/cluster/coordinator_test_support.h>
#include <holdfast/cluster/member_test_support.h>

namespace holdfast {
namespace {

class CoordinatorTraits : public CoordinatorTest {
 protected:
  Join join_with(uint32_t rank, Bytes traits, bool wants_traits) {
    Join join = join_of(rank);
    join.traits = std::move(traits);
    join.wants_traits = wants_traits;
    return join;
  }
  // "0:ab" for each worker that the last READY names; "none" if there was no READY.
  std::string told(ConnectionId connection) {
    const std::vector<Heard> ready = heard(connection, kReady);
    if (ready.empty()) return "none";
    if (ready.back().message.body.empty()) return "";
    std::string text;
    for (const WorkerTraits& worker : ready.back().as<Ready>().workers) {
      text += (text.empty() ? "" : " ") + std::to_string(worker.rank.value) + ":" +
              std::string(worker.traits.begin(), worker.traits.end());
    }
    return text;
  }
};

TEST_F(CoordinatorTraits, AreToldToAllIfOneWantsThem) {
  make(2);
  const ConnectionId first = join(join_with(0, {'a'}, true));
  EXPECT_EQ(told(first), "none");
  const ConnectionId second = join(join_with(1, {}, false));
  EXPECT_EQ(told(first), "0:a 1:");
  EXPECT_EQ(told(second), "0:a 1:");
}

TEST_F(CoordinatorTraits, AreNotToldIfNobodyWantsThem) {
  make(2);
  const ConnectionId first = join(join_with(0, {'a'}, false));
  join(join_with(1, {'b'}, false));
  EXPECT_EQ(told(first), "");
}

TEST_F(CoordinatorTraits, OfANewcomerAreToldToTheOthersAndThoseOfAllToIt) {
  make(2);
  const ConnectionId first = join(join_with(0, {'a'}, false));
  join(join_with(1, {'b'}, false));
  EXPECT_EQ(told(first), "");
  declare_lost(1);
  const Join again = join_with(1, {'c'}, true);
  const ConnectionId second = join(again);
  EXPECT_EQ(told(first), "1:c");
  EXPECT_EQ(told(second), "1:c") << "after those of all";
  EXPECT_EQ(told(join(again)), "0:a 1:c") << "whoever was cut off hears of all once more";
  declare_lost(1);
  EXPECT_EQ(told(join(join_with(1, {'d'}, false))), "") << "nobody wants them any more";
}

TEST_F(CoordinatorTraits, ThatAreTooLargeAreRefused) {
  make(2);
  EXPECT_EQ(refusal(join_with(0, Bytes(kTraitsBytesMax + 1, 0), false)),
            "rank 0 cannot join: its traits take 49153 bytes, over the limit of 49152");
  EXPECT_EQ(refusal(join_with(0, Bytes(kTraitsBytesMax, 0), false)), "not refused");
}

class MemberTraits : public MemberTest {
 protected:
  Status on_traits(Step&, const std::vector<WorkerTraits>& workers) override {
    EXPECT_TRUE(joined_.size() == heard_.size()) << "before the join completes";
    heard_.push_back(workers.size());
    return answer_;
  }

  std::vector<size_t> heard_;
  Status answer_;
};

TEST_F(MemberTraits, AreSaidInEveryJoin) {
  member().set_traits({'a', 'b'}, true);
  start_join();
  for (int i = 0; i < 2; ++i) {
    connect();
    const Join join = wire::decode_message<Join>(said(kJoin).at(0)).take();
    EXPECT_EQ(join.traits, (Bytes{'a', 'b'}));
    EXPECT_TRUE(join.wants_traits);
    break_connection();
    wait(1s);
  }
}

TEST_F(MemberTraits, OfTheOthersCanEndTheJoinButNothingLater) {
  answer_ = Failure{.code = Code::invalid_argument, .message = "no device"};
  start_join();
  connect();
  const Ready ready{{{.name = "worker0"}, {.name = "worker3", .rank = {3}}}};
  hear(kReady, ready);
  EXPECT_TRUE(heard_.empty()) << "READY before ACCEPTED";
  hear(kAccepted, accepted());
  hear(kReady, ready);
  ASSERT_EQ(joined_.size(), 1u);
  EXPECT_EQ(joined_[0].failure().message, "no device");
  hear(kReady, Ready{{{.name = "worker5", .rank = {5}}}});
  EXPECT_EQ(heard_, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(joined_.size(), 1u);
  EXPECT_FALSE(member().fenced());
}

}  // namespace
}  // namespace holdfast
