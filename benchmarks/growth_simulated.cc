// ./bench growth, its simulated part: whole jobs in one thread, with the Node and the Coordinator of production. The
// network costs no time but its latency, so the simulated times say how many messages wait for each other, and the time
// of the processor says what the work of all workers and of their coordinator is.
#include <holdfast/holdfast.h>
#include <holdfast/sim/world.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "growth_parts.h"
#include "process_use.h"

namespace holdfast::bench {

namespace {

using namespace std::chrono_literals;

constexpr size_t kReferencesEach = 10;

int64_t simulated_echo(int64_t n) { return n; }

// A world, what went over its network, and what it took since the last look at it.
class SimulatedJob {
 public:
  explicit SimulatedJob(uint32_t workers) : size_(workers), heap_before_(heap_bytes()) {
    world_.emplace(sim::WorldOptions{.seed = 1, .workers = workers, .network = {}, .link = {}, .faults = {}});
    world_->network().set_trace(
        [this](Time, const std::string&, const std::string&, const FrameHeader&, const Message& message) {
          ++frames_;
          bytes_ += message.total_bytes();
        });
  }

  sim::World& world() { return *world_; }
  uint32_t next(uint32_t rank) const { return (rank + 1) % size_; }

  // Runs until `reached` holds for all workers that live. Once it does for one it must go on to do so.
  void until_all(const std::function<bool(sim::SimWorker&)>& reached) {
    uint32_t rank = 0;
    const bool done = world_->run(
        [&] {
          while (rank < size_ && (!world_->worker(rank).alive() || reached(world_->worker(rank)))) ++rank;
          return rank == size_;
        },
        60s);
    if (!done) throw std::runtime_error("the simulated world does not get on");
  }

  struct Took {
    double frames, bytes, simulated_ms, cpu_us, heap_bytes;
  };
  // Since the last time, or the beginning.
  Took lap() {
    const double cpu = cpu_seconds();
    const uint64_t heap = heap_bytes();
    const Took took = {static_cast<double>(frames_), static_cast<double>(bytes_),
                       std::chrono::duration<double, std::milli>(world_->now() - time_before_).count(),
                       (cpu - cpu_before_) * 1e6, static_cast<double>(heap) - static_cast<double>(heap_before_)};
    frames_ = bytes_ = 0;
    time_before_ = world_->now();
    cpu_before_ = cpu_seconds();
    heap_before_ = heap;
    return took;
  }

