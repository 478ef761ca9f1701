// `holdfast run --faults`: from the outside. What the faults do is tested where they are made. And a disk that is full.
#include <gtest/gtest.h>

#include <holdfast/tool/launcher_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

std::vector<std::string> show_faults(const std::string& faults) {
  return {"run", "-n", "1", "--no-prefix", "--faults", faults, "sh", "-c", "echo \"<$HOLDFAST_FAULTS>\""};
}

TEST(RunFaults, ReachTheWorkersAsText) {
  const Outcome text = run(show_faults("seed=7 messages_to_fail=CALL peer=worker1 drop=0.5"));
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out, "<seed=7 messages_to_fail=CALL peer=worker1 drop=0.5>\n");

  TempFolder folder;
  folder.write("faults", "# mine\nseed=7\nmessages_to_delay=CLEANUP_AUTOGRAD_CONTEXT:200ms\n");
  const Outcome file = run(show_faults(folder.path("faults")));
  EXPECT_EQ(file.status, 0) << file.err;
  EXPECT_EQ(file.out, "<# mine\nseed=7\nmessages_to_delay=CLEANUP_AUTOGRAD_CONTEXT:200ms\n>\n");
}

TEST(RunFaults, MistakesAreNamedBeforeAnythingStarts) {
  const std::pair<std::string, std::string> cases[] = {
      {"messages_to_fail=CALLS", "CALL, REPLY, CANCEL, REMOTE_CALL"},
      {"messages_to_fail=CALLS", "BACKWARD_AUTOGRAD"},
      {"messages_to_delay=CALL:-1s", "negative"},
      {"dorp=0.1", "duplicate"},
      {"kill=2", "0 to 1"},
      {"/nowhere/faults", "/nowhere/faults"},
  };
  for (const auto& [faults, part] : cases) {
    const Outcome outcome = run(show_faults(faults));
    EXPECT_EQ(outcome.status, 2) << faults;
    EXPECT_TRUE(contains(outcome.err, part)) << "expected " << part << " in: " << outcome.err;
    EXPECT_EQ(outcome.out, "") << faults;
  }
}

// What the workers print goes to a file on a full disk: the job ends, and says why.
TEST(RunFaults, AFullDiskForTheOutputEndsTheJob) {
  TempFolder folder;
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Launcher launcher(folder, {"run", "-n", "2", "sh", "-c", "while :; do echo hello; done"}, full);
  ::close(full);
  EXPECT_EQ(launcher.wait(), 1);
  EXPECT_TRUE(contains(launcher.err(), "cannot write to stdout: No space left on device")) << launcher.err();
}

// The same for stderr only: the job goes on.
TEST(RunFaults, AFullDiskForTheErrorsDoesNotEndTheJob) {
  TempFolder folder;
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Launcher launcher(folder, {"run", "--no-prefix", "sh", "-c", "echo lost >&2; echo kept"}, -1, full);
  ::close(full);
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(launcher.out(), "kept\n");
}

}  // namespace
}  // namespace holdfast
