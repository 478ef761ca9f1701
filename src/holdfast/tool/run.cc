#include <holdfast/tool/run.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <holdfast/backward/messages.h>
#include <holdfast/base/awake_cores.h>
#include <holdfast/base/random.h>
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/rpc/fault_options.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/rref/messages.h>
#include <holdfast/tool/child.h>
#include <holdfast/tool/launch_error.h>
#include <holdfast/tool/output.h>
#include <holdfast/tool/program.h>
#include <holdfast/tool/signals.h>
#include <holdfast/tool/supervisor.h>
#include <holdfast/transport/security.h>

extern char** environ;

namespace holdfast {

namespace {

struct RunOptions {
  uint32_t local_size = 1;
  uint32_t node_count = 1;
  uint32_t node_rank = 0;
  std::string rendezvous;
  std::string job;
  std::string name_prefix = "worker";
  double lease_s = 10;
  double grace_s = 5;
  uint32_t restarts_max = 0;
  bool keep_awake = false;
  bool no_prefix = false;
  std::string color = "auto";
  std::string faults;    // FILE or SPEC
  std::string security;  // a mode; "": what the environment says, else automatic
  std::string secret_file;
  std::string ca_file, cert_file, key_file;
  std::vector<std::string> program;  // with its arguments
};

constexpr const char* kFooter = R"(Everything after PROGRAM is passed to it untouched, also what looks like an option.

Each worker finds these in its environment: HOLDFAST_COORDINATOR, HOLDFAST_RANK,
HOLDFAST_WORLD_SIZE, HOLDFAST_LOCAL_RANK, HOLDFAST_NAME, HOLDFAST_JOB, HOLDFAST_LEASE_MS,
HOLDFAST_SECURITY, and the number of a descriptor with the job's secret: HOLDFAST_SECRET_FD.
Unless you set it: OMP_NUM_THREADS, its share of this machine's cores, for libtorch.
Its stdin is /dev/null. What it writes is shown line by line, with its name in front.

If one worker fails the others are asked to end (SIGTERM) and, after the grace period,
killed. With --restart it is started again instead, until the restarts are used up. Ctrl-C is
passed on to all; a second Ctrl-C kills them. What a worker has started and left behind is
killed when the worker has ended.

Exit status: 0 if all workers exited with 0; else that of the first that failed and was not
started again, 128 + N if signal N ended it or the launcher. 127 or 126: PROGRAM is not there
or cannot be executed. 2: wrong arguments. 141: whoever read stdout has stopped.

Examples:
  holdfast run -n 4 ./train --epochs 3
  holdfast run -n 2 --no-prefix sh -c 'echo I am $HOLDFAST_NAME'
  holdfast run -n 8 --nnodes 2 --node-rank 0 --rendezvous 10.0.0.1:29400 --secret-file job.secret ./train
)";

// CLI11 does not know of PROGRAM, as it is what remains.
class UsageFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: holdfast run [OPTIONS] PROGRAM [ARGUMENTS...]\n";
  }
};

// CLI11's checks without their noise in the help text.
template <class T>
CLI::Validator in_range(T low, T high) {
  return CLI::Range(low, high).description("");
}
CLI::Validator one_of(std::vector<std::string> words) { return CLI::IsMember(std::move(words)).description(""); }

Duration seconds(double value) { return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value)); }

[[noreturn]] void wrong(const std::string& message) { throw LaunchError(kStatusUsage, message); }

bool is_good_name(std::string_view name) {
  const auto good = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), good);
}

void check(const RunOptions& options) {
  if (options.program.empty()) wrong("which PROGRAM? None was given");
  if (options.program[0].starts_with('-')) wrong(fmt::format("unknown option {}", options.program[0]));
  if (!is_good_name(options.name_prefix)) {
    wrong(fmt::format("--name-prefix '{}' is not 1 to 64 letters, digits, '_', '-' or '.'", options.name_prefix));
  }
  if (options.node_rank >= options.node_count) {
    wrong(fmt::format("--node-rank {} is outside 0 to {} (--nnodes {})", options.node_rank, options.node_count - 1,
                      options.node_count));
  }
  if (options.node_count > 1 && options.rendezvous.empty()) {
    wrong("--nnodes needs --rendezvous HOST:PORT: an address of node 0 that all nodes can reach");
  }
}

