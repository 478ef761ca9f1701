// A pass that this worker has started: when it completes, how it fails, and whom it tells.
#include <holdfast/backward/root_pass.h>

#include <holdfast/backward/backward_test_support.h>

namespace holdfast::test {
namespace {

SpawnedSend spawned(uint32_t rank, uint64_t send) { return {{rank}, {rank + 10}, {send}}; }

class RootPassTest : public ::testing::Test {
 protected:
  RootPassTest() : context(worker.create()) {}
  ~RootPassTest() override {
    worker.backwards().end_context(context);
    worker.run();
    EXPECT_EQ(worker.backwards().counts(), BackwardCounts());
    EXPECT_EQ(worker.script.graphs, 0);
  }
  // A SMART pass that has marked send 4 of worker1 and send 5 of worker2, and can go on when nobody marks any more.
  PassId start_marked() {
    worker.script.answers = {{.reached = {{worker_info(1), {4}}, {worker_info(2), {5}}}}, {}};
    worker.script.answers[1].result.held = true;
    worker.script.answers[1].result.waiting = 1;
    const PassId pass = worker.start(context, PassMode::smart);
    worker.run();
    worker.said_to(1);
    worker.said_to(2);
    worker.script.take_calls();
    return pass;
  }
  Report report(const PassId& pass, std::vector<SendNumber> processed, std::vector<SpawnedSend> more = {},
                PartStatus status = PartStatus::working) {
    return {.pass = pass, .processed = std::move(processed), .spawned = std::move(more), .status = status};
  }
  Texts take_done() { return std::exchange(worker.done, {}); }

