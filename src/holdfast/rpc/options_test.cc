// Options from the environments of launchers, and what validate() refuses.
#include <holdfast/rpc/rpc_test_support.h>

namespace holdfast::options_test {
namespace {

using namespace test;

// The environment with these variables and no other that Options reads; put back at the end.
class WithEnvironment {
 public:
  explicit WithEnvironment(const std::map<std::string, std::string>& variables) {
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_[name] = value == nullptr ? std::nullopt : std::optional<std::string>(value);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) {
      EXPECT_TRUE(before_.contains(name)) << name << " is missing in kNames";
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~WithEnvironment() {
    for (const auto& [name, value] : before_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }

 private:
  static constexpr const char* kNames[] = {"HOLDFAST_RANK",
                                           "HOLDFAST_WORLD_SIZE",
                                           "HOLDFAST_COORDINATOR",
                                           "HOLDFAST_NAME",
                                           "HOLDFAST_JOB",
                                           "HOLDFAST_BIND",
                                           "HOLDFAST_ADVERTISE",
                                           "HOLDFAST_LEASE_MS",
                                           "HOLDFAST_SECURITY",
                                           "HOLDFAST_SECRET_FD",
                                           "HOLDFAST_SECRET_FILE",
                                           "HOLDFAST_CA_FILE",
                                           "HOLDFAST_CERT_FILE",
                                           "HOLDFAST_KEY_FILE",
                                           "HOLDFAST_HANDLER_THREADS",
                                           "HOLDFAST_SPIN",
                                           "HOLDFAST_SHARED_MEMORY",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "TORCHELASTIC_USE_AGENT_STORE",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_JOB_ID",
                                           "SLURM_LAUNCH_NODE_IPADDR",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE"};
  std::map<std::string, std::optional<std::string>> before_;
};

Options from(const std::map<std::string, std::string>& variables) {
  const WithEnvironment environment(variables);
  return Options::from_env();
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  return expect_throw<InvalidArgument>([&] { from(variables); }).what();
}

TEST(OptionsFromEnv, NothingIsAWorldOfOne) {
  const Options options = from({});
  EXPECT_EQ(options.world_size, 1);
  EXPECT_FALSE(options.rank);
  EXPECT_EQ(options.coordinator, "");
  EXPECT_EQ(options.name, "");
  EXPECT_FALSE(options.host_coordinator);
  EXPECT_NO_THROW(validate(options));
}

TEST(OptionsFromEnv, OurOwnLauncher) {
  const Options options = from({{"HOLDFAST_RANK", "2"},
                                {"HOLDFAST_WORLD_SIZE", "4"},
                                {"HOLDFAST_COORDINATOR", "127.0.0.1:4000"},
                                {"HOLDFAST_NAME", "server"},
                                {"HOLDFAST_JOB", "night"},
                                {"HOLDFAST_BIND", "lo"},
                                {"HOLDFAST_ADVERTISE", "node7"},
                                {"HOLDFAST_LEASE_MS", "1500"},
                                {"HOLDFAST_SECURITY", "plain"},
                                {"HOLDFAST_HANDLER_THREADS", "3"},
                                {"HOLDFAST_SPIN", "0"},
                                {"HOLDFAST_SHARED_MEMORY", "0"},
                                {"RANK", "7"},  // ours comes first
                                {"WORLD_SIZE", "9"}});
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.world_size, 4);
  EXPECT_EQ(options.coordinator, "127.0.0.1:4000");
  EXPECT_FALSE(options.host_coordinator);
  EXPECT_EQ(options.name, "server");
  EXPECT_EQ(options.job, "night");
  EXPECT_EQ(options.bind, "lo");
  EXPECT_EQ(options.advertise, "node7");
  EXPECT_EQ(options.lease, Duration(1500ms));
  EXPECT_EQ(options.security.mode, SecurityMode::plain);
  EXPECT_EQ(options.handler_threads, 3);
  EXPECT_FALSE(options.spin);
  EXPECT_FALSE(options.shared_memory);
}

TEST(OptionsFromEnv, Torchrun) {
  std::map<std::string, std::string> variables{
      {"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  Options options = from(variables);
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.world_size, 2);
  EXPECT_EQ(options.coordinator, "10.0.0.1:29500");
  EXPECT_TRUE(options.host_coordinator);

  variables["RANK"] = "1";
  EXPECT_FALSE(from(variables).host_coordinator);
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // its own store is at MASTER_PORT
  EXPECT_EQ(from(variables).coordinator, "10.0.0.1:29501");
  variables["MASTER_ADDR"] = "2001:db8::1";
  EXPECT_EQ(from(variables).coordinator, "[2001:db8::1]:29501");
  // A world of one needs no address.
  EXPECT_EQ(from({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).coordinator, "");
}

TEST(OptionsFromEnv, Slurm) {
  std::map<std::string, std::string> variables{{"SLURM_PROCID", "0"},
                                               {"SLURM_NTASKS", "8"},
                                               {"SLURM_JOB_ID", "123456"},
                                               {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}};
  const Options first = from(variables);
  EXPECT_EQ(first.world_size, 8);
  EXPECT_TRUE(first.host_coordinator);
  EXPECT_CONTAINS(first.coordinator, "10.0.0.9:");
  EXPECT_CONTAINS(first.job, "123456");
  variables["SLURM_PROCID"] = "5";
  const Options other = from(variables);
  EXPECT_EQ(other.coordinator, first.coordinator);  // the same for every task of the job
  EXPECT_EQ(other.job, first.job);
  EXPECT_EQ(other.rank, 5);
  EXPECT_FALSE(other.host_coordinator);

  EXPECT_EQ(from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).coordinator, "");

  variables["MASTER_ADDR"] = "node1";
  variables["MASTER_PORT"] = "4000";
  EXPECT_EQ(from(variables).coordinator, "node1:4000");
  EXPECT_CONTAINS(refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}), "MASTER_ADDR");
}

TEST(OptionsFromEnv, OpenMpi) {
  const Options options = from({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"MASTER_ADDR", "node1"},
                                {"MASTER_PORT", "4000"}});
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.world_size, 4);
  EXPECT_EQ(options.coordinator, "node1:4000");
  EXPECT_CONTAINS(refusal({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "MASTER_ADDR");
  // A world of one needs no address here either.
  EXPECT_EQ(from({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}).world_size, 1);
}

TEST(OptionsFromEnv, WrongValuesAreNamed) {
  for (const std::string wrong : {"x", "-1", "4", "1.5", "1 ", "99999999999999999999"}) {
    const std::string text = refusal({{"HOLDFAST_RANK", wrong}, {"HOLDFAST_WORLD_SIZE", "4"}});
    EXPECT_CONTAINS(text, "HOLDFAST_RANK=" + wrong);
  }
  EXPECT_CONTAINS(refusal({{"HOLDFAST_RANK", "0"}}), "HOLDFAST_WORLD_SIZE");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_WORLD_SIZE", "2"}, {"HOLDFAST_COORDINATOR", "127.0.0.1:1"}}), "HOLDFAST_RANK");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_RANK", "0"}, {"HOLDFAST_WORLD_SIZE", "0"}}), "HOLDFAST_WORLD_SIZE=0");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_RANK", "0"}, {"HOLDFAST_WORLD_SIZE", "2"}}), "MASTER_ADDR");
  EXPECT_CONTAINS(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}), "MASTER_PORT");
  EXPECT_CONTAINS(refusal({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "0"}}),
                  "MASTER_PORT=0");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_LEASE_MS", "0"}}), "HOLDFAST_LEASE_MS=0");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_HANDLER_THREADS", "many"}}), "HOLDFAST_HANDLER_THREADS=many");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SPIN", "2"}}), "HOLDFAST_SPIN=2");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SHARED_MEMORY", "yes"}}), "HOLDFAST_SHARED_MEMORY=yes");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SECURITY", "none"}}), "HOLDFAST_SECURITY");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SECRET_FD", "x"}}), "HOLDFAST_SECRET_FD=x");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SECRET_FD", "0"}}), "HOLDFAST_SECRET_FD=0");
  EXPECT_CONTAINS(refusal({{"HOLDFAST_SECRET_FILE", "/nowhere/secret"}}), "/nowhere/secret");
}

