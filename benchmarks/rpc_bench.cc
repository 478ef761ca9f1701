// ./bench rpc: a call of 64 bytes there and back, and many calls in flight, beside the raw floors of the same run; then
// the same call by more workers than there are cores.
#include <holdfast/holdfast.h>

#include <deque>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "benchmarks.h"
#include "raw_futex.h"
#include "raw_socket.h"
#include "worker_pair.h"

namespace holdfast::bench {

namespace {

Bytes echo(Bytes bytes) { return bytes; }

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

// How the two workers speak with each other.
struct Way {
  bool shared_memory = false;
  bool spin = true;
  Security security = {};

  void operator()(Options& options) const {
    options.shared_memory = shared_memory;
    options.spin = spin;
    options.security = security;
  }
};

// One line of the table: something that goes there and back, in each round.
class RoundTrip {
 public:
  virtual ~RoundTrip() = default;
  // Once, before the first round and after all processes have been forked.
  virtual void start() = 0;
  virtual void run(size_t count, Latencies& latencies) = 0;
  void part_of_round(size_t count) { run(count, round_); }
  void end_round() {
    p50_.push_back(round_.percentile(0.5));
    p99_.push_back(round_.percentile(0.99));
    round_ = {};
  }
  const std::vector<double>& p50() const { return p50_; }
  void tell(Report& report, const std::string& what) const {
    report.add(what + ", p50", "us", p50_, 1);
    report.add(what + ", p99", "us", p99_, 1);
  }
  void tell_ratio(Report& report, const std::string& what, const RoundTrip& floor) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < p50_.size(); ++i) ratios.push_back(p50_[i] / floor.p50_[i]);
    report.add(what, "ratio", ratios, 2);
  }

 private:
  Latencies round_;
  std::vector<double> p50_, p99_;
};

// A round of each. They take turns in short parts, so that what are compared saw the same moods of the machine.
void round_of_all(const std::vector<RoundTrip*>& all, size_t count) {
  constexpr size_t kParts = 10;
  for (size_t part = 0; part < kParts; ++part) {
    for (RoundTrip* one : all) one->part_of_round(count / kParts);
  }
  for (RoundTrip* one : all) one->end_round();
}

class RawSocket final : public RoundTrip {
 public:
  explicit RawSocket(const RawSocketEcho::Kind& kind) : echo_(kind), server_([this] { echo_.serve(); }) {}
  void start() override { echo_.connect(); }
  void run(size_t count, Latencies& latencies) override { echo_.ping_pong(count, latencies); }

 private:
  RawSocketEcho echo_;
  Child server_;
};

class RawFutex final : public RoundTrip {
 public:
  explicit RawFutex(bool spins) : echo_(spins), server_([this] { echo_.serve(); }) {}
  void start() override {}
  void run(size_t count, Latencies& latencies) override { echo_.ping_pong(count, latencies); }

 private:
  RawFutexEcho echo_;
  Child server_;
};

class Calls final : public RoundTrip {
 public:
  explicit Calls(const Way& way) : pair_(way) {}
  void start() override {
    pair_.start();
    calls_per_second(pair_.peer(), 2000, 128);  // warm up
  }
  void run(size_t count, Latencies& latencies) override {
    const Peer peer = pair_.peer();
    const Bytes payload(64);
    for (size_t i = 0; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      peer.call<echo>(payload);
      latencies.add(std::chrono::steady_clock::now() - start);
    }
  }
  void round_of_many(size_t count) { rates_.push_back(calls_per_second(pair_.peer(), count, 128)); }
  void tell_rate(Report& report, const std::string& what) const {
    report.add(what + ": calls, 128 in flight, one caller thread", "per second", rates_, 0);
  }

 private:
  WorkerPair pair_;
  std::vector<double> rates_;
};

