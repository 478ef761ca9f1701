// A token goes round a ring of workers: each calls only the next one, and waits for it without holding a
// thread. Start it with `holdfast run -n 64 ring --rounds 100`.
#include <holdfast/holdfast.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string_view>

namespace hf = holdfast;

hf::Peer next_of(hf::Worker& worker) { return worker.peer((worker.rank() + 1) % worker.world_size()); }

// A coroutine: while the token is further on, no thread waits here. Returns how far the token came.
hf::Task<long> pass_token(long hops_left) {
  if (hops_left == 0) co_return 0;
  co_return 1 + co_await next_of(hf::current_worker()).async<pass_token>(hops_left - 1);
}

// Asks along the ring too: to call every worker from one place would make connections of its own.
hf::Task<size_t> most_connections(int workers_left) {
  size_t most = hf::current_worker().stats().connections;
  if (workers_left > 1) {
    most = std::max(most, co_await next_of(hf::current_worker()).async<most_connections>(workers_left - 1));
  }
  co_return most;
}

// Nothing, or --rounds N. False: anything else.
bool parse(int argc, char** argv, long& rounds) {
  if (argc == 1) return true;
  if (argc != 3 || std::string_view(argv[1]) != "--rounds") return false;
  const std::string_view text = argv[2];
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rounds);
  return error == std::errc() && end == text.data() + text.size() && rounds >= 1;
}

int run(hf::Worker& worker, int argc, char** argv) {
  long rounds = 100;
  if (!parse(argc, argv, rounds)) {
    std::fputs("Usage: ring [--rounds COUNT]\n", stderr);
    return 2;
  }
  const int size = worker.world_size();
  long hops = 0;
  const auto start = std::chrono::steady_clock::now();
  for (long round = 0; round < rounds; ++round) hops += worker.self().call<pass_token>(size);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("A ring of %d, %ld rounds: %ld hops in %.3f s, %.0f hops/s\n", size, rounds, hops, took.count(),
              static_cast<double>(hops) / took.count());
  std::printf("The most connections of one worker: %zu\n", worker.self().call<most_connections>(size));
  return hops == rounds * size ? 0 : 1;
}

int main(int argc, char** argv) {
  try {
    hf::Worker worker(hf::Options::from_env());
    const int status = worker.rank() == 0 ? run(worker, argc, argv) : 0;  // the others only serve
    worker.shutdown(hf::kForever);                                        // until worker 0 has all it wants
    return status;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ring: %s\n", error.what());
    return 1;
  }
}
