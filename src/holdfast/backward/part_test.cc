// A part in a pass that worker1 has started: what it answers to marks and gradients, and to words that are late,
// repeated, unknown or wrong.
#include <holdfast/backward/part.h>

#include <holdfast/backward/backward_test_support.h>

namespace holdfast::test {
namespace {

PassHeader header(PassMode mode, uint64_t counter = 1) {
  return {.pass = {.context = {worker_info(1)->id(), 7}, .root = worker_info(1)->id(), .counter = counter},
          .root = *worker_info(1),
          .mode = mode};
}
Mark mark(std::vector<SendNumber> sends, uint64_t counter = 1) { return {header(PassMode::smart, counter), sends}; }
GradientBody gradient_for(uint64_t send, PassMode mode, uint64_t counter = 1) {
  return {.header = header(mode, counter), .send = {send}, .body = {'g'}};
}
PassOnly end(uint64_t counter = 1) { return {header(PassMode::smart, counter).pass}; }

class PartTest : public ::testing::Test {
 protected:
  PartTest() { worker.enter(1, 7, 1); }
  // In whatever state a test ends, the end of the context leaves nothing.
  ~PartTest() override {
    worker.from(1, kCleanupContext, CleanupContext{{worker_info(1)->id(), 7}, 8});
    worker.run();
    EXPECT_EQ(worker.backwards().counts(), BackwardCounts());
    EXPECT_EQ(worker.script.graphs, 0);
    EXPECT_TRUE(worker.backwards().idle());
  }
  Texts calls() { return worker.script.take_calls(); }