// ---- validate

std::string invalid(const std::function<void(Options&)>& change) {
  Options options;
  change(options);
  return expect_throw<InvalidArgument>([&] { validate(options); }).what();
}

TEST(Validate, TellsWhatCannotBe) {
  EXPECT_NO_THROW(validate(Options()));
  EXPECT_CONTAINS(invalid([](Options& o) { o.world_size = 0; }), "world_size is 0");
  EXPECT_CONTAINS(invalid([](Options& o) { o.rank = 1; }), "rank 1 is outside a world of 1");
  EXPECT_CONTAINS(invalid([](Options& o) { o.rank = -1; }), "rank -1");
  EXPECT_CONTAINS(invalid([](Options& o) { o.world_size = 2; }), "holdfast run -n 2");
  EXPECT_CONTAINS(invalid([](Options& o) { o.handler_threads = -1; }), "handler_threads");
  EXPECT_CONTAINS(invalid([](Options& o) { o.port_last = 5; }), "port_first");
  EXPECT_CONTAINS(invalid([](Options& o) { o.port_first = 9, o.port_last = 5; }), "9 to 5");
  EXPECT_CONTAINS(invalid([](Options& o) { o.timeout = 0s; }), "timeout");
  EXPECT_CONTAINS(invalid([](Options& o) { o.join_timeout = -1s; }), "join_timeout");
  EXPECT_CONTAINS(invalid([](Options& o) { o.shutdown_timeout = 0s; }), "shutdown_timeout");
  EXPECT_CONTAINS(invalid([](Options& o) { o.lease = 0s; }), "lease");
  EXPECT_CONTAINS(invalid([](Options& o) { o.frame_bytes_max = 10; }), "frame_bytes_max");
  EXPECT_CONTAINS(invalid([](Options& o) { o.inflight_bytes_max = 0; }), "inflight_bytes_max");
  EXPECT_CONTAINS(invalid([](Options& o) { o.coordinator = "nonsense"; }), "nonsense");
  EXPECT_CONTAINS(invalid([](Options& o) { o.security.mode = SecurityMode::secret; }), "there is none");
  EXPECT_CONTAINS(invalid([](Options& o) { o.security.secret = Secret("short"); }), "too short");
  EXPECT_CONTAINS(invalid([](Options& o) { o.security.cert_file = "/x"; }), "ca_file is missing");
  EXPECT_CONTAINS(invalid([](Options& o) { o.handshake_timeout = 0s; }), "handshake_timeout");
  EXPECT_CONTAINS(invalid([](Options& o) { o.strangers_max = 0; }), "strangers_max");
}

