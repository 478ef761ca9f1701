// `holdfast run` from the outside: arguments, environment, statuses, output. How jobs end is in run_end_test.cc.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include <holdfast/tool/fd.h>
#include <holdfast/tool/launcher_test_support.h>
#include <holdfast/transport/address.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

bool can_connect(const std::string& address) {
  const Endpoint endpoint = Endpoint::parse(address).take();
  sockaddr_storage storage;
  const socklen_t length = fill_sockaddr(endpoint, storage);
  Fd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0;
}

// ---- arguments

TEST(RunArguments, HelpAndVersion) {
  EXPECT_EQ(run({"--version"}).out, "holdfast 0.1.0\n");
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_TRUE(contains(help.out, "run ")) << help.out;
  const Outcome run_help = run({"run", "--help"});
  EXPECT_EQ(run_help.status, 0);
  EXPECT_TRUE(contains(run_help.out, "PROGRAM [ARGUMENTS...]")) << run_help.out;
  EXPECT_TRUE(contains(run_help.out, "--grace")) << run_help.out;
}

TEST(RunArguments, MistakesAreNamed) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "subcommand"},
      {{"walk"}, "walk"},
      {{"--bogus"}, "--bogus"},
      {{"run"}, "PROGRAM"},
      {{"run", "-n", "2", "--"}, "PROGRAM"},
      {{"run", "--bogus", "true"}, "--bogus"},
      {{"run", "-n", "0", "true"}, "0 not in range"},
      {{"run", "-n", "-3", "true"}, "-3"},
      {{"run", "-n", "many", "true"}, "many"},
      {{"run", "--color", "blue", "true"}, "blue"},
      {{"run", "--lease", "0", "true"}, "--lease"},
      {{"run", "--restart", "-1", "true"}, "--restart"},
      {{"run", "--restart", "often", "true"}, "often"},
      {{"run", "--name-prefix", "a b", "true"}, "--name-prefix"},
      {{"run", "--nnodes", "2", "true"}, "--rendezvous"},
      {{"run", "--nnodes", "2", "--node-rank", "2", "--rendezvous", "127.0.0.1:2", "true"}, "--node-rank"},
      {{"run", "--nnodes", "2", "--rendezvous", "127.0.0.1", "true"}, "no port"},
      {{"run", "--nnodes", "2", "--rendezvous", "127.0.0.1:0", "true"}, "port"},
      {{"run", "--nnodes", "2", "--rendezvous", "192.0.2.1:29400", "true"}, "neither a secret nor certificates"},
      {{"run", "--nnodes", "2", "--security", "plain", "--rendezvous", "0.0.0.0:29400", "true"}, "one address"},
  };
  for (const auto& [arguments, part] : cases) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << part;
    EXPECT_TRUE(contains(outcome.err, part)) << "expected " << part << " in: " << outcome.err;
    EXPECT_EQ(outcome.out, "") << part;
  }
}

TEST(RunArguments, ReachTheProgramUntouched) {
  const Outcome options = run({"run", "--no-prefix", "printf", "<%s>\\n", "--help", "-n", "7", "--", "--grace=x", ""});
  EXPECT_EQ(options.status, 0) << options.err;
  EXPECT_EQ(options.out, "<--help>\n<-n>\n<7>\n<-->\n<--grace=x>\n<>\n");
  const Outcome dashes = run({"run", "--no-prefix", "--", "printf", "<%s>\\n", "--version", "--"});
  EXPECT_EQ(dashes.status, 0) << dashes.err;
  EXPECT_EQ(dashes.out, "<--version>\n<-->\n");
}

TEST(RunArguments, ProgramThatCannotBeRun) {
  TempFolder folder;
  const Outcome missing = run({"run", "holdfast-no-such-program"});
  EXPECT_EQ(missing.status, 127);
  EXPECT_TRUE(contains(missing.err, "holdfast-no-such-program")) << missing.err;
  const Outcome missing_path = run({"run", folder.path("nothing")});
  EXPECT_EQ(missing_path.status, 127);
  EXPECT_TRUE(contains(missing_path.err, folder.path("nothing"))) << missing_path.err;

  folder.write("plain", "hello\n");
  const Outcome plain = run({"run", folder.path("plain")});
  EXPECT_EQ(plain.status, 126);
  EXPECT_TRUE(contains(plain.err, folder.path("plain"))) << plain.err;
  EXPECT_EQ(run({"run", folder.path("")}).status, 126);

  folder.write("script", "#!/no/such/interpreter\n");
  std::filesystem::permissions(folder.path("script"), std::filesystem::perms::owner_all);
  const Outcome script = run({"run", "-n", "3", folder.path("script")});
  EXPECT_EQ(script.status, 127);
  EXPECT_TRUE(contains(script.err, "interpreter")) << script.err;
}

