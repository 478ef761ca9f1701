#include "worker_crowd.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace holdfast::bench {

namespace {

using Record = std::array<char, 64>;
constexpr int kReadyTimeoutMs = 60'000;

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
  if (pipe(to_children_) != 0 || pipe(from_children_) != 0) throw std::runtime_error("pipe failed");
  for (int rank = 1; rank < size; ++rank) {
    others_.push_back(std::make_unique<Child>([&, rank] {
      const auto say_ready = [&] {
        if (write(from_children_[1], "", 1) != 1) throw std::runtime_error("the benchmark is gone");
      };
      watch.before_join();
      say_ready();
      Worker worker(options_for(rank, take(to_children_[0])));
      take(to_children_[0]);
      watch.after_join();
      say_ready();
      worker.shutdown(kForever);
    }));
  }
}

WorkerCrowd::~WorkerCrowd() {
  worker_.reset();
  for (const auto& ends : {to_children_, from_children_}) {
    close(ends[0]);
    close(ends[1]);
  }
}

void WorkerCrowd::give_each(const std::string& text) {
  Record record{};
  text.copy(record.data(), record.size() - 1);
  for (size_t i = 0; i < others_.size(); ++i) {
    if (write(to_children_[1], record.data(), record.size()) < 0) throw std::runtime_error("write failed");
  }
}

std::string WorkerCrowd::take(int from) {
  Record record{};
  if (read(from, record.data(), record.size()) <= 0) throw std::runtime_error("the benchmark is gone");
  return record.data();
}

void WorkerCrowd::wait_for_all() {
  char byte = 0;
  for (size_t i = 0; i < others_.size(); ++i) {
    pollfd ready = {.fd = from_children_[0], .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, kReadyTimeoutMs) != 1 || read(ready.fd, &byte, 1) != 1) {
      throw std::runtime_error("one of the benchmark's children is gone");
    }
  }
}

double WorkerCrowd::start() {
  wait_for_all();
  coordinator_.emplace(CoordinatorOptions{.world_size = static_cast<uint32_t>(size_)}, ListenOptions{});
  const double seconds = seconds_taken([&] {
    give_each(coordinator_->address());
    worker_.emplace(options_for(0, coordinator_->address()));
  });
  give_each("go on");
  wait_for_all();
  return seconds;
}

void WorkerCrowd::kill(int rank) {
  others_.at(static_cast<size_t>(rank - 1))->kill();
  coordinator_->declare_lost(Rank{static_cast<uint32_t>(rank)}, "its process ended");
}

double WorkerCrowd::shutdown() {
  return seconds_taken([&] { worker_->shutdown(); });
}

}  // namespace holdfast::bench