 private:
  const uint32_t size_;
  std::optional<sim::World> world_;
  uint64_t frames_ = 0, bytes_ = 0;
  Time time_before_{};
  double cpu_before_ = cpu_seconds();
  uint64_t heap_before_;
};

// Each worker has eight devices and a map of them for the next one. For this the coordinator alone will do.
double bytes_to_join_with_device_maps(uint32_t workers) {
  DeviceFacts devices{.counts = {{DeviceNumber::cuda, 8}}, .devices = {}, .maps = {}};
  DeviceMap map;
  for (int8_t i = 0; i < 8; ++i) map[{DeviceNumber::cuda, i}] = {DeviceNumber::cuda, i};
  Coordinator coordinator({.world_size = workers});
  Step step{Time{}};
  const auto connection_of = [](uint32_t rank) { return ConnectionId{2 * uint64_t{rank} + 1}; };
  for (uint32_t rank = 0; rank < workers; ++rank) {
    devices.maps = {{"worker" + std::to_string((rank + 1) % workers), map}};
    const MessagePtr join = cluster_message(
        kJoin,
        Join{.rank = rank, .world_size = workers, .address = "worker", .instance = rank + 1, .devices = devices});
    std::vector<InFrame> frames;
    frames.push_back({.header = {.kind = join->kind}, .message = *join});
    coordinator.on_accepted(step, connection_of(rank));
    coordinator.on_frames(step, connection_of(rank), frames);
  }
  double bytes = 0;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    std::vector<OutFrame> said;
    coordinator.collect(connection_of(rank), said);
    for (const OutFrame& frame : said) bytes += static_cast<double>(frame.message->total_bytes());
  }
  return bytes;
}

void measure_join(SimulatedJob& job, uint32_t workers, Growth& growth) {
  job.until_all([](sim::SimWorker& worker) { return worker.joined(); });
  const SimulatedJob::Took took = job.lap();
  growth.add("join: messages, all together", "messages", workers, took.frames, 0);
  growth.add("join: bytes, all together", "bytes", workers, took.bytes, 0);
  growth.add("join: simulated time", "ms", workers, took.simulated_ms, 2);
  growth.add("join: processor time per worker", "us", workers, took.cpu_us / workers, 1);
  growth.add("join with device maps: bytes of the coordinator", "KB", workers,
             bytes_to_join_with_device_maps(workers) / 1e3, 1);
  growth.add("memory per worker", "bytes", workers, took.heap_bytes / workers, 0);
}

// Every worker calls the next one: the first time, which makes the link, and once more.
void measure_calls(SimulatedJob& job, uint32_t workers, Growth& growth) {
  const auto call_next = [&] {
    std::vector<Future<int64_t>> calls;
    for (uint32_t rank = 0; rank < workers; ++rank) {
      const WorkerPtr& to = job.world().worker(job.next(rank)).self();
      calls.push_back(job.world().worker(rank).peer(to).async<simulated_echo>(int64_t{rank}));
    }
    size_t done = 0;
    if (!job.world().run(
            [&] {
              while (done < calls.size() && calls[done].ready()) ++done;
              return done == calls.size();
            },
            60s)) {
      throw std::runtime_error("simulated calls did not end");
    }
    for (const Future<int64_t>& call : calls) call.get();
  };
  job.lap();
  call_next();
  const SimulatedJob::Took first = job.lap();
  size_t connections = 0;
  for (uint32_t rank = 0; rank < workers; ++rank) {
    connections += job.world().worker(rank).node().links().connection_count();
  }
  growth.add("connections per worker, after a call to the next", "connections", workers,
             static_cast<double>(connections) / workers, 1);
  growth.add("memory per link, both ends", "bytes", workers, first.heap_bytes / workers, 0);
  call_next();
  const SimulatedJob::Took second = job.lap();
  growth.add("messages per call", "messages", workers, second.frames / workers, 2);
  growth.add("processor time per call", "us", workers, second.cpu_us / workers, 1);
}

// Every worker holds some references to objects of the next one.
void measure_references(SimulatedJob& job, uint32_t workers, Growth& growth) {
  const double count = static_cast<double>(workers) * kReferencesEach;
  std::vector<RRef<int64_t>> held;
  held.reserve(workers * kReferencesEach);
  job.lap();
  for (uint32_t rank = 0; rank < workers; ++rank) {
    sim::SimWorker& worker = job.world().worker(rank);
    const Peer owner = worker.peer(job.world().worker(job.next(rank)).self());
    for (size_t i = 0; i < kReferencesEach; ++i) held.push_back(owner.remote<simulated_echo>(int64_t{rank}));
  }
  size_t confirmed = 0;
  if (!job.world().run(
          [&] {
            while (confirmed < held.size() && held[confirmed].confirmed_by_owner()) ++confirmed;
            return confirmed == held.size();
          },
          60s)) {
    throw std::runtime_error("simulated references were not confirmed");
  }
  const SimulatedJob::Took made = job.lap();
  growth.add("messages per reference made", "messages", workers, made.frames / count, 2);
  growth.add("processor time per reference made", "us", workers, made.cpu_us / count, 1);
  job.world().run([] { return false; }, 1s);  // until what was sent is acknowledged, and so forgotten
  growth.add("memory per live reference, both ends", "bytes", workers, (made.heap_bytes + job.lap().heap_bytes) / count,
             0);
  held.clear();
  job.world().run([] { return false; }, 1s);  // until the owners have heard of it
}

void measure_death(SimulatedJob& job, uint32_t workers, Growth& growth) {
  const auto until_all_know = [&](uint32_t dead) {
    const WorkerId id = job.world().worker(dead).self()->id();
    job.until_all([&](sim::SimWorker& worker) { return worker.node().is_lost(id); });
    return job.lap();
  };
  const uint32_t first = workers / 2, second = workers / 3;
  job.lap();
  job.world().kill(first);
  const SimulatedJob::Took by_lease = until_all_know(first);
  growth.add("death seen by lease: simulated time until all know", "ms", workers, by_lease.simulated_ms, 1);
  growth.add("death seen by lease: messages per worker meanwhile", "messages", workers, by_lease.frames / workers, 2);
  job.world().run([] { return false; }, 1s);  // until that loss is settled
  job.lap();
  job.world().kill(second);
  job.world().declare_lost(second, "its process ended");
  const SimulatedJob::Took by_launcher = until_all_know(second);
  growth.add("death seen by launcher: simulated time until all know", "ms", workers, by_launcher.simulated_ms, 2);
  growth.add("death seen by launcher: messages, all together", "messages", workers, by_launcher.frames, 0);
}

}  // namespace

void run_growth_simulated(const Settings& settings, Report& report) {
  Growth growth("simulated workers");
  const std::vector<uint32_t> sizes =
      settings.quick ? std::vector<uint32_t>{100, 300, 1000} : std::vector<uint32_t>{100, 300, 1000, 3000, 10000};
  for (size_t round = 0; round < (settings.quick ? 1 : 3); ++round) {
    for (const uint32_t workers : sizes) {
      SimulatedJob job(workers);
      measure_join(job, workers, growth);
      measure_calls(job, workers, growth);
      measure_references(job, workers, growth);
      measure_death(job, workers, growth);
    }
  }
  growth.tell(report);
}

}  // namespace holdfast::bench