  HandWorker worker;
};

TEST_F(PartTest, SmartMarksThenGradientsThenDone) {
  worker.script.answers = {{.reached = {{worker_info(2), {9}}, {worker_info(1), {4}}, {worker_info(2), {10}}}},
                           {},
                           {.result = {.gradients = {{worker_info(2), {9}, gradient("a")}}}},
                           {.result = {.gradients = {{worker_info(2), {10}, gradient("b")}}}}};
  EXPECT_EQ(worker.from(1, kMark, mark({{3}, {5}})), "");
  EXPECT_FALSE(worker.backwards().idle());
  EXPECT_NE(worker.backwards().describe(), "");
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"MARK 4", "REPORT 3 5 -> 2:9 1:4 2:10"}));
  EXPECT_EQ(worker.said_to(2), Texts({"MARK 9 10"}));
  worker.from(2, kMark, mark({{6}}));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 6 ->"}));
  EXPECT_EQ(calls(), Texts({"walk 3 5", "walk 6"}));
  EXPECT_EQ(worker.backwards().counts().sends_outstanding, 3u);

  worker.from(2, kGradient, gradient_for(5, PassMode::smart));
  worker.from(1, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(calls(), Texts({"run early 5=g 3=g"}));
  EXPECT_EQ(worker.said_to(1), Texts());
  EXPECT_EQ(worker.said_to(2), Texts({"BACKWARD_AUTOGRAD 9 \"a\""}));
  worker.from(2, kGradient, gradient_for(6, PassMode::smart));
  worker.run();
  EXPECT_EQ(worker.said_to(2), Texts({"BACKWARD_AUTOGRAD 10 \"b\""}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT -> done"}));
  worker.from(1, kPassEnd, end());
  EXPECT_EQ(worker.backwards().counts(), (BackwardCounts{.contexts = 1}));
  EXPECT_EQ(worker.script.graphs, 0);
}

// Those of a pipeline's first micro-batches leave while it works on the others.
TEST_F(PartTest, AGradientLeavesDuringTheRunAndTheRestIsSaidAfterIt) {
  const std::vector<RemoteSend> reached = {{worker_info(2), {9}}, {worker_info(2), {10}}, {worker_info(1), {4}}};
  Texts said_during;
  worker.script.answers = {{.reached = reached},
                           {.early = {{worker_info(2), {9}, gradient("a")}},
                            .result = {.gradients = {{worker_info(1), {4}, gradient("b")}}}}};
  worker.script.after_early = [&] { said_during = worker.said_to(2); };
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(said_during, Texts({"BACKWARD_AUTOGRAD 9 \"a\""}));
  EXPECT_EQ(worker.said_to(2), Texts({"MARK 10"}));  // not 9, and 9 not again
  EXPECT_EQ(worker.said_to(1), Texts({"BACKWARD_AUTOGRAD 4 \"b\"", "REPORT 3 -> 2:9 2:10 1:4 done"}));
}

TEST_F(PartTest, FastReportsWhatLeftDuringTheRun) {
  worker.script.answers = {{},
                           {.early = {{worker_info(2), {9}, gradient("a")}},
                            .result = {.gradients = {{worker_info(2), {10}, gradient("b")}}}}};
  worker.from(2, kGradient, gradient_for(3, PassMode::fast));
  worker.run();
  EXPECT_EQ(worker.said_to(2), Texts({"BACKWARD_AUTOGRAD 9 \"a\"", "BACKWARD_AUTOGRAD 10 \"b\""}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 3 -> 2:9 2:10"}));
}

// The pass ends while the run is under way.
TEST_F(PartTest, NothingLeavesARunWhosePassHasEnded) {
  worker.script.answers = {{},
                           {.early = {{worker_info(2), {9}, gradient("a")}},
                            .result = {.gradients = {{worker_info(2), {10}, gradient("b")}}}}};
  worker.from(2, kGradient, gradient_for(3, PassMode::fast));
  worker.script.during = [&] {
    if (worker.script.calls.size() == 2) worker.from(1, kPassEnd, end());
  };
  worker.run();
  worker.script.during = nullptr;
  EXPECT_EQ(worker.said_to(2), Texts());
  EXPECT_EQ(worker.said_to(1), Texts());
}

TEST_F(PartTest, AGradientMarksItsSend) {
  worker.script.answers = {{.reached = {{worker_info(2), {9}}, {worker_info(2), {10}}, {worker_info(1), {4}}}},
                           {.result = {.gradients = {{worker_info(2), {9}, gradient("a")}}}}};
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk 3", "run early 3=g"}));
  EXPECT_EQ(worker.said_to(2), Texts({"MARK 10", "BACKWARD_AUTOGRAD 9 \"a\""}));  // the gradient says MARK 9, too
  EXPECT_EQ(worker.said_to(1), Texts({"MARK 4", "REPORT 3 -> 2:9 2:10 1:4 done"}));
  // Somebody else reaches another send: it is not done any more.
  worker.from(2, kMark, mark({{6}}));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 6 ->"}));
}

TEST_F(PartTest, WhatIsHeldRunsWhenNobodyMarksAnyMore) {
  worker.script.answers.resize(4);
  worker.script.answers[1].result.held = true;
  worker.script.answers[1].result.waiting = 1;
  worker.script.answers[3].result.held = true;
  worker.script.answers[3].result.waiting = 1;
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 3 -> held"}));
  worker.from(2, kMark, mark({{4}}));  // this may let it go
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 4 -> held"}));
  EXPECT_EQ(calls(), Texts({"walk 3", "run early 3=g", "walk 4", "run early"}));

  worker.script.answers = {{.result = {.gradients = {{worker_info(2), {9}, gradient("a")}}, .waiting = 1}}};
  worker.from(1, kMarked, end());
  worker.run();
  worker.from(2, kGradient, gradient_for(4, PassMode::smart));
  worker.run();
  EXPECT_EQ(calls(), Texts({"run", "run 4=g"}));
  EXPECT_EQ(worker.said_to(2), Texts({"BACKWARD_AUTOGRAD 9 \"a\" settled"}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT -> done"}));
}

TEST_F(PartTest, AGradientMaySayThatNobodyMarksAnyMore) {
  worker.script.answers.resize(2);
  worker.script.answers[1].result.held = true;
  worker.script.answers[1].result.waiting = 1;
  worker.from(1, kMark, mark({{4}}));
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 4 3 -> held"}));
  GradientBody last = gradient_for(4, PassMode::smart);
  last.settled = true;
  worker.from(2, kGradient, last);
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk 4 3", "run early 3=g", "run 4=g"}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT -> done"}));
  worker.from(1, kMarked, end());  // it had been sent meanwhile
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts());
}

TEST_F(PartTest, ThatNobodyMarksAnyMoreMayComeDuringARun) {
  worker.script.answers.resize(2);
  worker.script.answers[1].result.held = true;
  worker.script.answers[1].result.waiting = 1;
  worker.script.during = [this] {
    worker.script.during = nullptr;
    worker.from(1, kMarked, end());
  };
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk 3", "run early 3=g", "run"}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 3 ->", "REPORT -> done"}));
}