// ---- environment

TEST(RunEnvironment, EachWorkerKnowsItsPlace) {
  // A launcher that itself runs under another one must not pass that one's values on.
  ::setenv("HOLDFAST_RANK", "77", 1);
  ::setenv("HOLDFAST_TEST_OTHER", "kept", 1);
  const Outcome outcome = run(run_script({"-n", "3", "--lease", "2.5", "--name-prefix", "node"},
                                         "echo $HOLDFAST_RANK $HOLDFAST_WORLD_SIZE $HOLDFAST_LOCAL_RANK $HOLDFAST_NAME "
                                         "$HOLDFAST_LEASE_MS [$HOLDFAST_SECURITY] $HOLDFAST_TEST_OTHER\n"
                                         "echo $HOLDFAST_JOB $HOLDFAST_COORDINATOR >&2\n"
                                         "env | grep -c ^HOLDFAST_RANK="));
  ::unsetenv("HOLDFAST_RANK");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> lines = lines_of(outcome.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines, (std::vector<std::string>{"[node0] 0 3 0 node0 2500 [automatic] kept", "[node0] 1", "[node1] 1",
                                             "[node1] 1 3 1 node1 2500 [automatic] kept", "[node2] 1",
                                             "[node2] 2 3 2 node2 2500 [automatic] kept"}));
  std::vector<std::string> places;
  for (const std::string& line : lines_of(outcome.err)) places.push_back(line.substr(line.find(' ')));
  ASSERT_EQ(places.size(), 3u);
  EXPECT_EQ(places[0], places[1]);
  EXPECT_EQ(places[0], places[2]);
  EXPECT_TRUE(contains(places[0], " 127.0.0.1:")) << places[0];
  EXPECT_EQ(places[0].find(' ', 1), 17u) << "the job is 16 hexadecimal digits: " << places[0];
}

TEST(RunEnvironment, WorkersShareTheCoresUnlessToldOtherwise) {
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before == nullptr ? "" : before;
  ::unsetenv("OMP_NUM_THREADS");
  const std::vector<std::string> script = run_script({"--no-prefix", "-n", "2"}, "echo $OMP_NUM_THREADS");
  const std::string share = std::to_string(std::max(1u, std::thread::hardware_concurrency() / 2));
  EXPECT_EQ(lines_of(run(script).out), (std::vector<std::string>{share, share}));
  ::setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_EQ(lines_of(run(script).out), (std::vector<std::string>{"7", "7"}));
  before == nullptr ? ::unsetenv("OMP_NUM_THREADS") : ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
}

