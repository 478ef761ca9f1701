#include "worker_pair.h"

#include <unistd.h>

#include <stdexcept>

namespace holdfast::bench {

Options WorkerPair::options_for(int rank, const std::string& coordinator) const {
  Options options;
  options.rank = rank;
  options.world_size = 2;
  options.coordinator = coordinator;
  change_(options);
  return options;
}

WorkerPair::WorkerPair(Change change) : change_(std::move(change)) {
  if (pipe(address_pipe_) != 0) throw std::runtime_error("pipe failed");
  other_.emplace([&] {
    char address[128] = {};
    if (read(address_pipe_[0], address, sizeof(address) - 1) <= 0) return;
    Worker worker(options_for(1, address));
    worker.shutdown(kForever);
  });
}

void WorkerPair::start() {
  coordinator_.emplace(CoordinatorOptions{.world_size = 2}, ListenOptions{},
                       TcpOptions{.tls = make_tls(options_for(0, "").security).take()});
  const std::string& address = coordinator_->address();
  if (write(address_pipe_[1], address.c_str(), address.size()) < 0) {
    throw std::runtime_error("the benchmark's child is gone");
  }
  worker_.emplace(options_for(0, address));
}

}  // namespace holdfast::bench
