// ./bench tensor: large tensors one way, beside a plain blocking socket in the same run.
#include <holdfast/torch.h>

#include <algorithm>
#include <deque>

#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "../benchmarks.h"
#include "../worker_pair.h"
#include "raw_stream.h"

namespace holdfast::bench {

namespace {

constexpr size_t kInFlight = 4;

int64_t take_tensor(const at::Tensor& tensor) { return tensor.numel(); }

double send(const Peer& peer, const at::Tensor& tensor, size_t count) {
  std::deque<Future<int64_t>> waiting;
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < count; ++i) {
    if (waiting.size() == kInFlight) {
      if (waiting.front().take() != tensor.numel()) throw std::runtime_error("the wrong tensor arrived");
      waiting.pop_front();
    }
    waiting.push_back(peer.async<take_tensor>(tensor));
  }
  for (auto& future : waiting) future.take();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return static_cast<double>(tensor.nbytes()) * static_cast<double>(count) / seconds / 1e9;
}

std::string size_text(uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

void run_tensor(const Settings& settings) {
  // Children are forked before this process has any thread.
  WorkerPair pair;
  RawStream raw;
  Child raw_server([&] { raw.serve(); });
  raw.connect();

  pair.start();
  const Peer peer = pair.peer();

  for (const uint64_t bytes : {4u << 10, 64u << 10, 1u << 20, 16u << 20, 256u << 20}) {
    const at::Tensor tensor = at::ones({static_cast<int64_t>(bytes)}, at::kByte);
    const size_t count = std::clamp<size_t>(settings.scaled((uint64_t{4} << 30) / bytes), 2, 20000);
    std::vector<double> gigabytes, floor, ratio;
    send(peer, tensor, 2);  // connects, and the handler is known
    for (size_t round = 0; round < settings.rounds(); ++round) {
      floor.push_back(raw.send(tensor.data_ptr<uint8_t>(), bytes, count));
      gigabytes.push_back(send(peer, tensor, count));
      ratio.push_back(gigabytes.back() / floor.back());
    }
    print_row(size_text(bytes) + " tensor, GB/s", with_spread(gigabytes, 2));
    print_row(size_text(bytes) + " raw socket, GB/s", with_spread(floor, 2));
    print_row(size_text(bytes) + ", ratio (aim 0.85 from 1 MiB)", with_spread(ratio, 2));
  }
}

}  // namespace holdfast::bench
