// Options: how a worker joins, listens, waits and limits. Defaults suit one machine; a launcher's environment
// fills in the rest.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <holdfast/base/time.h>
#include <holdfast/rpc/fault_options.h>
#include <holdfast/transport/security.h>

namespace holdfast {

// A timeout that never comes.
inline constexpr Duration kForever = Duration::max();

struct Options {
  // Who this worker is. Without a rank it gets the lowest free one; without a name it is "worker<rank>".
  std::string name;
  std::optional<int> rank;
  int world_size = 1;

  // Where the coordinator is, "host:port". Empty, in a world of one: a coordinator of its own.
  std::string coordinator;
  // Whether this worker's process hosts the coordinator (at that address). Else a launcher or another worker does.
  bool host_coordinator = false;
  // Workers of different jobs refuse each other.
  std::string job;

  // Where to listen. bind: an address, or an interface's name; empty: loopback if the coordinator is on
  // loopback, else the address that faces it. advertise: what others dial, where it differs ("host", or "host:port"
  // where a port is forwarded).
  std::string bind;
  std::string advertise;
  uint16_t port_first = 0;  // 0: any free port
  uint16_t port_last = 0;
  // Who may speak with this worker, and who may listen: see docs/security.md. Without a secret or certificates only
  // loopback is used, unless the mode is plain by name.
  Security security;
  // A stranger has so long to prove itself. Where so many have not yet, the one that has tried longest must go.
  Duration handshake_timeout = std::chrono::seconds(10);
  uint32_t strangers_max = 256;

  // Whether a thread that waits for the network asks for a while before it sleeps. It gives up by itself where cores
  // are scarce, so this is for who wants no core to be busy without need: see docs/performance.md.
  bool spin = true;

  // Whether workers of the same user on the same host speak through shared memory: see docs/shared_memory.md.
  bool shared_memory = true;

  int handler_threads = 0;  // 0: one per core, at least two; any number from 1 on is correct

  Duration timeout = std::chrono::seconds(60);  // of a call, unless the call says otherwise
  Duration join_timeout = std::chrono::seconds(60);
  Duration shutdown_timeout = std::chrono::seconds(60);
  Duration lease = std::chrono::seconds(10);  // of the coordinator that this process hosts

  uint64_t inflight_bytes_max = 64 << 20;  // per link: calls sent and not yet started
  uint64_t frame_bytes_max = 1 << 30;      // one call or reply; the same on all workers

  // Operators of libtorch that others may call here beyond those that only compute: by name ("aten::from_file"), or a
  // whole namespace ("my_ops::*"). See docs/operators.md.
  std::vector<std::string> allowed_operators;

  // Devices of tensors, "cuda:0": see docs/tensor.md. device_maps: by the name of a worker that this one calls, to
  // which of its devices tensors on a device of ours go; results come back the other way. devices: those that this
  // worker uses at all; empty: those that maps name, its own and the others'. Both are checked against all workers at
  // join.
  std::map<std::string, std::map<std::string, std::string>> device_maps;
  std::vector<std::string> devices;

  // Faults to make on purpose, for tests of the program: see docs/faults.md.
  FaultOptions faults;

  // Gets the text about references that are still held at shutdown(); unset: it goes to stderr.
  std::function<void(const std::string& text)> on_held_at_shutdown;

  // Reads HOLDFAST_* (set by `holdfast run`), else torchrun's, Slurm's or Open MPI's variables. With none of
  // them: a world of one. Throws InvalidArgument naming the variable that makes no sense.
  static Options from_env();
  // Of these variables only those that say how a worker works, not who it is or where its job is.
  static Options habits_from_env();
};

// Throws InvalidArgument for what cannot be.
void validate(const Options& options);

}  // namespace holdfast
