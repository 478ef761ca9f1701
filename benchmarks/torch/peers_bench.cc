// ./bench peers: the same works by Holdfast and by others, in turns, in one table: 64 bytes there and back; the same
// with 128 calls in flight from one thread; 16 MiB one way; an object made there and fetched, by those who have
// references.
#include <holdfast/torch.h>

#include <deque>
#include <memory>

#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "../benchmarks.h"
#include "../peer_process.h"
#include "../worker_pair.h"

namespace holdfast::bench {

namespace {

Bytes give_back(Bytes bytes) { return bytes; }
int64_t take_whole(const at::Tensor& tensor) { return tensor.numel(); }

struct Work {
  std::string name;  // as a peer is asked for it
  std::string heading;
  std::string unit;
  size_t bytes;
  size_t count;
  size_t in_flight;
  bool less_is_better;
  int digits;

  Work with_count(size_t other) const {
    Work work = *this;
    work.count = other;
    return work;
  }
};

// One row of the table.
class Contender {
 public:
  explicit Contender(std::string name) : name_(std::move(name)) {}
  virtual ~Contender() = default;
  virtual void start() {}
  virtual bool there() { return true; }
  virtual std::string why_not() const { return {}; }
  virtual bool has_references() const { return false; }
  virtual double run(const Work& work) = 0;
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
};

class Ours final : public Contender {
 public:
  Ours(std::string name, bool shared_memory)
      : Contender(std::move(name)), pair_([=](Options& options) { options.shared_memory = shared_memory; }) {}
  void start() override { pair_.start(); }
  bool has_references() const override { return true; }
  double run(const Work& asked) override {
    const Peer peer = pair_.peer();
    // Small calls take a tenth of the others' time and less, and a round should take about as long.
    const Work work = asked.with_count(asked.name == "large" ? asked.count : 10 * asked.count);
    const Bytes payload(work.bytes);
    if (work.name == "latency") {
      Latencies latencies;
      for (size_t i = 0; i < work.count; ++i) {
        const auto start = std::chrono::steady_clock::now();
        peer.call<give_back>(payload);
        latencies.add(std::chrono::steady_clock::now() - start);
      }
      return latencies.percentile(0.5);
    }
    if (work.name == "references") {
      const auto start = std::chrono::steady_clock::now();
      for (size_t i = 0; i < work.count; ++i) peer.remote<give_back>(payload).to_here();
      return static_cast<double>(work.count) / seconds_since(start);
    }
    if (work.name == "rate") return static_cast<double>(work.count) / many<give_back>(peer, payload, work);
    return static_cast<double>(work.bytes * work.count) / 1e9 /
           many<take_whole>(peer, at::ones({static_cast<int64_t>(work.bytes)}, at::kByte), work);
  }

 private:
  template <auto function, class Payload>
  static double many(const Peer& peer, const Payload& payload, const Work& work) {
    std::deque<decltype(peer.async<function>(payload))> waiting;
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < work.count; ++i) {
      if (waiting.size() == work.in_flight) {
        waiting.front().wait();
        waiting.pop_front();
      }
      waiting.push_back(peer.async<function>(payload));
    }
    for (const auto& future : waiting) future.wait();
    return seconds_since(start);
  }

  WorkerPair pair_;
};

class Theirs final : public Contender {
 public:
  Theirs(std::string name, const std::vector<std::string>& command, std::string packages, bool has_references = false)
      : Contender(std::move(name)), process_(command, std::move(packages)), has_references_(has_references) {}
  bool there() override { return process_.there(); }
  std::string why_not() const override { return process_.why_not(); }
  bool has_references() const override { return has_references_; }
  double run(const Work& work) override {
    return process_.ask(fmt::format("{} {} {} {}", work.name, work.bytes, work.count, work.in_flight));
  }

 private:
  PeerProcess process_;
  const bool has_references_;
};

// How many times better the first contender is than each, round by round.
std::string times_better(const Work& work, const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    ratios.push_back(work.less_is_better ? theirs[i] / ours[i] : ours[i] / theirs[i]);
  }
  return with_spread(ratios, 2);
}

}  // namespace

void run_peers(const Settings& settings, Report& report) {
  // All fork, so all of them before any has threads.
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(std::make_unique<Ours>("Holdfast, shared memory", true));
  contenders.push_back(std::make_unique<Ours>("Holdfast, TCP", false));
  contenders.push_back(std::make_unique<Theirs>("gRPC, callback API", std::vector<std::string>{"grpc_peer"},
                                                "libgrpc++-dev and protobuf-compiler-grpc"));
  contenders.push_back(
      std::make_unique<Theirs>("Cap'n Proto", std::vector<std::string>{"capnp_peer"}, "libcapnp-dev and capnproto"));
  contenders.push_back(std::make_unique<Theirs>("UCX messages, shared memory",
                                                std::vector<std::string>{"ucx_peer.py", "shm"}, "ucx-utils"));
  contenders.push_back(
      std::make_unique<Theirs>("UCX messages, TCP", std::vector<std::string>{"ucx_peer.py", "tcp"}, "ucx-utils"));
  contenders.push_back(std::make_unique<Theirs>("torch.distributed.rpc's agent, C++",
                                                std::vector<std::string>{"original_peer"}, "libtorch-dev"));
  contenders.push_back(std::make_unique<Theirs>("torch.distributed.rpc, Python",
                                                std::vector<std::string>{"original_peer.py"},
                                                "python3-torch and python3-numpy", /*has_references=*/true));
  for (const auto& one : contenders) one->start();
  std::erase_if(contenders, [](const auto& one) {
    if (one->there()) return false;
    fmt::print("  {} is not here to compare with: {}\n", one->name(), one->why_not());
    return true;
  });

  const std::vector<Work> works = {
      {"latency", "64 bytes there and back, p50", "us", 64, settings.scaled(2000), 1, true, 1},
      {"rate", "calls of 64 bytes, 128 in flight", "per second", 64, settings.scaled(20000), 128, false, 0},
      {"large", "16 MiB one way", "GB/s", 16 << 20, settings.scaled(60), 4, false, 2},
      {"references", "remote and to_here, 64 bytes, one after the other", "per second", 64, settings.scaled(1000), 1,
       false, 0},
  };
  for (const Work& work : works) {
    std::vector<Contender*> able;
    for (const auto& one : contenders) {
      if (work.name != "references" || one->has_references()) able.push_back(one.get());
    }
    std::vector<std::vector<double>> results(able.size());
    for (size_t round = 0; round < settings.rounds(); ++round) {
      for (size_t i = 0; i < able.size(); ++i) {
        able[i]->run(work.with_count(work.count / 5 + 1));  // wakes it up
        results[i].push_back(able[i]->run(work));
      }
    }
    fmt::print("  {} ({}); then how many times better Holdfast over TCP is, and through shared memory\n", work.heading,
               work.unit);
    for (size_t i = 0; i < able.size(); ++i) {
      fmt::print("    {:<36} {:<30} {:<22} {}\n", able[i]->name(), with_spread(results[i], work.digits),
                 times_better(work, results[1], results[i]), times_better(work, results[0], results[i]));
      const bool references = work.name == "references";  // has the unit of another work
      report.keep(able[i]->name() + (references ? ", remote and to_here" : ""), work.unit, results[i], work.digits);
    }
    std::fflush(stdout);
  }
}

}  // namespace holdfast::bench
