// How a job of `holdfast run` ends: failures, signals, stubborn workers, readers that go away; and that in no case a
// process is left behind.
#include <gtest/gtest.h>

#include <holdfast/tool/fd.h>
#include <holdfast/tool/launcher_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

// Ends with the signal's number + 100, after it has made a file. `$DIR/up.N` says that it is ready.
constexpr const char* kPolite =
    "trap 'note int.$RANK; exit 102' INT; trap 'note term.$RANK; exit 115' TERM; trap 'note hup.$RANK; exit 101' HUP\n"
    "note up.$RANK $$; while :; do sleep 0.05; done";
// Takes note of SIGINT and goes on.
constexpr const char* kStubborn =
    "trap 'note int.$RANK' INT; trap '' TERM HUP\n"
    "note up.$RANK $$; while :; do sleep 0.05; done";

class RunEnd : public ::testing::Test {
 protected:
  // Waits until the workers have noted `name`.0, `name`.1, ...
  bool all_noted(const std::string& name, int count) {
    return eventually([&] {
      for (int rank = 0; rank < count; ++rank) {
        if (!folder_.has(name + "." + std::to_string(rank))) return false;
      }
      return true;
    });
  }
  void expect_gone(const std::string& name, int count) {
    for (int rank = 0; rank < count; ++rank) {
      const pid_t pid = folder_.read_pid(name + "." + std::to_string(rank));
      ASSERT_GT(pid, 0) << name << rank;
      EXPECT_FALSE(is_running(pid)) << name << rank;
    }
  }

  TempFolder folder_;
};

TEST_F(RunEnd, FirstFailureAsksTheOthersToEnd) {
  const std::string script = "[ $RANK = 1 ] && { await up.0; await up.2; exit 3; }\n";
  Launcher launcher(folder_, run_script({"-n", "3", "--grace", "3600"}, script + kPolite));
  EXPECT_EQ(launcher.wait(), 3) << "not the 115 of those that were asked to end";
  EXPECT_TRUE(folder_.has("term.0"));
  EXPECT_TRUE(folder_.has("term.2"));
  EXPECT_TRUE(contains(launcher.err(), "worker1 (pid ")) << launcher.err();
  EXPECT_FALSE(contains(launcher.err(), "status 115")) << launcher.err();
  EXPECT_FALSE(is_running(folder_.read_pid("up.0")));
}

TEST_F(RunEnd, StubbornWorkersAreKilledAfterTheGracePeriod) {
  const std::string script = "[ $RANK = 2 ] && { await up.0; await up.1; exit 5; }\n";
  Launcher launcher(folder_, run_script({"-n", "3", "--grace", "0.2"}, script + kStubborn));
  EXPECT_EQ(launcher.wait(), 5);
  EXPECT_TRUE(contains(launcher.err(), "killing worker0")) << launcher.err();
  expect_gone("up", 2);
}

TEST_F(RunEnd, SignalsArePassedOn) {
  const std::pair<int, std::string> cases[] = {{SIGINT, "int"}, {SIGTERM, "term"}, {SIGHUP, "hup"}};
  for (const auto& [signal, name] : cases) {
    TempFolder folder;
    Launcher launcher(folder, run_script({"-n", "2", "--grace", "3600"}, kPolite));
    ASSERT_TRUE(eventually([&] { return folder.has("up.0") && folder.has("up.1"); })) << launcher.err();
    launcher.signal(signal);
    EXPECT_EQ(launcher.wait(), 128 + signal);
    EXPECT_TRUE(folder.has(name + ".0")) << name;
    EXPECT_TRUE(folder.has(name + ".1")) << name;
    EXPECT_FALSE(contains(launcher.err(), "holdfast:")) << "what was asked for is no failure: " << launcher.err();
    EXPECT_FALSE(is_running(folder.read_pid("up.0")));
  }
}

TEST_F(RunEnd, SecondInterruptKills) {
  Launcher launcher(folder_, run_script({"-n", "2", "--grace", "3600"}, kStubborn));
  ASSERT_TRUE(all_noted("up", 2)) << launcher.err();
  launcher.signal(SIGINT);
  ASSERT_TRUE(all_noted("int", 2)) << launcher.err();
  EXPECT_TRUE(is_running(folder_.read_pid("up.0")));
  EXPECT_TRUE(is_running(folder_.read_pid("up.1")));
  EXPECT_FALSE(launcher.ended());
  // One that follows at once may be taken for an echo of the first, so go on.
  EXPECT_TRUE(eventually([&] {
    if (!launcher.ended()) launcher.signal(SIGINT);
    return launcher.ended();
  }));
  EXPECT_EQ(launcher.wait(), 130);
  expect_gone("up", 2);
}

TEST_F(RunEnd, StoppedWorkersEndToo) {
  Launcher launcher(folder_, run_script({"--grace", "3600"}, kPolite));
  ASSERT_TRUE(all_noted("up", 1)) << launcher.err();
  ::kill(folder_.read_pid("up.0"), SIGSTOP);
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143);
  EXPECT_TRUE(folder_.has("term.0"));
}

