// `holdfast run --restart`: workers that fail are started again. With shells as workers, and with real ones: this test
// program again, in a role.
#include <algorithm>

#include <gtest/gtest.h>

#include <holdfast/base/error.h>
#include <holdfast/tool/fd.h>
#include <holdfast/tool/launcher_test_support.h>
#include <holdfast/tool/role_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;
using namespace std::chrono_literals;

// ---- shells as workers

// Says which life of its worker this is, from 1, in $LIFE, and notes its process in pid.RANK.LIFE.
constexpr const char* kCountLives =
    "LIFE=1; while [ -e \"$DIR/pid.$RANK.$LIFE\" ]; do LIFE=$((LIFE + 1)); done; note pid.$RANK.$LIFE $$\n";

std::string pid_file(int rank, int life) { return "pid." + std::to_string(rank) + "." + std::to_string(life); }

int count_lives(const TempFolder& folder, int rank) {
  int lives = 0;
  while (folder.has(pid_file(rank, lives + 1))) ++lives;
  return lives;
}

void expect_all_gone(const TempFolder& folder, int rank) {
  for (int life = 1; life <= count_lives(folder, rank); ++life) {
    EXPECT_FALSE(is_running(folder.read_pid(pid_file(rank, life)))) << "rank " << rank << ", life " << life;
  }
}

// "holdfast: worker1 (pid 123) ENDED\n", with the process of that life.
std::string message(const TempFolder& folder, int rank, int life, const std::string& ended) {
  const std::string pid = std::to_string(folder.read_pid(pid_file(rank, life)));
  return "holdfast: worker" + std::to_string(rank) + " (pid " + pid + ") " + ended + "\n";
}

// What the launcher itself said on stderr, where shells may have complained, too.
std::string said(const Launcher& launcher) {
  std::string all;
  for (const std::string& line : lines_of(launcher.err())) {
    if (line.starts_with("holdfast: ")) all += line + "\n";
  }
  return all;
}

TEST(RunRestart, KilledWorkerIsReplacedAndTheOthersGoOn) {
  TempFolder folder;
  const std::string script =
      "echo $HOLDFAST_NAME $HOLDFAST_RANK $HOLDFAST_LOCAL_RANK life $LIFE\n"
      "[ $RANK = 0 ] && { trap 'note term' TERM; await pid.1.2; }\n"
      "[ $RANK = 1 ] && [ $LIFE = 1 ] && { await pid.0.1; kill -KILL $$; }\n"
      "exit 0";
  Launcher launcher(folder, run_script({"-n", "2", "--restart", "1"}, kCountLives + script));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(said(launcher), message(folder, 1, 1, "was killed by SIGKILL; starting it again (restart 1 of 1)"));
  EXPECT_EQ(count_lives(folder, 0), 1);
  EXPECT_EQ(count_lives(folder, 1), 2);
  EXPECT_FALSE(folder.has("term"));
  EXPECT_TRUE(contains(launcher.out(), "[worker1] worker1 1 1 life 1\n")) << launcher.out();
  EXPECT_TRUE(contains(launcher.out(), "[worker1] worker1 1 1 life 2\n")) << launcher.out();
}

TEST(RunRestart, TheFailureAfterTheLastRestartEndsTheJob) {
  TempFolder folder;
  const std::string script =
      "[ $RANK = 1 ] && { await pid.0.1; exit $((10 + LIFE)); }\n"
      "trap 'exit 115' TERM; while :; do sleep 0.05; done";
  Launcher launcher(folder, run_script({"-n", "2", "--restart", "2", "--grace", "3600"}, kCountLives + script));
  EXPECT_EQ(launcher.wait(), 13);
  EXPECT_EQ(said(launcher), message(folder, 1, 1, "exited with status 11; starting it again (restart 1 of 2)") +
                                message(folder, 1, 2, "exited with status 12; starting it again (restart 2 of 2)") +
                                message(folder, 1, 3, "exited with status 13; no restart is left of 2") +
                                "holdfast: ending the other worker\n");
  EXPECT_EQ(count_lives(folder, 0), 1) << "what ends because it was asked to is not started again";
  EXPECT_EQ(count_lives(folder, 1), 3);
  expect_all_gone(folder, 0);
}

TEST(RunRestart, TheLimitIsThatOfAllWorkersTogether) {
  TempFolder folder;
  // One after the other: rank 0 fails when rank 1 has been started again.
  const std::string script =
      "[ $RANK$LIFE = 11 ] && exit 3\n"
      "[ $RANK$LIFE = 01 ] && { await pid.1.2; exit 4; }\n"
      "while :; do sleep 0.05; done";
  Launcher launcher(folder, run_script({"-n", "2", "--restart", "1"}, kCountLives + script));
  EXPECT_EQ(launcher.wait(), 4) << launcher.err();
  EXPECT_EQ(count_lives(folder, 0), 1);
  EXPECT_EQ(count_lives(folder, 1), 2);
  expect_all_gone(folder, 1);
}

