// Two launchers, as on two machines: their workers become one job if both can prove that they belong to it.
#include <sys/stat.h>

#include <gtest/gtest.h>

#include <holdfast/tool/launcher_test_support.h>
#include <holdfast/tool/role_test_support.h>
#include <holdfast/transport/tls_test_support.h>

namespace holdfast {
namespace {

using namespace holdfast::testing;

std::string name_of_callee() { return current_worker().name(); }

int call_the_other() {
  Options options = Options::from_env();
  options.join_timeout = std::chrono::seconds(std::stoi(std::getenv("JOIN_S")));
  Worker worker(options);
  const std::string other = worker.peer(1 - worker.rank()).call<name_of_callee>();
  fprintf(stderr, "met %s\n", other.c_str());
  worker.shutdown(kForever);
  return 0;
}
const test::Role call_role("call_the_other", call_the_other);

// The launchers of two nodes with one worker each, and with these options.
class TwoNodes {
 public:
  TwoNodes(const std::vector<std::string>& first, const std::vector<std::string>& second, int join_s)
      : join_s_(join_s), first_(folder_, command("0", first)), second_(other_folder_, command("1", second)) {}

  Launcher& first() { return first_; }
  Launcher& second() { return second_; }

 private:
  std::vector<std::string> command(const std::string& node, const std::vector<std::string>& options) const {
    std::vector<std::string> all = {"--nnodes", "2", "--node-rank", node, "--rendezvous", rendezvous_};
    all.insert(all.end(), options.begin(), options.end());
    return run_script(all, "export JOIN_S=" + std::to_string(join_s_) + "\n" + play("call_the_other"));
  }

  const int join_s_;
  const std::string rendezvous_ = free_rendezvous();
  TempFolder folder_, other_folder_;
  Launcher first_, second_;
};

void expect_met(const std::vector<std::string>& first, const std::vector<std::string>& second) {
  TwoNodes nodes(first, second, 60);
  EXPECT_EQ(nodes.first().wait(), 0) << nodes.first().err();
  EXPECT_EQ(nodes.second().wait(), 0) << nodes.second().err();
  EXPECT_TRUE(contains(nodes.first().err(), "met worker1")) << nodes.first().err();
  EXPECT_TRUE(contains(nodes.second().err(), "met worker0")) << nodes.second().err();
}

void expect_not_met(const std::vector<std::string>& first, const std::vector<std::string>& second,
                    const std::string& reason) {
  TwoNodes nodes(first, second, 2);
  EXPECT_NE(nodes.second().wait(), 0);
  EXPECT_NE(nodes.first().wait(), 0);
  EXPECT_TRUE(contains(nodes.second().err(), reason)) << nodes.second().err();
  EXPECT_FALSE(contains(nodes.first().err() + nodes.second().err(), "met worker"));
}

std::string secret_file(const TempFolder& folder, const std::string& secret) {
  folder.write(secret, secret + " that is long enough\n");
  ::chmod(folder.path(secret).c_str(), 0600);
  return folder.path(secret);
}

TEST(RunNodes, MeetWithTheSameSecretAndNotWithAnother) {
  const TempFolder folder;
  const std::string right = secret_file(folder, "a_secret"), wrong = secret_file(folder, "another_secret");
  expect_met({"--secret-file", right}, {"--secret-file", right});
  expect_not_met({"--secret-file", right}, {"--secret-file", wrong}, "secret");
}

std::vector<std::string> options_of(const Security& security) {
  return {"--ca-file",  security.ca_file,  "--cert-file", security.cert_file,
          "--key-file", security.key_file, "--security",  "certificates"};
}

TEST(RunNodes, MeetWithCertificatesOfOneAuthorityOnly) {
  const test::TestFolder folder;
  const test::TestAuthority authority(folder, "authority"), other_authority(folder, "other");
  const std::vector<std::string> one = options_of(authority.worker("one"));
  expect_met(one, options_of(authority.worker("two")));
  expect_not_met(one, options_of(other_authority.worker("stranger")), "certificate");
}

}  // namespace
}  // namespace holdfast
