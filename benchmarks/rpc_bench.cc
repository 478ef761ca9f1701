// ./bench rpc: a call of 64 bytes there and back, and many calls in flight, beside the raw floor of the same run.
#include <holdfast/cluster/coordinator_server.h>
#include <holdfast/holdfast.h>

#include <unistd.h>

#include <deque>
#include <optional>

#include <fmt/format.h>

#include "benchmarks.h"
#include "raw_tcp.h"

namespace holdfast::bench {

namespace {

Bytes echo(Bytes bytes) { return bytes; }

Options options_for(int rank, const std::string& coordinator, const Security& security) {
  Options options;
  options.security = security;
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

// Two workers, the other one in a process of its own, forked before this process has any thread; then start().
class Pair {
 public:
  explicit Pair(Security security) : security_(std::move(security)) {
    if (pipe(address_pipe_) != 0) throw std::runtime_error("pipe failed");
    server_.emplace([&] {
      char address[128] = {};
      if (read(address_pipe_[0], address, sizeof(address) - 1) <= 0) return;
      Worker worker(options_for(1, address, security_));
      worker.shutdown(kForever);
    });
  }
  void start() {
    coordinator_.emplace(CoordinatorOptions{.world_size = 2}, ListenOptions{},
                         TcpOptions{.tls = make_tls(security_).take()});
    if (write(address_pipe_[1], coordinator_->address().c_str(), coordinator_->address().size()) < 0) {
      throw std::runtime_error("the benchmark's child is gone");
    }
    worker_.emplace(options_for(0, coordinator_->address(), security_));
  }
  Peer peer() { return worker_->peer(1); }

 private:
  const Security security_;
  int address_pipe_[2] = {};
  std::optional<Child> server_;
  std::optional<CoordinatorServer> coordinator_;
  std::optional<Worker> worker_;
};

void time_calls(const Peer& peer, size_t count, Latencies& latencies) {
  const Bytes payload(64);
  latencies.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    peer.call<echo>(payload);
    latencies.add(std::chrono::steady_clock::now() - start);
  }
}

}  // namespace

void run_rpc(const Settings& settings) {
  RawTcpEcho raw;
  Child raw_server([&] { raw.serve(); });
  raw.connect();

  Pair plain({}), tls({.mode = SecurityMode::secret, .secret = make_secret()});
  plain.start();
  tls.start();
  const Peer peer = plain.peer(), tls_peer = tls.peer();

  const size_t count = settings.scaled(5000);
  std::vector<double> raw_p50, raw_p99, call_p50, call_p99, ratio, rate, tls_p50, tls_p99, tls_ratio, tls_rate;
  for (const Peer& one : {peer, tls_peer}) calls_per_second(one, settings.scaled(20000), 128);  // warm up
  for (size_t round = 0; round < settings.rounds(); ++round) {
    Latencies raw_round, call_round, tls_round;
    raw_round.reserve(count);
    raw.ping_pong(count, raw_round);
    time_calls(peer, count, call_round);
    time_calls(tls_peer, count, tls_round);
    raw_p50.push_back(raw_round.percentile(0.5));
    raw_p99.push_back(raw_round.percentile(0.99));
    call_p50.push_back(call_round.percentile(0.5));
    call_p99.push_back(call_round.percentile(0.99));
    ratio.push_back(call_p50.back() / raw_p50.back());
    tls_p50.push_back(tls_round.percentile(0.5));
    tls_p99.push_back(tls_round.percentile(0.99));
    tls_ratio.push_back(tls_p50.back() / call_p50.back());
    rate.push_back(calls_per_second(peer, settings.scaled(200000), 128));
    tls_rate.push_back(calls_per_second(tls_peer, settings.scaled(200000), 128));
  }
  print_row("raw blocking TCP round trip, 64 bytes, p50 (us)", with_spread(raw_p50, 1));
  print_row("raw blocking TCP round trip, 64 bytes, p99 (us)", with_spread(raw_p99, 1));
  print_row("call of 64 bytes, p50 (us)", with_spread(call_p50, 1));
  print_row("call of 64 bytes, p99 (us)", with_spread(call_p99, 1));
  print_row("call / raw, p50", with_spread(ratio, 2));
  print_row("calls per second, 128 in flight, one caller thread", with_spread(rate, 0));
  print_row("TLS: call of 64 bytes, p50 (us)", with_spread(tls_p50, 1));
  print_row("TLS: call of 64 bytes, p99 (us)", with_spread(tls_p99, 1));
  print_row("TLS / plain, p50 (bound: 1.5)", with_spread(tls_ratio, 2));
  print_row("TLS: calls per second, 128 in flight, one caller thread", with_spread(tls_rate, 0));
}

}  // namespace holdfast::bench