TEST(RunEnvironment, SecondNodeUsesTheRendezvous) {
  const Outcome outcome = run(run_script(
      {"-n", "2", "--nnodes", "3", "--node-rank", "1", "--rendezvous", "192.0.2.1:29400", "--security", "plain"},
      "echo $HOLDFAST_RANK $HOLDFAST_WORLD_SIZE $HOLDFAST_LOCAL_RANK $HOLDFAST_NAME "
      "$HOLDFAST_COORDINATOR $HOLDFAST_SECURITY $HOLDFAST_JOB"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  std::vector<std::string> lines = lines_of(outcome.out);
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(lines,
            (std::vector<std::string>{"[worker2] 2 6 0 worker2 192.0.2.1:29400 plain rendezvous 192.0.2.1:29400",
                                      "[worker3] 3 6 1 worker3 192.0.2.1:29400 plain rendezvous 192.0.2.1:29400"}));
}

TEST(RunEnvironment, CoordinatorListens) {
  TempFolder folder;
  Launcher launcher(folder, run_script({}, "note coordinator $HOLDFAST_COORDINATOR; await go"));
  ASSERT_TRUE(eventually([&] { return folder.has("coordinator"); })) << launcher.err();
  const std::string address = lines_of(folder.read("coordinator")).at(0);
  EXPECT_TRUE(can_connect(address)) << address;
  folder.write("go", "");
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_FALSE(can_connect(address)) << address;
}

TEST(RunEnvironment, FirstNodeListensAtTheRendezvous) {
  Result<Listener> free_port = open_listener({});
  ASSERT_TRUE(free_port.ok());
  const std::string address = free_port->bound.text();
  {
    TempFolder folder;
    Launcher launcher(folder, run_script({"--nnodes", "2", "--rendezvous", address}, "true"));
    EXPECT_EQ(launcher.wait(), 1) << "the port is in use";
    EXPECT_TRUE(contains(launcher.err(), address)) << launcher.err();
  }
  ::close(free_port->fd);
  TempFolder folder;
  Launcher launcher(folder, run_script({"--nnodes", "2", "--rendezvous", address, "--job", "mine"},
                                       "note place \"$HOLDFAST_COORDINATOR $HOLDFAST_JOB\"; await go"));
  ASSERT_TRUE(eventually([&] { return folder.has("place"); })) << launcher.err();
  EXPECT_EQ(folder.read("place"), address + " mine\n");
  EXPECT_TRUE(can_connect(address)) << address;
  folder.write("go", "");
  EXPECT_EQ(launcher.wait(), 0);
}

TEST(RunEnvironment, NoDescriptorsButTheThreeAndTheSecret) {
  const Outcome outcome = run({"run", "-n", "3", "--no-prefix", "ls", "-l", "/proc/self/fd"});
  ASSERT_EQ(outcome.status, 0);
  std::map<std::string, int> found;
  for (const std::string& line : lines_of(outcome.out)) {
    if (const size_t arrow = line.find(" -> "); arrow != line.npos) ++found[line.substr(arrow + 4, 5)];
  }
  // ls itself has opened the one in /proc.
  EXPECT_EQ(found, (std::map<std::string, int>{{"/dev/", 3}, {"/memf", 3}, {"/proc", 3}, {"pipe:", 6}})) << outcome.out;
}

TEST(RunEnvironment, StdinIsEmptyAndLimitsAreOurs) {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit lower{.rlim_cur = 200, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  const Outcome outcome = run(run_script({"--no-prefix"}, "cat; ulimit -n"));
  // With two pipes each these are more than 200: the launcher must help itself.
  const Outcome many = run({"run", "-n", "110", "/bin/true"});
  ::setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(outcome.out, "200\n");
  EXPECT_EQ(many.status, 0) << many.err;
}

// Asked by the launcher, once for the job; the workers have nothing of it.
TEST(RunEnvironment, CoresAreKeptAwakeIfThatIsWanted) {
  const std::string file = "/dev/cpu_dma_latency";
  const std::vector<std::string> look = {"sh", "-c", "ls -l /proc/$PPID/fd /proc/$$/fd"};
  std::vector<std::string> arguments = {"run", "--no-prefix", "--keep-awake"};
  arguments.insert(arguments.end(), look.begin(), look.end());
  const Outcome outcome = run(arguments);
  const size_t found = outcome.out.find(file);
  if (::access(file.c_str(), W_OK) != 0) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(contains(outcome.err, file)) << outcome.err;
    return;
  }
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  ASSERT_NE(found, std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find(file, found + 1), std::string::npos) << outcome.out;
  arguments.erase(arguments.begin() + 2);
  EXPECT_FALSE(contains(run(arguments).out, file)) << "unless it is wanted";
}

// ---- statuses

TEST(RunStatus, ZeroIfAllAreWell) {
  const Outcome outcome = run({"run", "-n", "64", "/bin/true"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "");
}

TEST(RunStatus, ThatOfTheWorkerThatFailed) {
  const Outcome outcome = run(run_script({"-n", "3"}, "[ $RANK != 1 ] || exit 3"));
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(contains(outcome.err, "holdfast: worker1 (pid ")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, ") exited with status 3\n")) << outcome.err;
}

TEST(RunStatus, SignalIsNamed) {
  const Outcome outcome = run(run_script({"-n", "2"}, "ulimit -c 0; [ $RANK = 0 ] || kill -SEGV $$"));
  EXPECT_EQ(outcome.status, 128 + SIGSEGV);
  EXPECT_TRUE(contains(outcome.err, ") was killed by SIGSEGV")) << outcome.err;
}

// ---- output

TEST(RunOutput, LinesOfEightWorkersDoNotMix) {
  // Each line is written in two parts, to stdout and stderr in turn.
  const Outcome outcome = run(run_script({"-n", "8"},
                                         "i=0; while [ $i -lt 1000 ]; do\n"
                                         "printf 'worker %s says ' $RANK; printf 'number %s of many.\\n' $i\n"
                                         "printf 'worker %s warns ' $RANK >&2; printf 'of %s.\\n' $i >&2\n"
                                         "i=$((i + 1)); done"));
  ASSERT_EQ(outcome.status, 0);
  std::map<int, std::vector<std::string>> said, warned;
  for (const std::string& line : lines_of(outcome.out)) said[line.at(7) - '0'].push_back(line);
  for (const std::string& line : lines_of(outcome.err)) warned[line.at(7) - '0'].push_back(line);
  ASSERT_EQ(said.size(), 8u);
  for (int rank = 0; rank < 8; ++rank) {
    const std::string who = std::to_string(rank), start = "[worker" + who + "] worker " + who;
    ASSERT_EQ(said[rank].size(), 1000u);
    ASSERT_EQ(warned[rank].size(), 1000u);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(said[rank][i], start + " says number " + std::to_string(i) + " of many.");
      ASSERT_EQ(warned[rank][i], start + " warns of " + std::to_string(i) + ".");
    }
  }
}

TEST(RunOutput, LinesOfStdoutAndStderrDoNotMixWhereBothAreOnePipe) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd read_end(ends[0]), write_end(ends[1]);
  TempFolder folder;
  const std::string line(400, 'x');
  // More than a pipe holds, so that the launcher has to write in pieces.
  Launcher launcher(folder,
                    run_script({"-n", "2", "--no-prefix"}, "LONG=" + line +
                                                               "; i=0; while [ $i -lt 5000 ]; do\n"
                                                               "echo stdout $LONG; echo stderr $LONG >&2\n"
                                                               "i=$((i + 1)); done"),
                    write_end.get(), write_end.get());
  // Read only when the pipe is full: of pages, which may hold less than they could.
  ASSERT_TRUE(eventually([&] {
    pollfd room = {write_end.get(), POLLOUT, 0};
    return ::poll(&room, 1, 0) == 0;
  }));
  write_end.reset();
  std::string text;
  std::vector<char> buffer(1000);
  for (ssize_t count; (count = ::read(read_end.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  EXPECT_EQ(launcher.wait(), 0);
  std::map<std::string, int> counts;
  for (const std::string& found : lines_of(text)) ++counts[found];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"stdout " + line, 10000}, {"stderr " + line, 10000}}));
}