  HandWorker worker;
  const ContextId context;
};

TEST_F(RootPassTest, APassOnOneWorker) {
  for (const PassMode mode : {PassMode::smart, PassMode::fast}) {
    const PassId pass = worker.start(context, mode);
    EXPECT_FALSE(worker.backwards().idle());
    worker.run();
    EXPECT_EQ(take_done(), Texts({"ok"}));
    EXPECT_TRUE(worker.backwards().idle());
    EXPECT_EQ(worker.backwards().next_wakeup(), kNever);  // nobody is woken for a pass that has ended
    EXPECT_GT(pass.counter, 0u);
  }
  EXPECT_EQ(worker.script.take_calls(), Texts({"walk roots", "run early roots", "walk roots all", "run roots"}));
}

TEST_F(RootPassTest, SmartSettlesWhenEveryMarkIsAccountedFor) {
  const PassId pass = start_marked();
  // worker2's report comes before that of worker1, which has spawned one of what it has processed.
  worker.from(2, kReport, report(pass, {{6}}, {}, PartStatus::done));
  worker.from(2, kReport, report(pass, {{5}}));  // and is not done any more
  worker.run();
  EXPECT_EQ(worker.script.take_calls(), Texts());
  worker.from(1, kReport, report(pass, {{4}}, {spawned(2, 6)}, PartStatus::held));
  EXPECT_EQ(worker.said_to(1), Texts({"MARKED"}));
  worker.script.answers = {{.result = {.gradients = {{worker_info(1), {4}, gradient("a")}}}}};
  worker.run();
  EXPECT_EQ(worker.script.take_calls(), Texts({"run"}));
  EXPECT_EQ(worker.said_to(1), Texts({"BACKWARD_AUTOGRAD 4 \"a\" settled"}));
  worker.from(2, kReport, report(pass, {}, {}, PartStatus::held));  // it has not heard
  EXPECT_EQ(worker.said_to(2), Texts({"MARKED"}));
  worker.from(2, kReport, report(pass, {}, {}, PartStatus::done));
  EXPECT_EQ(take_done(), Texts());
  worker.from(1, kReport, report(pass, {}, {}, PartStatus::done));
  EXPECT_EQ(take_done(), Texts({"ok"}));
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_END"}));
  EXPECT_EQ(worker.said_to(2), Texts({"PASS_END"}));
}

TEST_F(RootPassTest, SmartTakesOneRoundWhereNothingIsHeld) {
  worker.script.answers = {{.reached = {{worker_info(1), {4}}}},
                           {.result = {.gradients = {{worker_info(1), {4}, gradient("a")}}}}};
  const PassId pass = worker.start(context, PassMode::smart);
  worker.run();
  EXPECT_EQ(worker.script.take_calls(), Texts({"walk roots", "run early roots"}));
  EXPECT_EQ(worker.said_to(1), Texts({"BACKWARD_AUTOGRAD 4 \"a\""}));
  worker.from(1, kReport, report(pass, {{4}}, {}, PartStatus::done));
  EXPECT_EQ(take_done(), Texts({"ok"}));
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_END"}));
}

TEST_F(RootPassTest, FastEndsWhenEveryGradientIsAccountedFor) {
  worker.script.answers = {{}, {.result = {.gradients = {{worker_info(1), {4}, gradient("a")}}}}};
  const PassId pass = worker.start(context, PassMode::fast);
  worker.run();
  EXPECT_EQ(worker.said_to(1), Texts({"BACKWARD_AUTOGRAD 4 \"a\""}));
  worker.from(2, kReport, report(pass, {{5}}));
  EXPECT_EQ(take_done(), Texts());
  worker.from(1, kReport, report(pass, {{4}}, {spawned(2, 5)}));
  EXPECT_EQ(take_done(), Texts({"ok"}));
}

TEST_F(RootPassTest, FastFailsIfFunctionsStarve) {
  worker.script.answers = {{}, {.result = {.gradients = {{worker_info(1), {4}, gradient("a")}}}}};
  const PassId pass = worker.start(context, PassMode::fast);
  worker.run();
  Report last = report(pass, {{4}});
  last.waiting = 2;
  last.waiting_names = "AddBackward0, MulBackward0";
  worker.from(1, kReport, last);
  EXPECT_EQ(take_done(), Texts({"InvalidArgument : 2 functions on worker1 never received a gradient: AddBackward0, "
                                "MulBackward0; use SMART mode"}));
  EXPECT_EQ(worker.said_to(1), Texts({"BACKWARD_AUTOGRAD 4 \"a\"", "PASS_END"}));
}

TEST_F(RootPassTest, AMarkAndAGradientForItself) {
  worker.script.answers = {
      {.reached = {{worker.self(), {1}}}}, {.result = {.gradients = {{worker.self(), {1}, gradient("a")}}}}, {}, {}};
  worker.start(context, PassMode::smart);
  worker.run();
  EXPECT_EQ(worker.script.take_calls(), Texts({"walk roots", "run early roots", "walk 1", "run early 1=a"}));
  EXPECT_EQ(take_done(), Texts({"ok"}));
}

TEST_F(RootPassTest, EveryFailureEndsItOnceAndEverywhere) {
  struct Case {
    std::string name;
    std::function<void(HandWorker&, const PassId&)> happens;
    std::string done;
  };
  const Case cases[] = {
      {"an error elsewhere",
       [](HandWorker& worker, const PassId& pass) {
         worker.from(2, kPassError, PassError{pass, 6, "broken", "worker2", "std::runtime_error"});
       },
       "RemoteError worker2: broken"},
      {"a loss", [](HandWorker& worker, const PassId&) { worker.lose(2); },
       "WorkerLost worker2: worker2 was lost during a backward pass that it took part in"},
      {"cancelled", [](HandWorker& worker, const PassId& pass) { worker.backwards().cancel(pass); },
       "Cancelled : the pass was cancelled"},
      {"out of time", [](HandWorker& worker, const PassId&) { worker.advance(2s); },
       "Timeout : the backward pass 0.10.1/0.10.1 took longer than its timeout"},
      {"the context ends", [](HandWorker& worker, const PassId& pass) { worker.backwards().end_context(pass.context); },
       "Cancelled : context 0.10.1 has ended"},
      {"processed twice",
       [](HandWorker& worker, const PassId& pass) {
         worker.from(1, kReport, Report{.pass = pass, .processed = {{4}}});
       },
       "Corrupt worker1: worker1 has processed send 4 twice"},
      {"spawned twice",
       [](HandWorker& worker, const PassId& pass) {
         worker.from(1, kReport, Report{.pass = pass, .spawned = {spawned(2, 5)}});
       },
       "Corrupt worker1: worker1 has reached send 5 of rank 2 a second time"},
      {"the root's work",
       [](HandWorker& worker, const PassId& pass) {
         worker.from(1, kReport, Report{.pass = pass, .processed = {{0}}});
       },
       "Corrupt worker1: worker1 says that it has done the root's work"},
      {"marks when nobody marks any more",
       [](HandWorker& worker, const PassId& pass) {
         worker.from(2, kReport, Report{.pass = pass, .processed = {{5}}});
         worker.from(1, kReport, Report{.pass = pass, .spawned = {spawned(2, 6)}});
       },
       "Corrupt worker1: worker1 has marked sends after the marking was over"},
      {"it reaches a lost worker",
       [](HandWorker& worker, const PassId& pass) {
         worker.lose(3);
         worker.from(1, kReport, Report{.pass = pass, .spawned = {spawned(3, 1)}});
       },
       "WorkerLost worker3: a backward pass needs worker3, which is lost"},
      {"the worker stops", [](HandWorker& worker, const PassId&) { worker.stop(); }, "Shutdown : worker0 is shut down"},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.name);
    HandWorker worker;
    worker.script.answers = {{.reached = {{worker_info(1), {4}}, {worker_info(2), {5}}}}};
    const PassId pass = worker.start(worker.create(), PassMode::smart, 1s);
    worker.run();
    worker.from(1, kReport, Report{.pass = pass, .processed = {{4}}});
    worker.said_to(1);
    test.happens(worker, pass);
    worker.run();
    EXPECT_EQ(worker.done, Texts({test.done}));
    EXPECT_EQ(worker.backwards().counts().passes, 0u);
    EXPECT_EQ(worker.backwards().counts().parts, 0u);
    EXPECT_EQ(worker.script.graphs, 0);
    if (test.name == "the worker stops") continue;
    EXPECT_EQ(worker.said_to(1), Texts({"PASS_END"}));
    // worker2 was at work, and says so too late.
    if (test.name == "a loss") continue;
    worker.said_to(2);
    worker.from(2, kReport, Report{.pass = pass, .processed = {{5}}});
    EXPECT_EQ(worker.said_to(2), Texts({"PASS_END"}));
    worker.backwards().cancel(pass);
    worker.run();
    EXPECT_EQ(worker.done.size(), 1u);
  }
}

TEST_F(RootPassTest, AnErrorHereEndsItToo) {
  worker.script.answers = {{.error = "broken"}};
  worker.start(context, PassMode::fast);
  worker.run();
  EXPECT_EQ(take_done(), Texts({"RemoteError worker0: broken"}));
  const PassId pass = start_marked();
  worker.from(1, kReport, report(pass, {{4}}));
  worker.from(2, kReport, report(pass, {{5}}));
  worker.script.answers = {{.error = "broken again"}};
  worker.run();
  EXPECT_EQ(take_done(), Texts({"RemoteError worker0: broken again"}));
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_END"}));
}

TEST_F(RootPassTest, LateWordsToTheRootAreAnswered) {
  const PassId pass = worker.start(context, PassMode::fast);
  worker.run();
  take_done();
  worker.from(1, kReport, report(pass, {{4}}));
  worker.from(1, kPassError, PassError{pass, 6, "broken", "worker1", ""});
  EXPECT_EQ(worker.said_to(1), Texts({"PASS_END", "PASS_END"}));
  EXPECT_EQ(worker.from(1, kReport, report(pass, {}, {}, static_cast<PartStatus>(3))), "Corrupt");
  EXPECT_EQ(worker.from(1, kPassError, PassError{pass, 99, "", "", ""}), "Corrupt");
  EXPECT_EQ(take_done(), Texts());
}

TEST_F(RootPassTest, APassThatCannotStartSaysSo) {
  const ContextId unknown{worker_info(1)->id(), 3};
  EXPECT_EQ(worker.start(unknown, PassMode::smart).counter, 0u);
  EXPECT_EQ(take_done(), Texts({"InvalidArgument : context 1.11.3 has ended, or never reached worker0"}));
  HandWorker stopped;
  const ContextId context = stopped.create();
  stopped.stop();
  stopped.start(context, PassMode::smart);
  EXPECT_EQ(stopped.done, Texts({"Shutdown : worker0 is shut down"}));
}

TEST_F(RootPassTest, FunctionsThatWaitThoughAllHasArrivedAreAnError) {
  worker.script.answers = {{}, {.result = {.waiting = 1, .waiting_names = "x"}}};
  worker.start(context, PassMode::smart);
  worker.run();
  EXPECT_EQ(take_done(), Texts({"RemoteError worker0: 1 functions wait though every gradient has arrived: x"}));
}

TEST_F(RootPassTest, ALostCreatorFailsThePassesInItsContext) {
  worker.enter(1, 7, 1);
  worker.start({worker_info(1)->id(), 7}, PassMode::smart);
  worker.lose(1);
  EXPECT_EQ(take_done(), Texts({"WorkerLost worker1: context 1.11.7 has ended: worker1, which created it, is lost"}));
  worker.run();
  EXPECT_EQ(worker.script.take_calls(), Texts());
}

}  // namespace
}  // namespace holdfast::test
