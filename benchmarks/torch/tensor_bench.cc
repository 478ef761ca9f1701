// ./bench tensor: large tensors one way, over TCP beside a plain blocking socket, through shared memory beside one copy
// in memory, and lent.
#include <holdfast/torch.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "../benchmarks.h"
#include "../worker_pair.h"
#include "raw_stream.h"

namespace holdfast::bench {

namespace {

constexpr size_t kTensorsInFlight = 4;

int64_t take_tensor(const at::Tensor& tensor) { return tensor.numel(); }

// Looks at every byte, as those who are sent a tensor do.
int64_t read_tensor(const at::Tensor& tensor) {
  const auto* words = reinterpret_cast<const uint64_t*>(tensor.data_ptr());
  uint64_t sums[4] = {};
  for (size_t i = 0; i + 4 <= tensor.nbytes() / sizeof(uint64_t); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) sums[lane] += words[i + lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] > 0 ? tensor.numel() : 0;
}

template <auto kFunction>
double send(const Peer& peer, const at::Tensor& tensor, size_t count) {
  std::deque<Future<int64_t>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (waiting.size() == kTensorsInFlight) {
      if (waiting.front().take() != tensor.numel()) throw std::runtime_error("the wrong tensor arrived");
      waiting.pop_front();
    }
    waiting.push_back(peer.async<kFunction>(tensor));
  }
  for (auto& future : waiting) future.take();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(tensor.nbytes()) * static_cast<double>(count) / seconds / 1e9;
}

// The floor where both are on one host: the same bytes to another place in memory, which has been used before.
double copy(const at::Tensor& tensor, size_t count) {
  const size_t bytes = tensor.nbytes();
  std::vector<uint8_t> target(bytes);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(target.data(), tensor.data_ptr(), bytes);
    asm volatile("" : : "r"(target.data()) : "memory");  // so that no copy is left out
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(bytes) * static_cast<double>(count) / seconds / 1e9;
}

// Calls with a lent tensor, one after the other.
double median_lent_us(const Peer& peer, const at::Tensor& tensor, size_t count) {
  Latencies latencies;
  for (size_t i = 0; i < count; ++i) {
    const auto start = std::chrono::steady_clock::now();
    if (peer.call<take_tensor>(tensor) != tensor.numel()) throw std::runtime_error("the wrong tensor arrived");
    latencies.add(std::chrono::steady_clock::now() - start);
  }
  return latencies.percentile(0.5);
}

using Speeds = std::vector<double>;

Speeds ratios(const Speeds& speeds, const Speeds& floors) {
  Speeds result;
  for (size_t i = 0; i < speeds.size(); ++i) result.push_back(speeds[i] / floors[i]);
  return result;
}

std::string size_text(uint64_t bytes) {
  if (bytes >= 1 << 30) return fmt::format("{} GiB", bytes >> 30);
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

void measure_lent(const Settings& settings, const Peer& peer, Report& report) {
  for (const uint64_t bytes : {1u << 20, 32u << 20, 1u << 30}) {
    const at::Tensor tensor = empty_lendable({static_cast<int64_t>(bytes)}, at::kByte).fill_(1);
    median_lent_us(peer, tensor, 10);
    std::vector<double> us;
    for (size_t round = 0; round < settings.rounds(); ++round) {
      us.push_back(median_lent_us(peer, tensor, settings.scaled(2000)));
    }
    report.add(size_text(bytes) + " lent, a call (aim: flat, under 50)", "us", us, 1);
  }
}

}  // namespace

void run_tensor(const Settings& settings, Report& report) {
  // Children are forked before this process has any thread.
  WorkerPair tcp([](Options& options) { options.shared_memory = false; });
  WorkerPair shared([](Options& options) { options.frame_bytes_max = uint64_t{2} << 30; });
  RawStream raw;
  Child raw_server([&] { raw.serve(); });
  raw.connect();

  tcp.start();
  shared.start();
  const Peer tcp_peer = tcp.peer(), shared_peer = shared.peer();

  for (const uint64_t bytes : {4u << 10, 64u << 10, 1u << 20, 16u << 20, 256u << 20}) {
    const at::Tensor tensor = at::ones({static_cast<int64_t>(bytes)}, at::kByte);
    const size_t count = std::clamp<size_t>(settings.scaled((uint64_t{4} << 30) / bytes), 2, 20000);
    for (const Peer& peer : {tcp_peer, shared_peer})
      send<take_tensor>(peer, tensor, 2);  // connects, and the handler is known
    Speeds raw_socket, one_copy, over_tcp, over_shared_memory, and_read;
    for (size_t round = 0; round < settings.rounds(); ++round) {
      raw_socket.push_back(raw.send(tensor.data_ptr<uint8_t>(), bytes, count));
      over_tcp.push_back(send<take_tensor>(tcp_peer, tensor, count));
      one_copy.push_back(copy(tensor, count));
      over_shared_memory.push_back(send<take_tensor>(shared_peer, tensor, count));
      and_read.push_back(send<read_tensor>(shared_peer, tensor, count));
    }
    const std::string size = size_text(bytes);
    report.add(size + " raw socket", "GB/s", raw_socket, 2);
    report.add(size + " tensor, TCP", "GB/s", over_tcp, 2);
    report.add(size + " TCP / raw socket (aim 0.85 from 1 MiB)", "ratio", ratios(over_tcp, raw_socket), 2);
    report.add(size + " memcpy", "GB/s", one_copy, 2);
    report.add(size + " tensor, shared memory", "GB/s", over_shared_memory, 2);
    report.add(size + " tensor, shared memory, read there", "GB/s", and_read, 2);
    report.add(size + " shared memory / memcpy (aim 0.9 at 16 MiB)", "ratio", ratios(over_shared_memory, one_copy), 2);
  }
  measure_lent(settings, shared_peer, report);
}

}  // namespace holdfast::bench