// What the workers need to trust each other. On one machine the secret is made here, and only they ever know it; with
// several, all launchers must be told the same.
Security find_security(const RunOptions& options) {
  ::unsetenv("HOLDFAST_SECRET_FD");  // of the job that this launcher itself may be a part of
  Result<Security> found = Security::from_env();
  if (!found) wrong(found.failure().message);
  Security security = std::move(*found);
  if (!options.security.empty()) security.mode = parse_security_mode(options.security).take();
  for (const auto& [given, file] :
       {std::pair{&options.ca_file, &security.ca_file}, std::pair{&options.cert_file, &security.cert_file},
        std::pair{&options.key_file, &security.key_file}}) {
    if (!given->empty()) *file = *given;
  }
  if (!options.secret_file.empty()) {
    Result<Secret> secret = read_secret_file(options.secret_file);
    if (!secret) wrong("--secret-file: " + secret.failure().message);
    security.secret = std::move(*secret);
  }
  const bool wants_secret =
      security.mode == SecurityMode::secret || (security.mode == SecurityMode::automatic && !is_protected(security));
  if (wants_secret && security.secret.empty() && options.node_count == 1) security.secret = make_secret();
  if (Result<std::shared_ptr<const TlsContext>> tls = make_tls(security); !tls) wrong(tls.failure().message);
  return security;
}

// Where the coordinator is: here on any port, or at the rendezvous.
struct Place {
  ListenOptions listen;
  std::string dial;  // "" for "whatever port it gets"
};

Place find_place(const RunOptions& options, const Security& security) {
  if (options.rendezvous.empty()) return {};
  Result<Endpoint> endpoint = resolve(options.rendezvous);
  if (!endpoint) wrong(fmt::format("--rendezvous: {}", endpoint.failure().message));
  if (endpoint->port == 0)
    wrong(fmt::format("--rendezvous {}: choose a port, all nodes must know it", options.rendezvous));
  if (!is_loopback(*endpoint) && !is_protected(security) && security.mode != SecurityMode::plain) {
    wrong(fmt::format(
        "--rendezvous {} is reachable from other machines, and the job has neither a secret nor certificates: whoever "
        "can reach it could join the job and call its functions. Make a secret with `(umask 077; openssl rand -hex 32 "
        "> "
        "FILE)`, copy it to all machines, and give it with --secret-file FILE. If you trust everybody on that network "
        "say so with --security plain",
        options.rendezvous));
  }
  if (endpoint->is_wildcard()) wrong(fmt::format("--rendezvous {}: name one address of node 0", options.rendezvous));
  return {.listen = {.bind = endpoint->host_text(), .port_first = endpoint->port}, .dial = options.rendezvous};
}

std::unique_ptr<AwakeCores> keep_awake() {
  Result<std::unique_ptr<AwakeCores>> cores = AwakeCores::keep();
  if (!cores) wrong("--keep-awake: " + cores.failure().message);
  return std::move(*cores);
}

std::string job_name(const RunOptions& options) {
  if (!options.job.empty()) return options.job;
  // All nodes must come to the same name by themselves.
  if (options.node_count > 1) return "rendezvous " + options.rendezvous;
  return fmt::format("{:016x}", random_seed());
}

// The text of what was given, so that the workers need no file. They check it again: each knows its own kinds.
std::string checked_faults(const std::string& text_or_file) {
  if (text_or_file.empty()) return {};
  const std::string text = read_faults(text_or_file);
  const FaultOptions faults = FaultOptions::parse(text);
  KindNames known;
  known.add(kRpcKinds);
  known.add(kRRefKinds);
  known.add(kBackwardKinds);
  if (Status status = holdfast::check(faults, known); !status.ok()) wrong("--faults: " + status.failure().message);
  return text.find('=') == std::string::npos ? "" : text;  // nothing but comments
}

// Our own environment with `ours` in place of what it says about these names.
std::vector<std::string> environment_with(const std::vector<std::string>& ours) {
  std::vector<std::string> all = ours;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const std::string_view start = entry.substr(0, entry.find('=') + 1);
    const auto is_same = [&](const std::string& own) { return !start.empty() && own.starts_with(start); };
    if (std::none_of(ours.begin(), ours.end(), is_same)) all.emplace_back(entry);
  }
  return all;
}