TEST(RunRestart, WhatAWorkerLeftBehindIsKilledAndItsLastWordsComeFirst) {
  TempFolder folder;
  Launcher launcher(folder, run_script({"--restart", "1"}, std::string(kCountLives) +
                                                               "[ $LIFE = 2 ] && { echo two; await go; exit 0; }\n"
                                                               "sleep 1000 & note left $!; printf one; exit 1"));
  ASSERT_TRUE(eventually([&] { return folder.has(pid_file(0, 2)); })) << launcher.err();
  const pid_t left = folder.read_pid("left");
  EXPECT_TRUE(eventually([&] { return !is_running(left); }));
  EXPECT_FALSE(launcher.ended()) << "else it may have been killed with the second life";
  folder.write("go", "");
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(launcher.out(), "[worker0] one\n[worker0] two\n");
}

TEST(RunRestart, WhatItHadWrittenIsNotLostWithASlowReader) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  TempFolder folder;
  // As much as the launcher keeps (1 MiB) and the pipes hold (64 KiB each), so that the worker can end but its last
  // bytes wait in its pipes.
  const std::string script =
      "[ $LIFE = 2 ] && { printf two; exit 0; }\n"
      "head -c 1170000 /dev/zero | tr '\\0' '\\n'; head -c 60000 /dev/zero | tr '\\0' '\\n' >&2; exit 1";
  Launcher launcher(folder, run_script({"--no-prefix", "--restart", "1"}, kCountLives + script), write_end.get(),
                    write_end.get());
  write_end.reset();
  ASSERT_TRUE(eventually([&] { return folder.has(pid_file(0, 1)); }));
  const std::string process = "/proc/" + std::to_string(folder.read_pid(pid_file(0, 1)));
  ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(process); })) << "it was not reaped";
  std::string text;
  std::vector<char> buffer(4096);
  for (ssize_t count; (count = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1230000 + 2) << "with the launcher's message and the last line";
  EXPECT_TRUE(text.ends_with("\n\ntwo\n"));
}

TEST(RunRestart, ProgramThatIsGoneEndsTheJob) {
  TempFolder folder;
  folder.write("program",
               "#!/bin/sh\n"
               "[ $HOLDFAST_RANK = 0 ] && { trap 'touch $DIR/term; exit 0' TERM; touch $DIR/up; }\n"
               "[ $HOLDFAST_RANK = 0 ] && while :; do sleep 0.05; done\n"
               "until [ -e $DIR/up ]; do sleep 0.02; done; rm $DIR/program; exit 3\n");
  std::filesystem::permissions(folder.path("program"), std::filesystem::perms::owner_all);
  Launcher launcher(folder, {"run", "-n", "2", "--restart", "5", "--grace", "3600", folder.path("program")});
  EXPECT_EQ(launcher.wait(), 127);
  EXPECT_TRUE(contains(launcher.err(), "worker1 cannot be started again: ")) << launcher.err();
  EXPECT_TRUE(folder.has("term")) << "the others are asked to end, as at every failure";
}

// ---- the end of a job that restarts

TEST(RunRestart, NothingIsStartedAfterAnInterrupt) {
  TempFolder folder;
  Launcher launcher(folder, run_script({"-n", "2", "--restart", "100", "--grace", "3600"},
                                       std::string(kCountLives) + "trap 'exit 7' INT; while :; do sleep 0.05; done"));
  ASSERT_TRUE(eventually([&] { return count_lives(folder, 0) == 1 && count_lives(folder, 1) == 1; }));
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
  EXPECT_EQ(said(launcher), "");
  EXPECT_EQ(count_lives(folder, 0), 1);
  EXPECT_EQ(count_lives(folder, 1), 1);
}

// A worker that fails at once, again and again: the interrupt comes at any moment of a restart.
TEST(RunRestart, InterruptAmongRestartsLeavesNothingBehind) {
  for (int round = 0; round < 10; ++round) {
    TempFolder folder;
    Launcher launcher(folder, run_script({"-n", "2", "--restart", "1000000"},
                                         std::string(kCountLives) + "[ $RANK = 1 ] && exit 1\n"
                                                                    "trap 'exit 0' INT; while :; do sleep 0.05; done"));
    ASSERT_TRUE(eventually([&] { return count_lives(folder, 0) == 1 && count_lives(folder, 1) > round; }));
    launcher.signal(SIGINT);
    EXPECT_EQ(launcher.wait(), 130);
    expect_all_gone(folder, 0);
    expect_all_gone(folder, 1);
  }
}