TEST_F(PartTest, FastWalksAllOnceAndReportsEachRun) {
  worker.script.answers = {
      {}, {.result = {.gradients = {{worker_info(2), {9}, gradient("a")}}, .waiting = 2, .waiting_names = "x, y"}}, {}};
  worker.from(2, kGradient, gradient_for(3, PassMode::fast));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 3 -> 2:9 waiting 2 x, y"}));
  worker.from(2, kGradient, gradient_for(4, PassMode::fast));
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk all", "run 3=g", "run 4=g"}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 4 ->"}));
}

TEST_F(PartTest, AttachmentsTravelUncopied) {
  static const std::string kBytes = "tensor";
  const auto* data = reinterpret_cast<const uint8_t*>(kBytes.data());
  LeavingGradient leaving{worker_info(2), {9}, gradient("a")};
  leaving.gradient.attachments.push_back({nullptr, data, kBytes.size()});
  worker.script.answers.resize(2);
  worker.script.answers[1].result.gradients.push_back(std::move(leaving));
  worker.from(2, kGradient, gradient_for(3, PassMode::fast));
  worker.run();
  EXPECT_EQ(worker.said_to(2), Texts({"BACKWARD_AUTOGRAD 9 \"a\" +tensor"}));
}

TEST_F(PartTest, WhatArrivesDuringARunIsForTheNext) {
  worker.script.during = [this] {
    worker.script.during = nullptr;
    worker.from(2, kMark, mark({{4}}));
    EXPECT_EQ(worker.posted.size(), 0u);  // one at a time
  };
  worker.from(1, kMark, mark({{3}}));
  worker.from(1, kMark, mark({{5}}, 2));  // another pass of the same context: it waits, too
  EXPECT_EQ(worker.posted.size(), 1u);
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk 3", "walk 5", "walk 4"}));
  EXPECT_EQ(worker.said_to(1), Texts({"REPORT 3 ->", "REPORT 5 ->", "REPORT 4 ->"}));
}

TEST_F(PartTest, AnErrorGoesToTheRootOnce) {
  worker.script.answers = {{.error = "broken"}};
  worker.from(1, kMark, mark({{3}}));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_ERROR RemoteError worker0: broken"}));
  worker.from(2, kMark, mark({{4}}));
  worker.from(2, kMark, mark({{4}}));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts());
  EXPECT_EQ(calls(), Texts({"walk 3"}));
  worker.from(1, kPassEnd, end());
  EXPECT_EQ(worker.backwards().counts(), (BackwardCounts{.contexts = 1}));
}

TEST_F(PartTest, LateWordsOfAnEndedPassAreDropped) {
  worker.from(1, kMark, mark({{3}}));
  worker.from(1, kPassEnd, end());
  worker.run();  // what was posted before finds it ended
  worker.from(2, kMark, mark({{4}}));
  worker.from(2, kGradient, gradient_for(3, PassMode::smart));
  worker.from(2, kGradient, gradient_for(3, PassMode::fast));
  worker.from(1, kPassEnd, end());
  worker.from(1, kPassEnd, end(5));  // its words come later
  worker.from(2, kGradient, gradient_for(3, PassMode::fast, 5));
  worker.run();
  EXPECT_EQ(calls(), Texts());
  EXPECT_EQ(worker.said_to(1), Texts());
  EXPECT_EQ(worker.backwards().counts(), (BackwardCounts{.contexts = 1}));
}

TEST_F(PartTest, AnEndDuringARunLeavesNothing) {
  worker.script.during = [this] { worker.from(1, kPassEnd, end()); };
  worker.script.answers = {{.reached = {{worker_info(2), {9}}}}};
  worker.from(1, kMark, mark({{3}}));
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts());
  EXPECT_EQ(worker.said_to(2), Texts());
  EXPECT_EQ(worker.script.graphs, 0);
}

