#include <holdfast/rpc/options.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include <holdfast/base/error.h>
#include <holdfast/transport/address.h>

namespace holdfast {

namespace {

[[noreturn]] void refuse(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<int64_t> number(const char* name, int64_t low, int64_t high) {
  const std::string text = variable(name);
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    refuse(fmt::format("{}={} is not a number from {} to {}", name, text, low, high));
  }
  return value;
}

// A number that must be there because another variable of the same launcher is.
int64_t needed(const char* name, int64_t low, int64_t high, const char* because) {
  const std::optional<int64_t> value = number(name, low, high);
  if (!value) refuse(fmt::format("{} is set but {} is not", because, name));
  return *value;
}

void set_place(Options& options, const char* rank, const char* world_size) {
  options.world_size = static_cast<int>(needed(world_size, 1, INT32_MAX, rank));
  options.rank = static_cast<int>(needed(rank, 0, options.world_size - 1, world_size));
}

// rank 0 hosts the coordinator at MASTER_ADDR:MASTER_PORT.
void use_master(Options& options, const char* because) {
  const std::string host = variable("MASTER_ADDR");
  if (host.empty()) refuse(fmt::format("{} is set but MASTER_ADDR is not: set it to the host of rank 0", because));
  int64_t port = needed("MASTER_PORT", 1, 65534, because);
  // torchrun's own store listens on MASTER_PORT: take the next one.
  if (variable("TORCHELASTIC_USE_AGENT_STORE") == "True") ++port;
  options.coordinator = fmt::format("{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", port);
  options.host_coordinator = options.rank == 0;
}

void read_holdfast(Options& options) {
  set_place(options, "HOLDFAST_RANK", "HOLDFAST_WORLD_SIZE");
  options.coordinator = variable("HOLDFAST_COORDINATOR");
  if (options.coordinator.empty() && options.world_size > 1) use_master(options, "HOLDFAST_RANK");
}

void read_slurm(Options& options) {
  set_place(options, "SLURM_PROCID", "SLURM_NTASKS");
  if (options.world_size == 1) return;
  if (!variable("MASTER_ADDR").empty()) return use_master(options, "SLURM_PROCID");
  std::string host = variable("SLURM_LAUNCH_NODE_IPADDR");
  if (host.empty())
    refuse(
        "SLURM_PROCID is set but neither MASTER_ADDR nor SLURM_LAUNCH_NODE_IPADDR is: set MASTER_ADDR to the host of "
        "rank 0");
  const int64_t job = needed("SLURM_JOB_ID", 0, INT64_MAX, "SLURM_PROCID");
  options.coordinator = fmt::format("{}:{}", host, 20000 + job % 20000);  // the same on every task of the job
  options.host_coordinator = options.rank == 0;
  options.job = fmt::format("slurm {}", job);
}

void read_open_mpi(Options& options) {
  set_place(options, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  if (options.world_size > 1) use_master(options, "OMPI_COMM_WORLD_RANK");
}

bool stays_on_loopback(const std::string& bind) {
  if (bind.empty() || bind == "lo" || bind == "localhost") return true;
  const std::string host = bind.find(':') == std::string::npos ? bind : "[" + bind + "]";
  const Result<Endpoint> endpoint = Endpoint::parse(host + ":0");
  return endpoint.ok() && is_loopback(*endpoint);
}

}  // namespace

Options Options::habits_from_env() {
  Options options;
  if (auto threads = number("HOLDFAST_HANDLER_THREADS", 1, 4096)) options.handler_threads = static_cast<int>(*threads);
  if (auto shared = number("HOLDFAST_SHARED_MEMORY", 0, 1)) options.shared_memory = *shared == 1;
  if (auto spin = number("HOLDFAST_SPIN", 0, 1)) options.spin = *spin == 1;
  if (const std::string faults = variable("HOLDFAST_FAULTS"); !faults.empty()) {
    options.faults = FaultOptions::load(faults);
  }
  return options;
}

Options Options::from_env() {
  Options options = habits_from_env();
  if (!variable("HOLDFAST_RANK").empty() || !variable("HOLDFAST_WORLD_SIZE").empty()) {
    read_holdfast(options);
  } else if (!variable("RANK").empty()) {
    set_place(options, "RANK", "WORLD_SIZE");
    if (options.world_size > 1) use_master(options, "RANK");
  } else if (!variable("SLURM_PROCID").empty()) {
    read_slurm(options);
  } else if (!variable("OMPI_COMM_WORLD_RANK").empty()) {
    read_open_mpi(options);
  }
  options.name = variable("HOLDFAST_NAME");
  if (const std::string job = variable("HOLDFAST_JOB"); !job.empty()) options.job = job;
  options.bind = variable("HOLDFAST_BIND");
  options.advertise = variable("HOLDFAST_ADVERTISE");
  options.security = Security::from_env().take();
  if (auto lease_ms = number("HOLDFAST_LEASE_MS", 1, INT32_MAX)) options.lease = std::chrono::milliseconds(*lease_ms);
  return options;
}

void validate(const Options& options) {
  if (options.world_size < 1) refuse(fmt::format("world_size is {}, must be at least 1", options.world_size));
  if (options.rank && (*options.rank < 0 || *options.rank >= options.world_size)) {
    refuse(fmt::format("rank {} is outside a world of {} (0 to {})", *options.rank, options.world_size,
                       options.world_size - 1));
  }
  if (options.coordinator.empty() && options.world_size > 1) {
    refuse(fmt::format(
        "a world of {} needs a coordinator: start the program with `holdfast run -n {}`, or set Options::coordinator",
        options.world_size, options.world_size));
  }
  if (options.handler_threads < 0)
    refuse(fmt::format("handler_threads is {}, must be at least 1 (or 0 for the default)", options.handler_threads));
  if (options.port_last != 0 && options.port_first == 0) refuse("port_last is set but port_first is not");
  if (options.port_last != 0 && options.port_last < options.port_first) {
    refuse(fmt::format("the port range {} to {} is empty", options.port_first, options.port_last));
  }
  for (const auto& [value, name] :
       {std::pair{options.timeout, "timeout"}, std::pair{options.join_timeout, "join_timeout"},
        std::pair{options.shutdown_timeout, "shutdown_timeout"}, std::pair{options.lease, "lease"},
        std::pair{options.handshake_timeout, "handshake_timeout"}}) {
    if (value <= Duration::zero()) refuse(fmt::format("{} must be longer than zero", name));
  }
  if (options.frame_bytes_max < 1024) refuse("frame_bytes_max must be at least 1024");
  if (options.inflight_bytes_max == 0) refuse("inflight_bytes_max must be at least 1");
  if (options.strangers_max == 0) refuse("strangers_max must be at least 1");
  for (const std::string& name : options.allowed_operators) {
    const size_t colons = name.find("::");
    if (colons == 0 || colons == std::string::npos || colons + 2 == name.size()) {
      refuse(fmt::format("allowed_operators has \"{}\": an operator's name is like \"aten::from_file\"", name));
    }
  }
  make_tls(options.security).take();
  if (is_protected(options.security) || options.security.mode == SecurityMode::plain) return;
  const bool coordinator_is_local = options.coordinator.empty() || is_loopback(resolve(options.coordinator).take());
  if (!coordinator_is_local || !stays_on_loopback(options.bind)) {
    refuse(fmt::format(
        "this worker would speak beyond this machine ({}), but has neither a secret nor certificates, so everybody "
        "could "
        "call it: give all workers the same secret (HOLDFAST_SECRET_FILE, or Options::security), or, if the network is "
        "yours alone, say so with Options::security.mode = plain (HOLDFAST_SECURITY=plain)",
        coordinator_is_local ? "bind " + options.bind : "coordinator " + options.coordinator));
  }
}

}  // namespace holdfast