struct Job {
  const RunOptions& options;
  std::string path;  // of the program
  std::string name;
  std::string coordinator;
  std::string faults;
  Security security;
  Fd secret;  // holds it for the workers, if there is one

  uint32_t first_rank() const { return options.node_rank * options.local_size; }
  std::string name_of(Rank rank) const { return fmt::format("{}{}", options.name_prefix, rank.value); }
};

ChildSpec child_spec(const Job& job, Rank rank) {
  const RunOptions& options = job.options;
  std::vector<std::string> ours = {
      "HOLDFAST_COORDINATOR=" + job.coordinator,
      fmt::format("HOLDFAST_RANK={}", rank.value),
      fmt::format("HOLDFAST_WORLD_SIZE={}", options.local_size * options.node_count),
      fmt::format("HOLDFAST_LOCAL_RANK={}", rank.value - job.first_rank()),
      "HOLDFAST_NAME=" + job.name_of(rank),
      "HOLDFAST_JOB=" + job.name,
      fmt::format("HOLDFAST_LEASE_MS={}",
                  std::chrono::milliseconds(static_cast<int64_t>(options.lease_s * 1000)).count()),
  };
  ours.push_back(fmt::format("HOLDFAST_SECURITY={}", name_of(job.security.mode)));
  // Only the number of a descriptor: the secret itself must show neither here nor in the arguments.
  ours.push_back(job.secret.open() ? fmt::format("HOLDFAST_SECRET_FD={}", job.secret.get()) : "HOLDFAST_SECRET_FD=");
  ours.push_back("HOLDFAST_CA_FILE=" + job.security.ca_file);
  ours.push_back("HOLDFAST_CERT_FILE=" + job.security.cert_file);
  ours.push_back("HOLDFAST_KEY_FILE=" + job.security.key_file);
  if (!job.faults.empty()) ours.push_back("HOLDFAST_FAULTS=" + job.faults);
  // Otherwise each of them would compute with as many threads as there are cores, and they would be in each other's
  // way.
  if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    const uint32_t share = std::thread::hardware_concurrency() / options.local_size;
    ours.push_back(fmt::format("OMP_NUM_THREADS={}", std::max(1u, share)));
  }
  return {.path = job.path,
          .arguments = options.program,
          .environment = environment_with(ours),
          .kept_fd = job.secret.open() ? job.secret.get() : -1};
}

// Pipes must not land on the numbers of stdin, stdout and stderr, which whoever started us may have closed.
void fill_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    break;
  }
}

// The workers of other machines may need the coordinator for longer than ours. The status.
int wait_for_others(CoordinatorServer& server, Signals& signals) {
  while (!server.wait_until_empty(std::chrono::milliseconds(100))) {
    while (const auto event = signals.next()) {
      if (event->signal != SIGCHLD) return 128 + event->signal;
    }
  }
  return 0;
}

// Node 0 tells its coordinator that a worker has ended. Those of other nodes keep their rank until their lease has run
// out, counted from the last heartbeat that the coordinator got, and a new worker would be refused: so it starts when
// that is over, with a second for messages that were on their way.
Duration restart_delay(const RunOptions& options) {
  return options.node_rank == 0 ? Duration{} : seconds(options.lease_s) + std::chrono::seconds(1);
}

Output make_output(const RunOptions& options) {
  const Color color = options.color == "always"  ? Color::always
                      : options.color == "never" ? Color::never
                                                 : Color::when_terminal;
  return Output({.prefix = !options.no_prefix, .color = color});
}