TEST_F(PartTest, WordsThatDoNotFitFailThePass) {
  struct Case {
    std::string name;
    Message message;
    std::string answer;
  };
  const auto gradient_message = [](uint64_t send, PassMode mode, uint64_t counter) {
    return wire::encode_message(kGradient, gradient_for(send, mode, counter));
  };
  // Pass 1 has send 3 marked, and a gradient for 5; pass 2 has had a FAST gradient for 3.
  const Case cases[] = {
      {"marked twice", wire::encode_message(kMark, mark({{3}})), "Corrupt worker0: a second MARK for send 3"},
      {"send 0", wire::encode_message(kMark, mark({{0}})), "Corrupt worker0: a MARK that cannot be, for send 0"},
      {"marked by its gradient, then twice", wire::encode_message(kMark, mark({{5}})),
       "Corrupt worker0: a second MARK for send 5"},
      {"FAST, marked", wire::encode_message(kMark, mark({{4}}, 2)),
       "Corrupt worker0: a MARK that cannot be, for send 4"},
      {"FAST, twice", gradient_message(3, PassMode::fast, 2), "Corrupt worker0: a second gradient for send 3"},
      {"FAST, send 0", gradient_message(0, PassMode::fast, 2), "Corrupt worker0: a gradient for send 0"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    HandWorker fresh;
    fresh.enter(1, 7, 1);
    fresh.from(1, kMark, mark({{3}}));
    fresh.from(1, kGradient, gradient_for(5, PassMode::smart));
    fresh.from(2, kGradient, gradient_for(3, PassMode::fast, 2));
    fresh.run();
    fresh.said_to(1);
    EXPECT_EQ(fresh.from(2, test.message), "");
    fresh.run();
    EXPECT_EQ(fresh.said_to(1), Texts({"PASS_ERROR " + test.answer}));
  }
}

TEST_F(PartTest, AContextThatIsNotKnownFailsThePass) {
  Mark unknown = mark({{3}});
  unknown.header.pass.context.counter = 8;
  worker.from(2, kMark, unknown);
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_ERROR InvalidArgument worker0: context 1.11.8 is not known on worker0"}));
  // One that has ended: the root will hear of that by itself.
  worker.from(1, kCleanupContext, CleanupContext{{worker_info(1)->id(), 8}, 1});
  worker.from(2, kMark, unknown);
  EXPECT_EQ(worker.said_to(1), Texts());
}

TEST_F(PartTest, WordsThatCannotBeCloseTheConnection) {
  Mark other_root = mark({{3}});
  other_root.header.root = *worker_info(2);
  EXPECT_EQ(worker.from(2, kMark, other_root), "Corrupt");
  EXPECT_EQ(worker.from(2, kMark, mark({{3}}, 0)), "Corrupt");
  GradientBody mode = gradient_for(3, PassMode::fast);
  mode.header.mode = static_cast<PassMode>(2);
  EXPECT_EQ(worker.from(2, kGradient, mode), "Corrupt");
  EXPECT_EQ(worker.from(2, kPassEnd, end()), "Corrupt");  // not the root
  EXPECT_EQ(worker.from(2, kMarked, end()), "Corrupt");   // nor for this
  EXPECT_EQ(worker.from(2, kReport, Report{.pass = end().pass}), "Corrupt");
  EXPECT_EQ(worker.from(2, kPassError, PassError{.pass = end().pass, .code = 3}), "Corrupt");
  EXPECT_EQ(worker.backwards().counts(), (BackwardCounts{.contexts = 1}));
}

TEST_F(PartTest, ALostRootEndsThePart) {
  worker.enter(2, 1, 2);
  Mark of_worker2 = mark({{3}});
  of_worker2.header.pass = {.context = {worker_info(1)->id(), 7}, .root = worker_info(2)->id(), .counter = 1};
  of_worker2.header.root = *worker_info(2);
  worker.from(3, kMark, of_worker2);
  worker.from(1, kMark, mark({{3}}));
  EXPECT_EQ(worker.backwards().counts().parts, 2u);
  worker.lose(2);
  EXPECT_EQ(worker.backwards().counts().parts, 1u);
  worker.from(3, kMark, of_worker2);
  EXPECT_EQ(worker.backwards().counts().parts, 1u);
  worker.run();
  EXPECT_EQ(calls(), Texts({"walk 3"}));
}

TEST_F(PartTest, ManySendsGoInPieces) {
  worker.script.answers.resize(1);
  for (uint64_t i = 1; i <= 600; ++i) worker.script.answers[0].reached.push_back({worker_info(2), {i}});
  worker.from(1, kMark, mark({{3}}));
  worker.run();
  const Texts marks = worker.said_to(2);
  const Texts reports = worker.said_to(1);
  ASSERT_EQ(marks.size(), 3u);
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].substr(0, 12), "REPORT -> 2:");
  EXPECT_EQ(reports[2].substr(0, 14), "REPORT 3 -> 2:");
}

}  // namespace
}  // namespace holdfast::test