// Several round trips of one kind at the same time, each with a thread here and a process there.
template <class Kind>
class Crowd final : public RoundTrip {
 public:
  template <class Argument>
  Crowd(size_t size, const Argument& argument) {
    for (size_t i = 0; i < size; ++i) members_.push_back(std::make_unique<Kind>(argument));
  }
  void start() override {
    for (const auto& member : members_) member->start();
  }
  void run(size_t count, Latencies& latencies) override {
    std::vector<Latencies> each(members_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < members_.size(); ++i) {
      threads.emplace_back([&, i] { members_[i]->run(count, each[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Latencies& one : each) latencies.add(one);
  }

 private:
  std::vector<std::unique_ptr<Kind>> members_;
};

}  // namespace

void run_rpc(const Settings& settings, Report& report) {
  const size_t crowd = 2 * std::max(1u, std::thread::hardware_concurrency());
  using RawKind = RawSocketEcho::Kind;
  RawSocket sleeping(RawKind{}), spinning(RawKind{.spins = true});
  RawSocket unix_sleeping(RawKind{.unix_socket = true}), unix_spinning(RawKind{.unix_socket = true, .spins = true});
  RawFutex futex_sleeping(false), futex_spinning(true);
  Calls shared({.shared_memory = true}), tcp({}), tcp_asleep({.spin = false}),
      tls({.security = {.mode = SecurityMode::secret, .secret = make_secret()}});
  Crowd<RawSocket> raw_crowd(crowd, RawKind{});
  Crowd<Calls> shared_crowd(crowd, Way{.shared_memory = true}), tcp_crowd(crowd, Way{}),
      asleep_crowd(crowd, Way{.spin = false});
  const std::vector<RoundTrip*> lonely = {&sleeping,       &spinning, &unix_sleeping, &unix_spinning, &futex_sleeping,
                                          &futex_spinning, &shared,   &tcp,           &tcp_asleep,    &tls};
  const std::vector<RoundTrip*> crowded = {&raw_crowd, &shared_crowd, &tcp_crowd, &asleep_crowd};
  for (const auto* all : {&lonely, &crowded}) {
    for (RoundTrip* one : *all) one->start();
  }
  for (size_t round = 0; round < settings.rounds(); ++round) {
    round_of_all(lonely, settings.scaled(5000));
    for (Calls* one : {&shared, &tcp, &tls}) one->round_of_many(settings.scaled(200000));
    round_of_all(crowded, settings.scaled(2000));
  }
  sleeping.tell(report, "raw TCP round trip, 64 bytes, sleeping");
  spinning.tell(report, "raw TCP round trip, 64 bytes, spinning");
  unix_sleeping.tell(report, "raw Unix socket, sleeping");
  unix_spinning.tell(report, "raw Unix socket, spinning");
  futex_sleeping.tell(report, "raw shared memory and futex, sleeping");
  futex_spinning.tell(report, "raw shared memory and futex, spinning");
  shared.tell(report, "shared memory: call of 64 bytes");
  shared.tell_ratio(report, "shared memory / raw spinning TCP, p50", spinning);
  tcp.tell(report, "TCP: call of 64 bytes");
  tcp.tell_ratio(report, "TCP / raw spinning TCP, p50 (aim: 1.5)", spinning);
  tcp_asleep.tell(report, "TCP, sleeping: call of 64 bytes");
  tcp_asleep.tell_ratio(report, "TCP, sleeping / raw sleeping TCP, p50", sleeping);
  tls.tell(report, "TLS: call of 64 bytes");
  tls.tell_ratio(report, "TLS / TCP, p50 (bound: 1.5)", tcp);
  shared.tell_rate(report, "shared memory");
  tcp.tell_rate(report, "TCP");
  tls.tell_rate(report, "TLS");
  raw_crowd.tell(report, fmt::format("{} pairs at once: raw TCP, sleeping", crowd));
  shared_crowd.tell(report, fmt::format("{} pairs at once: call, shared memory", crowd));
  shared_crowd.tell_ratio(report, "shared memory / raw of as many, p50 (aim: 1.3)", raw_crowd);
  tcp_crowd.tell(report, fmt::format("{} pairs at once: call, TCP", crowd));
  tcp_crowd.tell_ratio(report, "TCP / raw of as many, p50 (aim: 1.3)", raw_crowd);
  asleep_crowd.tell(report, fmt::format("{} pairs at once: call, TCP, sleeping", crowd));
  tcp_crowd.tell_ratio(report, "spinning / sleeping, p50", asleep_crowd);
}

}  // namespace holdfast::bench