TEST_F(RunEnd, IgnoredHangupStaysIgnored) {
  // As with nohup: the shell's ignored signals are inherited by the launcher.
  std::vector<std::string> arguments = run_script({"-n", "1"}, "note up.0 $$; await go; exit 0");
  const std::string program = (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "holdfast").string();
  std::vector<std::string> nested = {"run", "--no-prefix", "sh", "-c", "trap '' HUP; echo $$ > $DIR/inner; exec \"$@\"",
                                     "sh",  program};
  nested.insert(nested.end(), arguments.begin(), arguments.end());
  Launcher launcher(folder_, nested);
  ASSERT_TRUE(all_noted("up", 1)) << launcher.err();
  ::kill(folder_.read_pid("inner"), SIGHUP);
  folder_.write("go", "");
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
}

TEST_F(RunEnd, WhatWorkersLeaveBehindIsKilled) {
  // One holds the worker's pipes open, the other does not.
  Launcher launcher(folder_, run_script({"-n", "2"},
                                        "sleep 1000 & note loud.$RANK $!\n"
                                        "sleep 1000 >/dev/null 2>&1 & note quiet.$RANK $!\n"
                                        "echo bye"));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(lines_of(launcher.out()).size(), 2u) << launcher.out();
  ASSERT_TRUE(all_noted("loud", 2));
  for (const char* name : {"loud.0", "loud.1", "quiet.0", "quiet.1"}) {
    const pid_t pid = folder_.read_pid(name);
    EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << name;
  }
}

TEST_F(RunEnd, OneThatEscapedDoesNotHoldTheLauncher) {
  Launcher launcher(
      folder_,
      run_script({}, "setsid sh -c 'echo $$ > $DIR/escaped; : > $DIR/out; exec sleep 1000' & await out; echo bye"));
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(launcher.out(), "[worker0] bye\n");
  const pid_t pid = folder_.read_pid("escaped");
  EXPECT_TRUE(is_running(pid)) << "else this test shows nothing";
  ::kill(pid, SIGKILL);
}

TEST_F(RunEnd, KilledLauncherTakesItsWorkersAlong) {
  Launcher launcher(folder_, run_script({"-n", "3"}, "trap '' INT TERM HUP; note up.$RANK $$; exec sleep 1000"));
  ASSERT_TRUE(all_noted("up", 3)) << launcher.err();
  launcher.signal(SIGKILL);
  EXPECT_EQ(launcher.wait(), 128 + SIGKILL);
  for (const char* name : {"up.0", "up.1", "up.2"}) {
    const pid_t pid = folder_.read_pid(name);
    EXPECT_TRUE(eventually([&] { return !is_running(pid); })) << name;
  }
}

TEST_F(RunEnd, ReaderOfStdoutGoesAway) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  Launcher launcher(folder_, run_script({"-n", "2"}, "note up.$RANK $$; while :; do echo hello; done"),
                    write_end.get());
  write_end.reset();
  ASSERT_TRUE(all_noted("up", 2)) << launcher.err();
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '[');
  read_end.reset();
  EXPECT_EQ(launcher.wait(), 128 + SIGPIPE);
  expect_gone("up", 2);
}

TEST_F(RunEnd, ReaderOfStdoutThatStallsDoesNotHoldUpSignals) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  // Far more than the pipes and the launcher's own buffer hold; nobody reads it.
  Launcher launcher(folder_,
                    run_script({"-n", "2", "--grace", "0.2"},
                               "note up.$RANK $$; head -c 8000000 /dev/zero | tr '\\0' '\\n'; note done.$RANK"),
                    write_end.get());
  write_end.reset();
  ASSERT_TRUE(all_noted("up", 2)) << launcher.err();
  launcher.signal(SIGINT);
  EXPECT_EQ(launcher.wait(), 130);
  expect_gone("up", 2);
  EXPECT_FALSE(folder_.has("done.0")) << "else it did not stall";
}

TEST_F(RunEnd, SlowReaderGetsEverything) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  Launcher launcher(folder_,
                    run_script({"--no-prefix"}, "note up.0 $$; head -c 300000 /dev/zero | tr '\\0' '\\n'; note done.0"),
                    write_end.get());
  write_end.reset();
  // The worker has ended before its output is read, most of which waits in the launcher: it must not be lost.
  ASSERT_TRUE(eventually([&] { return folder_.has("done.0") && !is_running(folder_.read_pid("up.0")); }));
  size_t total = 0;
  std::vector<char> buffer(4096);
  for (ssize_t count; (count = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;)
    total += static_cast<size_t>(count);
  EXPECT_EQ(total, 300000u);
  EXPECT_EQ(launcher.wait(), 0);
}

}  // namespace
}  // namespace holdfast
