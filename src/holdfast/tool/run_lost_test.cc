// `holdfast run` tells the coordinator of workers whose process has ended, so that the others learn at once and not
// after a lease.
#include <atomic>
#include <future>
#include <memory>

#include <gtest/gtest.h>

#include <holdfast/base/error.h>
#include <holdfast/rpc/worker.h>
#include <holdfast/tool/launcher_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

// Holds its call under way until it is told not to.
std::atomic<bool> started, released;
int hold() {
  started = true;
  eventually([] { return released.load(); });
  return 1;
}

// This process takes part in the job in place of the two shells that the launcher sees.
std::unique_ptr<Worker> join(const std::string& coordinator, int rank) {
  Options options;
  options.rank = rank;
  options.world_size = 2;
  options.coordinator = coordinator;
  options.job = "lost";
  return std::make_unique<Worker>(options);
}

// With a lease of an hour nothing but the launcher's word can end the second worker's life.
void expect_lost(const std::string& how_it_ends, int status, const std::string& text) {
  TempFolder folder;
  const std::string script = "[ $RANK = 1 ] && { await end; " + how_it_ends + "; }\n" +
                             "trap '' TERM; note coordinator $HOLDFAST_COORDINATOR; await go";
  Launcher launcher(
      folder,
      run_script({"-n", "2", "--lease", "3600", "--grace", "3600", "--job", "lost", "--security", "plain"}, script));
  ASSERT_TRUE(eventually([&] { return folder.has("coordinator"); })) << launcher.err();
  const std::string coordinator = lines_of(folder.read("coordinator")).at(0);
  auto joining = std::async(std::launch::async, [&] { return join(coordinator, 1); });
  std::unique_ptr<Worker> worker = join(coordinator, 0);
  std::unique_ptr<Worker> other = joining.get();
  started = released = false;
  Future<int> call = worker->peer(1).with_timeout(kForever).async<hold>();
  ASSERT_TRUE(eventually([] { return started.load(); }));

  folder.write("end", "");
  try {
    call.get();
    ADD_FAILURE() << "the call outlived the worker's process";
  } catch (const WorkerLost& lost) {
    EXPECT_TRUE(contains(lost.what(), text)) << lost.what();
  }
  released = true;
  folder.write("go", "");
  EXPECT_EQ(launcher.wait(), status) << launcher.err();
}

TEST(RunLost, WorkerThatFailed) { expect_lost("exit 7", 7, "exited with status 7"); }
TEST(RunLost, WorkerThatWasKilled) { expect_lost("kill -KILL $$", 137, "was killed by SIGKILL"); }
TEST(RunLost, WorkerThatEndedWellButDidNotLeave) { expect_lost("exit 0", 0, "exited with status 0"); }

}  // namespace
}  // namespace holdfast
