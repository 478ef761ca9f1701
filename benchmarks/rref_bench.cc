// ./bench rref: references made, used, shared and dropped per second; what one costs its owner; and how many messages
// a share takes.
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include <malloc.h>
#include <unistd.h>

#include <deque>

#include <fmt/format.h>

#include "benchmarks.h"

namespace holdfast::bench {

namespace {

constexpr int kWorkers = 3;
constexpr size_t kInFlight = 128;

int64_t identity(int64_t n) { return n; }
void take(const RRef<int64_t>&) {}

// What a worker other than this one holds at the moment.
struct Cost {
  uint64_t heap_bytes = 0;
  uint64_t control_messages = 0;
  uint64_t forks = 0;
  HOLDFAST_FIELDS(Cost, heap_bytes, control_messages, forks)
};
Cost cost() {
  const DebugInfo info = current_worker().debug_info();
  return {.heap_bytes = mallinfo2().uordblks + mallinfo2().hblkhd,
          .control_messages = info.control_messages,
          .forks = info.forks};
}

std::vector<RRef<int64_t>> thousand(const RRef<int64_t>& object) { return {1000, object}; }

// Holds many references to objects of rank 1.
std::deque<RRef<int64_t>> held;
uint64_t hold_forks(RRef<int64_t> object, uint64_t count) {
  // Each time it goes to the owner and comes back it is a new fork.
  Peer owner = current_worker().peer(object.owner());
  std::vector<Future<std::vector<RRef<int64_t>>>> calls;
  for (uint64_t i = 0; i < count; i += 1000) calls.push_back(owner.async<thousand>(object));
  for (auto& call : calls) {
    for (RRef<int64_t>& reference : call.take()) held.push_back(std::move(reference));
  }
  return held.size();
}
void drop_forks() { held.clear(); }

Options options_for(int rank, const std::string& coordinator) {
  Options options;
  options.rank = rank;
  options.world_size = kWorkers;
  options.coordinator = coordinator;
  return options;
}

double remote_and_fetch(const Peer& peer, size_t count) {
  std::deque<Future<int64_t>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (waiting.size() == kInFlight) {
      waiting.front().wait();
      waiting.pop_front();
    }
    waiting.push_back(peer.remote<identity>(static_cast<int64_t>(i)).fetch());
  }
  for (const auto& future : waiting) future.wait();
  return static_cast<double>(count) / seconds_since(start);
}

double create_share_drop(const Peer& owner, const Peer& other, size_t count) {
  std::deque<Future<void>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (waiting.size() == kInFlight) {
      waiting.front().wait();
      waiting.pop_front();
    }
    waiting.push_back(other.async<take>(owner.remote<identity>(static_cast<int64_t>(i))));
  }
  for (const auto& future : waiting) future.wait();
  return static_cast<double>(count) / seconds_since(start);
}

// Until nothing of it is left anywhere.
void settle(Worker& worker) {
  while (true) {
    const DebugInfo info = worker.debug_info();
    if (info.used.empty() && info.pending_children == 0) return;
    usleep(1000);
  }
}

}  // namespace

void run_rref(const Settings& settings, Report& report) {
  // The children are forked before this process has any thread.
  int address_pipe[2];
  if (pipe(address_pipe) != 0) throw std::runtime_error("pipe failed");
  std::vector<std::unique_ptr<Child>> servers;
  for (int rank = 1; rank < kWorkers; ++rank) {
    servers.push_back(std::make_unique<Child>([&, rank] {
      char address[64] = {};
      if (read(address_pipe[0], address, sizeof(address)) <= 0) return;
      Worker worker(options_for(rank, address));
      worker.shutdown(kForever);
    }));
  }
  CoordinatorServer coordinator({.world_size = kWorkers}, {});
  char address[64] = {};
  coordinator.address().copy(address, sizeof(address) - 1);
  for (int rank = 1; rank < kWorkers; ++rank) {
    if (write(address_pipe[1], address, sizeof(address)) < 0) return;
  }
  Worker worker(options_for(0, coordinator.address()));
  const Peer owner = worker.peer(1);
  const Peer other = worker.peer(2);
  const auto all_messages = [&] {
    return worker.debug_info().control_messages + owner.call<cost>().control_messages +
           other.call<cost>().control_messages;
  };

  std::vector<double> fetches, shares, messages, bytes;
  remote_and_fetch(owner, settings.scaled(20000));  // warm up
  create_share_drop(owner, other, settings.scaled(20000));
  for (size_t round = 0; round < settings.rounds(); ++round) {
    fetches.push_back(remote_and_fetch(owner, settings.scaled(100000)));
    settle(worker);
    const uint64_t before = all_messages();
    const size_t count = settings.scaled(100000);
    shares.push_back(create_share_drop(owner, other, count));
    settle(worker);
    messages.push_back(static_cast<double>(all_messages() - before) / static_cast<double>(count));

    RRef<int64_t> object = owner.remote<identity>(1);
    object.to_here();
    const Cost empty = owner.call<cost>();
    other.with_timeout(kForever).call<hold_forks>(object, settings.scaled(200000));
    const Cost full = owner.call<cost>();
    bytes.push_back(static_cast<double>(full.heap_bytes - empty.heap_bytes) /
                    static_cast<double>(full.forks - empty.forks));
    other.call<drop_forks>();
    while (owner.call<cost>().forks > 1) usleep(1000);
  }
  report.add("remote + to_here, 128 in flight, one thread", "per second", fetches, 0);
  report.add("create + share + drop, 128 in flight", "per second", shares, 0);
  report.add("control messages for one create + share + drop", "messages", messages, 2);
  report.add("owner's memory for one live fork", "bytes", bytes, 0);
  worker.shutdown(kForever);
}

}  // namespace holdfast::bench