int run(const RunOptions& options) {
  check(options);
  const char* search_path = std::getenv("PATH");
  const Security security = find_security(options);
  const Place place = find_place(options, security);
  Job job{.options = options,
          .path = find_program(options.program[0], search_path != nullptr ? search_path : "/usr/bin:/bin"),
          .name = job_name(options),
          .coordinator = place.dial,
          .faults = checked_faults(options.faults),
          .security = security,
          .secret = {}};

  fill_standard_descriptors();
  const std::unique_ptr<AwakeCores> awake = options.keep_awake ? keep_awake() : nullptr;
  if (!security.secret.empty()) job.secret = Fd(open_secret_descriptor(security.secret).take());
  const rlimit descriptors = raise_descriptor_limit();
  Signals signals;  // before the coordinator's thread
  std::unique_ptr<CoordinatorServer> server;
  if (options.node_rank == 0) {
    server = std::make_unique<CoordinatorServer>(
        CoordinatorOptions{
            .job = job.name, .world_size = options.local_size * options.node_count, .lease = seconds(options.lease_s)},
        place.listen, TcpOptions{.tls = make_tls(security).take()});
    job.coordinator = server->address();
  }
  Output output = make_output(options);
  Supervisor supervisor(
      signals, output,
      {.grace = seconds(options.grace_s),
       .restarts_max = options.restarts_max,
       .restart_delay = restart_delay(options)},
      [&](Rank rank) { return start_child(child_spec(job, rank), signals, descriptors); },
      [&](Rank rank, const std::string& how, bool returns) {
        if (server) server->declare_lost(rank, how, returns);  // nothing happens if it has left
      });
  for (uint32_t local = 0; local < options.local_size; ++local) {
    const Rank rank{job.first_rank() + local};
    supervisor.add(rank, job.name_of(rank));
  }
  const int status = supervisor.run();
  return status == 0 && server && options.node_count > 1 ? wait_for_others(*server, signals) : status;
}

}  // namespace

CommandBody add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  app.formatter(std::make_shared<UsageFormatter>());
  app.footer(kFooter);
  app.prefix_command();  // the first word that is no option of ours is PROGRAM
  app.add_option("-n,--workers", options->local_size, "Workers on this machine (1)")
      ->check(in_range(1u, 4096u))
      ->type_name("COUNT");
  app.add_option("--nnodes", options->node_count, "Machines in the job; run this once on each (1)")
      ->check(in_range(1u, 65536u))
      ->type_name("COUNT");
  app.add_option("--node-rank", options->node_rank, "Which of them this is, from 0 (0)")->type_name("RANK");
  app.add_option("--rendezvous", options->rendezvous, "Where node 0 listens")->type_name("HOST:PORT");
  app.add_option("--job", options->job, "Name of the job, the same on all machines")->type_name("NAME");
  app.add_option("--name-prefix", options->name_prefix, "Workers are called this and their rank (worker)")
      ->type_name("TEXT");
  app.add_option("--lease", options->lease_s, "A worker that is silent for so long is lost (10)")
      ->check(in_range(0.1, 86400.0))
      ->type_name("SECONDS");
  app.add_option("--grace", options->grace_s, "Time to end when asked to, before being killed (5)")
      ->check(in_range(0.0, 86400.0))
      ->type_name("SECONDS");
  app.add_option("--restart", options->restarts_max, "Start workers that fail again, so often in all (0)")
      ->check(in_range(0u, 1'000'000u))
      ->type_name("COUNT");
  app.add_option("--faults", options->faults, "Faults that the workers make on purpose: docs/faults.md")
      ->type_name("FILE|SPEC");
  app.add_flag("--keep-awake", options->keep_awake,
               "Idle cores wait awake while the job runs, so threads wake sooner; needs root");
  app.add_flag("--no-prefix", options->no_prefix, "Show lines without the worker's name");
  app.add_option("--color", options->color, "Colour the names: auto, always, never (auto: on a terminal)")
      ->check(one_of({"auto", "always", "never"}))
      ->type_name("WHEN");
  app.add_option("--security", options->security,
                 "How workers prove themselves: automatic, plain, secret, certificates (automatic); docs/security.md")
      ->check(one_of({"automatic", "plain", "secret", "certificates"}))
      ->type_name("MODE");
  app.add_option("--secret-file", options->secret_file, "The job's secret, the same on all machines; mode 0600")
      ->type_name("FILE");
  app.add_option("--ca-file", options->ca_file, "The authority that signs the workers' certificates")
      ->type_name("FILE");
  app.add_option("--cert-file", options->cert_file, "This machine's certificate")->type_name("FILE");
  app.add_option("--key-file", options->key_file, "Its private key")->type_name("FILE");
  return [options](const std::vector<std::string>& rest) {
    options->program = rest;
    return run(*options);
  };
}

}  // namespace holdfast
