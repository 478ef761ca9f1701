// The job's secret: workers get it, and it shows nowhere.
#include <sys/stat.h>

#include <gtest/gtest.h>

#include <holdfast/tool/launcher_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

// All that others can see of a process, beside what the worker itself reads from the descriptor.
constexpr const char* kLookAround =
    "secret=$(cat /proc/self/fd/$HOLDFAST_SECRET_FD)\n"
    "note secret$RANK \"$secret\"\n"
    "tr '\\0' '\\n' < /proc/$$/cmdline > $DIR/seen_cmdline$RANK\n"
    "tr '\\0' '\\n' < /proc/$$/environ > $DIR/seen_environ$RANK\n"
    "tr '\\0' '\\n' < /proc/$PPID/cmdline > $DIR/seen_launcher_cmdline$RANK\n"
    "tr '\\0' '\\n' < /proc/$PPID/environ > $DIR/seen_launcher_environ$RANK\n"
    "echo ready\n";

std::string trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void expect_hidden(const TempFolder& folder, Launcher& launcher, const std::string& secret) {
  for (const char* place : {"cmdline", "environ", "launcher_cmdline", "launcher_environ"}) {
    for (const char* rank : {"0", "1"}) {
      const std::string seen = folder.read(std::string("seen_") + place + rank);
      EXPECT_NE(seen, "") << place;
      EXPECT_FALSE(contains(seen, secret)) << place;
    }
  }
  EXPECT_FALSE(contains(launcher.out(), secret));
  EXPECT_FALSE(contains(launcher.err(), secret));
}

TEST(RunSecret, IsMadeForEachJobAndShowsNowhere) {
  std::string before;
  for (int job = 0; job < 2; ++job) {
    TempFolder folder;
    Launcher launcher(folder, run_script({"-n", "2"}, kLookAround));
    ASSERT_EQ(launcher.wait(), 0) << launcher.err();
    const std::string secret = trimmed(folder.read("secret0"));
    EXPECT_EQ(secret.size(), 64u) << secret;
    EXPECT_EQ(secret, trimmed(folder.read("secret1")));
    EXPECT_NE(secret, before);
    before = secret;
    expect_hidden(folder, launcher, secret);
  }
}

TEST(RunSecret, ComesFromAFileWithTheRightMode) {
  TempFolder folder;
  const std::string secret = "a secret that was made elsewhere";
  folder.write("job.secret", secret + "\n");
  ::chmod(folder.path("job.secret").c_str(), 0644);
  Launcher refused(folder, run_script({"--secret-file", folder.path("job.secret")}, kLookAround));
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_TRUE(contains(refused.err(), "chmod 600")) << refused.err();
  EXPECT_FALSE(contains(refused.err(), secret));

  ::chmod(folder.path("job.secret").c_str(), 0600);
  Launcher launcher(folder, run_script({"-n", "2", "--secret-file", folder.path("job.secret")}, kLookAround));
  ASSERT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(trimmed(folder.read("secret0")), secret);
  expect_hidden(folder, launcher, secret);
}

TEST(RunSecret, IsNotMadeWhereItIsOfNoUse) {
  const Outcome plain = run(run_script({"--security", "plain"}, "echo [$HOLDFAST_SECRET_FD] $HOLDFAST_SECURITY"));
  EXPECT_EQ(plain.out, "[worker0] [] plain\n") << plain.err;
  const Outcome wrong = run({"run", "--security", "certificates", "true"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_TRUE(contains(wrong.err, "ca_file is missing")) << wrong.err;
}

}  // namespace
}  // namespace holdfast
