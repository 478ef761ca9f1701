#include "worker_crowd.h"

#include <unistd.h>

#include <array>
#include <stdexcept>

namespace holdfast::bench {

namespace {

// Written to the pipe once for each child, which reads one.
using AddressRecord = std::array<char, 64>;

template <class F>
double seconds_taken(F&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Options WorkerCrowd::options_for(int rank, const std::string& coordinator) const {
  Options options;
  options.rank = rank;
  options.world_size = size_;
  options.coordinator = coordinator;
  return options;
}

WorkerCrowd::WorkerCrowd(int size, const Watch& watch) : size_(size) {
  if (pipe(address_pipe_) != 0) throw std::runtime_error("pipe failed");
  for (int rank = 1; rank < size; ++rank) {
    others_.push_back(std::make_unique<Child>([&, rank] {
      AddressRecord address{};
      if (read(address_pipe_[0], address.data(), address.size()) <= 0) return;
      watch.before_join();
      Worker worker(options_for(rank, address.data()));
      watch.after_join();
      worker.shutdown(kForever);
    }));
  }
}

WorkerCrowd::~WorkerCrowd() {
  worker_.reset();
  for (const int fd : address_pipe_) close(fd);
}

double WorkerCrowd::start() {
  coordinator_.emplace(CoordinatorOptions{.world_size = static_cast<uint32_t>(size_)}, ListenOptions{});
  AddressRecord address{};
  coordinator_->address().copy(address.data(), address.size() - 1);
  return seconds_taken([&] {
    for (size_t i = 0; i < others_.size(); ++i) {
      if (write(address_pipe_[1], address.data(), address.size()) < 0) {
        throw std::runtime_error("the benchmark's children are gone");
      }
    }
    worker_.emplace(options_for(0, address.data()));
  });
}

void WorkerCrowd::kill(int rank) {
  others_.at(static_cast<size_t>(rank - 1))->kill();
  coordinator_->declare_lost(Rank{static_cast<uint32_t>(rank)}, "its process ended");
}

double WorkerCrowd::shutdown() {
  return seconds_taken([&] { worker_->shutdown(); });
}

}  // namespace holdfast::bench
