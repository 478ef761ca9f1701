#include "work.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

#ifdef HOLDFAST_WITH_TORCH
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>
#include <holdfast/torch.h>
#endif

namespace soak {

namespace hf = holdfast;

namespace {

constexpr int kThreads = 2;

// ---- what is called

struct Running {
  std::mutex mutex;
  Ran ran;
  std::map<uint32_t, std::set<uint64_t>> numbers;  // of the calls since the counts were last taken, by caller
};
Running& running() {
  static Running instance;  // of this process: it has one worker
  return instance;
}

uint64_t counted(uint32_t caller, uint64_t number) {
  Running& all = running();
  const std::lock_guard lock(all.mutex);
  ++all.ran.of[caller];
  if (!all.numbers[caller].insert(number).second) ++all.ran.doubled;
  return number * 3;
}

hf::Bytes echo(hf::Bytes bytes) { return bytes; }

struct Counter {
  explicit Counter(int64_t start) : count(start) {}
  int64_t add(int64_t by) { return count += by; }
  int64_t count;
};

// Takes a reference a few workers further, uses it at the last one, and brings it back.
hf::RRef<Counter> pass_on(hf::RRef<Counter> counter, std::vector<int32_t> ranks) {
  if (ranks.empty()) {
    counter.call<&Counter::add>(1);
    return counter;
  }
  const int32_t next = ranks.back();
  ranks.pop_back();
  return hf::current_worker().peer(next).call<pass_on>(counter, ranks);
}

#ifdef HOLDFAST_WITH_TORCH
at::Tensor twice_on(const at::Tensor& x, std::vector<int32_t> ranks) {
  if (ranks.empty()) return x * 2;
  const int32_t next = ranks.back();
  ranks.pop_back();
  return hf::current_worker().peer(next).call<twice_on>(x * 2, ranks);
}
#endif

// ---- who calls

class Caller {
 public:
  Caller(hf::Worker& worker, const std::string& only, uint64_t seed, uint64_t first_number)
      : worker_(worker), only_(only), random_(seed), number_(first_number) {}

  void run_until(std::chrono::steady_clock::time_point end) {
    try {
      while (std::chrono::steady_clock::now() < end) step();
    } catch (const std::exception& error) {
      done.wrong = fmt::format("{}: {}", worker_.name(), error.what());
    }
  }

  Done done;

 private:
  uint32_t pick(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  int32_t other() {
    const auto others = static_cast<uint32_t>(worker_.world_size() - 1);
    return static_cast<int32_t>((static_cast<uint32_t>(worker_.rank()) + 1 + pick(others)) % (others + 1));
  }
  std::vector<int32_t> way() {
    std::vector<int32_t> ranks(1 + pick(3));
    for (int32_t& rank : ranks) rank = static_cast<int32_t>(pick(static_cast<uint32_t>(worker_.world_size())));
    return ranks;
  }
  hf::Peer peer(int32_t rank) { return worker_.peer(rank).with_timeout(hf::kForever); }
  static void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
  }

  void step() {
    const uint32_t kind = pick(10);
    const auto is = [&](uint32_t number, const char* name) { return only_.empty() ? kind == number : only_ == name; };
    if (is(0, "large")) return large();
    if (is(1, "references")) return references();
#ifdef HOLDFAST_WITH_TORCH
    if (is(2, "passes")) return backward();
#endif
    calls();
  }

  void calls() {
    const int32_t to = other();
    const auto caller = static_cast<uint32_t>(worker_.rank());
    std::vector<std::pair<uint64_t, hf::Future<uint64_t>>> waiting;
    for (uint32_t i = 1 + pick(32); i > 0; --i) {
      ++number_;
      waiting.emplace_back(number_, peer(to).async<counted>(caller, number_));
    }
    for (const auto& [number, future] : waiting) {
      expect(future.get() == number * 3, "a call returned the result of another");
      ++done.made[static_cast<uint32_t>(to)];
      ++done.calls;
    }
  }

  void large() {
    hf::Bytes bytes(size_t{1} << pick(21), static_cast<uint8_t>(pick(256)));
    expect(peer(other()).call<echo>(bytes) == bytes, "bytes came back changed");
    done.bytes += 2 * bytes.size();
  }

  void references() {
    const auto start = static_cast<int64_t>(pick(1000));
    hf::RRef<Counter> counter = peer(other()).make<Counter>(start);
    const int uses = 1 + static_cast<int>(pick(3));
    for (int i = 0; i < uses; ++i) counter = peer(other()).call<pass_on>(counter, way());
    expect(counter.call<&Counter::add>(0) == start + uses, "an object was not used as often as it should");
    ++done.references;
  }

#ifdef HOLDFAST_WITH_TORCH
  void backward() {
    const at::Tensor x = at::rand({1 + pick(200), 8}).set_requires_grad(true);
    std::vector<int32_t> ranks = way();
    const double factor = static_cast<double>(2u << ranks.size());
    hf::autograd::Context context(worker_);
    const at::Tensor y = peer(other()).call<twice_on>(x, ranks);
    expect(at::allclose(y, x * factor), "tensors came back changed");
    const auto mode = pick(2) == 0 ? hf::autograd::Mode::fast : hf::autograd::Mode::smart;
    context.backward({(y * y).sum()}, {.mode = mode});
    expect(at::allclose(context.gradient(x), x.detach() * (2 * factor * factor)), "a gradient is wrong");
    ++done.passes;
    done.bytes += 4 * x.nbytes();
  }
#endif

  hf::Worker& worker_;
  const std::string& only_;
  std::mt19937_64 random_;
  uint64_t number_;
};

}  // namespace

Done work(uint64_t seed, int64_t milliseconds, std::string only) {
  hf::Worker& worker = hf::current_worker();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  std::vector<Caller> callers;
  for (uint64_t i = 0; i < kThreads; ++i) {
    callers.emplace_back(worker, only, seed * 1000 + static_cast<uint64_t>(worker.rank()) * 10 + i, i << 40);
  }
  std::vector<std::thread> threads;
  for (Caller& caller : callers) threads.emplace_back([&caller, end] { caller.run_until(end); });
  for (std::thread& thread : threads) thread.join();
  Done all;
  for (const Caller& caller : callers) {
    for (const auto& [rank, count] : caller.done.made) all.made[rank] += count;
    all.calls += caller.done.calls;
    all.references += caller.done.references;
    all.passes += caller.done.passes;
    all.bytes += caller.done.bytes;
    if (all.wrong.empty()) all.wrong = caller.done.wrong;
  }
  return all;
}

Ran take_ran() {
  Running& all = running();
  const std::lock_guard lock(all.mutex);
  all.numbers.clear();
  return std::exchange(all.ran, {});
}

}  // namespace soak
