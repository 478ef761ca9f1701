// Contexts as one worker sees them: who is told of what, and what is remembered.
#include <holdfast/backward/contexts.h>

#include <holdfast/backward/backward_test_support.h>

namespace holdfast::test {
namespace {

TEST(IntervalSet, MergesWhatTouches) {
  struct Case {
    std::vector<std::pair<uint64_t, uint64_t>> inserted;
    std::vector<uint64_t> in;
    std::vector<uint64_t> out;
    size_t intervals;
  };
  const Case cases[] = {
      {{}, {}, {0, 1, UINT64_MAX}, 0},
      {{{5, 5}}, {5}, {4, 6}, 1},
      {{{5, 5}, {6, 6}, {4, 4}}, {4, 5, 6}, {3, 7}, 1},
      {{{5, 5}, {7, 7}}, {5, 7}, {6}, 2},
      {{{5, 5}, {7, 7}, {6, 6}}, {5, 6, 7}, {4, 8}, 1},
      {{{3, 4}, {8, 9}, {1, 20}}, {1, 10, 20}, {0, 21}, 1},
      {{{1, 20}, {3, 4}}, {1, 4, 20}, {21}, 1},
      {{{5, 3}}, {}, {3, 4, 5}, 0},
      {{{UINT64_MAX, UINT64_MAX}, {0, 0}}, {0, UINT64_MAX}, {1}, 2},
  };
  for (const Case& test : cases) {
    IntervalSet set;
    for (const auto& [first, last] : test.inserted) set.insert(first, last);
    for (uint64_t number : test.in) EXPECT_TRUE(set.contains(number)) << number;
    for (uint64_t number : test.out) EXPECT_FALSE(set.contains(number)) << number;
    EXPECT_EQ(set.interval_count(), test.intervals);
  }
}

TEST(Contexts, TheCreatorCleansWhereItSentTheContext) {
  HandWorker worker;
  const ContextId id = worker.create();
  worker.backwards().will_send(id, worker_info(1));
  worker.backwards().will_send(id, worker_info(1));
  worker.backwards().will_send(id, worker.self());
  EXPECT_EQ(worker.said_to(1), Texts());
  worker.backwards().end_context(id);
  worker.backwards().end_context(id);
  EXPECT_EQ(worker.said_to(1), Texts({"CLEANUP_AUTOGRAD_CONTEXT 0.10.1 below 2"}));
  EXPECT_EQ(worker.backwards().counts(), BackwardCounts());
  EXPECT_EQ(worker.backwards().find_context(id), nullptr);
}

TEST(Contexts, TheCreatorCleansWhereOthersTookIt) {
  HandWorker worker;
  const ContextId first = worker.create();
  const ContextId second = worker.create();
  EXPECT_EQ(worker.from(2, kContextReached, ContextReached{second}), "");
  worker.backwards().end_context(second);
  EXPECT_EQ(worker.said_to(2), Texts({"CLEANUP_AUTOGRAD_CONTEXT 0.10.2 below 1"}));
  // One who tells it after the end, and one to whom it is sent after the end.
  worker.from(3, kContextReached, ContextReached{second});
  EXPECT_EQ(worker.said_to(3), Texts({"CLEANUP_AUTOGRAD_CONTEXT 0.10.2 below 1"}));
  worker.backwards().end_context(first);
  worker.backwards().will_send(first, worker_info(1));
  EXPECT_EQ(worker.said_to(1), Texts({"CLEANUP_AUTOGRAD_CONTEXT 0.10.1 below 3"}));
}

TEST(Contexts, WhoeverMeetsItThroughAnotherTellsTheCreator) {
  HandWorker worker;
  const std::shared_ptr<ContextData> context = worker.enter(1, 7, 2);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(worker.said_to(1), Texts({"CONTEXT_REACHED 1.11.7"}));
  EXPECT_EQ(worker.enter(1, 7, 3), context);
  EXPECT_NE(worker.enter(1, 8, 1), nullptr);  // from the creator itself, which knows
  EXPECT_EQ(worker.said_to(1), Texts());
}

TEST(Contexts, AnEndedOneDoesNotComeBack) {
  HandWorker worker;
  std::weak_ptr<ContextData> context = worker.enter(1, 7, 1);
  worker.enter(1, 9, 1);
  EXPECT_EQ(worker.from(1, kCleanupContext, CleanupContext{{worker_info(1)->id(), 7}, 3}), "");
  EXPECT_TRUE(context.expired());
  EXPECT_EQ(worker.enter(1, 7, 2), nullptr);
  EXPECT_EQ(worker.enter(1, 2, 2), nullptr);  // below those that have all ended
  EXPECT_NE(worker.enter(1, 3, 1), nullptr);
  EXPECT_NE(worker.enter(1, 8, 1), nullptr);
  // One that was never here is remembered, too; and one memory is enough for many.
  worker.from(1, kCleanupContext, CleanupContext{{worker_info(1)->id(), 20}, 20});
  EXPECT_EQ(worker.enter(1, 20, 2), nullptr);
  EXPECT_EQ(worker.enter(1, 15, 2), nullptr);
  EXPECT_EQ(worker.backwards().contexts().remembered(), 1u);
  EXPECT_EQ(worker.said_to(1), Texts());
}

TEST(Contexts, ALostCreatorEndsItsContexts) {
  HandWorker worker;
  worker.enter(1, 7, 1);
  worker.enter(2, 7, 2);
  const ContextId own = worker.create();
  worker.backwards().will_send(own, worker_info(1));
  worker.from(1, kCleanupContext, CleanupContext{{worker_info(1)->id(), 3}, 1});
  worker.lose(1);
  EXPECT_EQ(worker.backwards().counts().contexts, 2u);
  EXPECT_EQ(worker.backwards().contexts().remembered(), 0u);
  EXPECT_EQ(worker.enter(1, 8, 2), nullptr);
  EXPECT_EQ(worker.enter(1, 7, 2), nullptr);
  worker.backwards().end_context(own);  // worker1 need not be told
  EXPECT_EQ(worker.backwards().counts().contexts, 1u);
}

TEST(Contexts, WordsThatCannotBeCloseTheConnection) {
  HandWorker worker;
  worker.create();
  EXPECT_EQ(worker.from(1, kContextReached, ContextReached{{worker.self()->id(), 2}}), "Corrupt");  // never created
  EXPECT_EQ(worker.from(1, kContextReached, ContextReached{{worker.self()->id(), 0}}), "Corrupt");
  EXPECT_EQ(worker.from(1, kContextReached, ContextReached{{worker_info(2)->id(), 1}}), "Corrupt");
  EXPECT_EQ(worker.from(1, kCleanupContext, CleanupContext{{worker_info(2)->id(), 1}, 1}), "Corrupt");
  for (uint16_t kind = kContextReached.value; kind <= kPassEnd.value; ++kind) {
    EXPECT_EQ(worker.from(1, Message{.kind = {kind}, .body = {0xc1}}), "Corrupt") << kind;
  }
  EXPECT_EQ(worker.backwards().counts(), (BackwardCounts{.contexts = 1}));
}

TEST(Contexts, AWorkerThatStopsHasNone) {
  HandWorker worker;
  const ContextId own = worker.create();
  std::weak_ptr<ContextData> context = worker.enter(1, 7, 1);
  worker.stop();
  EXPECT_TRUE(context.expired());
  EXPECT_EQ(worker.backwards().find_context(own), nullptr);
  EXPECT_EQ(worker.enter(1, 8, 1), nullptr);
  EXPECT_THROW(worker.create(), Shutdown);
  worker.backwards().end_context(own);
}

}  // namespace
}  // namespace holdfast::test
