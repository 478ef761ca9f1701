// ./bench rpc: a call of 64 bytes there and back, and many calls in flight, beside the raw floor of the same run.
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include <unistd.h>

#include <deque>

#include <fmt/format.h>

#include "benchmarks.h"
#include "raw_tcp.h"

namespace holdfast::bench {

namespace {

Bytes echo(Bytes bytes) { return bytes; }

Options options_for(int rank, const std::string& coordinator) {
  Options options;
  options.rank = rank;
  options.world_size = 2;
  options.coordinator = coordinator;
  return options;
}

double calls_per_second(const Peer& peer, size_t count, size_t in_flight) {
  const Bytes payload(64);
  std::deque<Future<Bytes>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (waiting.size() == in_flight) {
      waiting.front().wait();
      waiting.pop_front();
    }
    waiting.push_back(peer.async<echo>(payload));
  }
  for (const Future<Bytes>& future : waiting) future.wait();
  return static_cast<double>(count) / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void run_rpc(const Settings& settings) {
  RawTcpEcho raw;
  Child raw_server([&] { raw.serve(); });
  raw.connect();

  // The child is forked before this process has any thread.
  int port_pipe[2];
  if (pipe(port_pipe) != 0) throw std::runtime_error("pipe failed");
  Child server([&] {
    char address[128] = {};
    if (read(port_pipe[0], address, sizeof(address) - 1) <= 0) return;
    Worker worker(options_for(1, address));
    worker.shutdown(kForever);
  });
  CoordinatorServer coordinator({.world_size = 2}, {});
  if (write(port_pipe[1], coordinator.address().c_str(), coordinator.address().size()) < 0) return;
  Worker worker(options_for(0, coordinator.address()));
  const Peer peer = worker.peer(1);

  const size_t count = settings.scaled(5000);
  const Bytes payload(64);
  std::vector<double> raw_p50, raw_p99, call_p50, call_p99, ratio, rate;
  calls_per_second(peer, settings.scaled(20000), 128);  // warm up
  for (size_t round = 0; round < settings.rounds(); ++round) {
    Latencies raw_round, call_round;
    raw_round.reserve(count);
    call_round.reserve(count);
    raw.ping_pong(count, raw_round);
    for (size_t i = 0; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      peer.call<echo>(payload);
      call_round.add(std::chrono::steady_clock::now() - start);
    }
    raw_p50.push_back(raw_round.percentile(0.5));
    raw_p99.push_back(raw_round.percentile(0.99));
    call_p50.push_back(call_round.percentile(0.5));
    call_p99.push_back(call_round.percentile(0.99));
    ratio.push_back(call_p50.back() / raw_p50.back());
    rate.push_back(calls_per_second(peer, settings.scaled(200000), 128));
  }
  print_row("raw blocking TCP round trip, 64 bytes, p50 (us)", with_spread(raw_p50, 1));
  print_row("raw blocking TCP round trip, 64 bytes, p99 (us)", with_spread(raw_p99, 1));
  print_row("call of 64 bytes, p50 (us)", with_spread(call_p50, 1));
  print_row("call of 64 bytes, p99 (us)", with_spread(call_p99, 1));
  print_row("call / raw, p50", with_spread(ratio, 2));
  print_row("calls per second, 128 in flight, one caller thread", with_spread(rate, 0));
}

}  // namespace holdfast::bench