TEST(RunOutput, WithoutPrefix) {
  const Outcome outcome = run(run_script({"--no-prefix"}, "echo one; echo; echo two >&2; printf three"));
  EXPECT_EQ(outcome.out, "one\n\nthree\n");
  EXPECT_EQ(outcome.err, "two\n");
}

TEST(RunOutput, Colors) {
  ::setenv("NO_COLOR", "1", 1);  // loses against the option
  const Outcome always = run(run_script({"-n", "2", "--color", "always"}, "echo hello"));
  ::unsetenv("NO_COLOR");
  std::vector<std::string> lines = lines_of(always.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].substr(0, lines[0].find('[', 2)), lines[1].substr(0, lines[1].find('[', 2)));
  for (const std::string& line : lines) {
    EXPECT_TRUE(line.starts_with("\x1b[")) << line;
    EXPECT_TRUE(line.ends_with("]\x1b[0m hello")) << line;
  }
  EXPECT_EQ(run(run_script({"--color", "never"}, "echo hello")).out, "[worker0] hello\n");
  EXPECT_EQ(run(run_script({}, "echo hello")).out, "[worker0] hello\n") << "not a terminal";
}

TEST(RunOutput, LargeOutputWithoutLineEndsArrivesWhole) {
  const Outcome outcome = run(run_script({"--no-prefix"}, "head -c 3000000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), 'x'), 3000000);
  for (const std::string& line : lines_of(outcome.out)) EXPECT_LE(line.size(), 128u << 10);
}

}  // namespace
}  // namespace holdfast