// On the second machine a restart waits for the lease, here an hour: the interrupt comes before it.
TEST(RunRestart, InterruptBeforeARestartCallsItOff) {
  TempFolder folder;
  Launcher launcher(folder, run_script({"--nnodes", "2", "--node-rank", "1", "--rendezvous", "127.0.0.1:9", "--lease",
                                        "3600", "--restart", "1"},
                                       std::string(kCountLives) + "exit 3"));
  ASSERT_TRUE(eventually([&] { return contains(launcher.err(), "\n"); }));
  EXPECT_EQ(said(launcher),
            message(folder, 1, 1, "exited with status 3; starting it again in 3601 s (restart 1 of 1)"));
  EXPECT_FALSE(launcher.ended());
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
  EXPECT_EQ(count_lives(folder, 1), 1);
}

// ---- real workers

using test::expect_throw;
using test::Role;

uint32_t incarnation() { return current_worker().info().incarnation.value; }
void die() { ::raise(SIGKILL); }

// The second of two workers serves, the first one kills it and goes on with the one that comes in its place.
int kill_and_go_on() {
  Worker worker(Options::from_env());
  if (worker.rank() == 1) {
    worker.shutdown(kForever);
    return 0;
  }
  Peer first = worker.peer("worker1");
  const uint32_t before = first.call<incarnation>();
  const WorkerLost lost = expect_throw<WorkerLost>([&] { first.with_timeout(kForever).call<die>(); });
  fprintf(stderr, "%s\n", lost.what());
  std::optional<Peer> second;
  const bool found = eventually([&] {
    try {
      second = worker.peer("worker1");
      return true;
    } catch (const InvalidArgument&) {
      return false;  // it is not there yet
    }
  });
  if (!found || second->call<incarnation>() <= before) return 2;
  expect_throw<WorkerLost>([&] { first.call<incarnation>(); });
  worker.shutdown(kForever);
  return ::testing::Test::HasFailure() ? 3 : 0;
}
const Role kill_role("kill_and_go_on", kill_and_go_on);

int join_and_serve() {
  Worker worker(Options::from_env());
  worker.shutdown(kForever);
  return 0;
}
const Role join_role("join_and_serve", join_and_serve);

// With a lease of an hour the new worker can join only because the launcher has declared the old one lost before.
TEST(RunRestart, TheNewWorkerJoinsAtOnceAndIsANewOne) {
  TempFolder folder;
  Launcher launcher(folder, run_script({"-n", "2", "--lease", "3600", "--restart", "1"}, play("kill_and_go_on")));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_TRUE(contains(launcher.err(), "was killed by SIGKILL; starting it again (restart 1 of 1)\n"))
      << launcher.err();
  EXPECT_TRUE(contains(launcher.err(), "[worker0] ")) << "no WorkerLost: " << launcher.err();
}

// The only worker that was not in shutdown() fails: those who wait there are kept until it is back.
int fail_once_then_drive() {
  Worker worker(Options::from_env());
  if (worker.rank() == 0) {
    if (std::string(std::getenv("LIFE")) == "1") {
      worker.peer(1).call<incarnation>();
      die();
    }
    if (worker.peer(1).call<incarnation>() == 0) return 2;
  }
  worker.shutdown(kForever);
  return 0;
}
const Role drive_role("fail_once_then_drive", fail_once_then_drive);

TEST(RunRestart, ThoseInShutdownWaitForADriverThatComesBack) {
  TempFolder folder;
  Launcher launcher(folder, run_script({"-n", "3", "--lease", "3600", "--restart", "1"},
                                       std::string(kCountLives) + "export LIFE\n" + play("fail_once_then_drive")));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(count_lives(folder, 0), 2);
}

TEST(RunRestart, AWorkerThatCannotJoinUsesUpTheRestarts) {
  TempFolder folder;
  const std::string script = std::string(kCountLives) + "[ $RANK = 1 ] && export HOLDFAST_WORLD_SIZE=7\n";
  Launcher launcher(folder,
                    run_script({"-n", "2", "--lease", "3600", "--restart", "2"}, script + play("join_and_serve")));
  EXPECT_EQ(launcher.wait(), 99) << launcher.err();
  EXPECT_EQ(count_lives(folder, 1), 3);
  EXPECT_TRUE(contains(launcher.err(), "world size 7")) << launcher.err();
  expect_all_gone(folder, 0);
}

// Nobody tells the coordinator, which is with the other launcher: the new worker comes when the lease is over.
TEST(RunRestart, OnAnotherMachineAfterTheLease) {
  const std::string address = free_rendezvous();
  const auto options = [&](const std::string& node) -> std::vector<std::string> {
    return {"--nnodes", "2", "--node-rank", node, "--rendezvous", address, "--lease", "3", "--restart", "8"};
  };
  TempFolder folder, other_folder;
  Launcher launcher(folder, run_script(options("0"), play("kill_and_go_on")));
  Launcher other(other_folder, run_script(options("1"), play("kill_and_go_on")));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(other.wait(), 0) << other.err();
  EXPECT_TRUE(contains(other.err(), "was killed by SIGKILL; starting it again in 4 s (restart 1 of 8)\n"))
      << other.err();
  EXPECT_TRUE(contains(launcher.err(), "the lease")) << launcher.err();
}

}  // namespace
}  // namespace holdfast