TEST(Validate, BeyondThisMachineOnlyWhenToldTo) {
  for (const auto& change : std::vector<std::function<void(Options&)>>{
           [](Options& o) { o.coordinator = "10.1.2.3:80"; },
           [](Options& o) { o.bind = "0.0.0.0"; },
           [](Options& o) { o.bind = "::"; },
           [](Options& o) { o.bind = "eth0"; },
       }) {
    EXPECT_CONTAINS(invalid(change), "HOLDFAST_SECURITY=plain");
    Options options;
    change(options);
    for (const Security& security : {Security{.mode = SecurityMode::plain}, Security{.secret = make_secret()}}) {
      options.security = security;
      EXPECT_NO_THROW(validate(options));
    }
  }
  for (const char* bind : {"lo", "localhost", "127.0.0.1", "127.5.0.1", "::1"}) {
    Options options;
    options.bind = bind;
    EXPECT_NO_THROW(validate(options)) << bind;
  }
}

TEST(Validate, IsWhatAWorkerAsksFirst) {
  Options options;
  options.rank = 3;
  expect_throw<InvalidArgument>([&] { Worker worker(options); });
}

TEST(Validate, DeviceMapsAreForProgramsThatUseLibtorch) {
  for (const bool maps : {true, false}) {
    Options options;
    if (maps) options.device_maps = {{"worker1", {{"cuda:0", "cuda:0"}}}};
    if (!maps) options.devices = {"cuda:0"};
    const auto error = expect_throw<InvalidArgument>([&] { Worker worker(options); });
    EXPECT_CONTAINS(error.what(), "link to holdfast::torch");
  }
}

}  // namespace
}  // namespace holdfast::options_test
