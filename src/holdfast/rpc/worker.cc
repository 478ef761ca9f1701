#include <holdfast/rpc/worker.h>

#include <holdfast/rpc/runtime.h>

namespace holdfast {

Worker::Worker(Options options) : runtime_(std::make_shared<Runtime>(std::move(options), this)) {
  try {
    runtime_->join();
  } catch (...) {
    runtime_->stop("joining failed");
    throw;
  }
}

Worker::~Worker() { runtime_->stop("the worker was destroyed without shutdown()"); }

const WorkerInfo& Worker::info() const { return *runtime_->self(); }

int Worker::world_size() const { return runtime_->options().world_size; }

const Options& Worker::options() const { return runtime_->options(); }

Peer Worker::peer(std::string_view name) {
  return {runtime_->find_peer(std::string(name), {}), runtime_->options().timeout};
}

Peer Worker::peer(int rank) {
  if (rank < 0 || rank >= world_size()) {
    throw_failure(
        {.code = Code::invalid_argument,
         .message = "there is no rank " + std::to_string(rank) + " in a world of " + std::to_string(world_size())});
  }
  return {runtime_->find_peer("", Rank{static_cast<uint32_t>(rank)}), runtime_->options().timeout};
}

Peer Worker::peer(const WorkerInfo& worker) {
  return {host().peer_state(std::make_shared<const WorkerInfo>(worker)), runtime_->options().timeout};
}

Host& Worker::host() { return *runtime_; }

Peer Worker::self() { return peer(info()); }

void Worker::shutdown() { shutdown(runtime_->options().shutdown_timeout); }

void Worker::shutdown(Duration timeout) { runtime_->shutdown(timeout); }

WorkerStats Worker::stats() const { return runtime_->stats(); }

Worker& current_worker() {
  void* worker = current_ambient().worker;
  if (worker == nullptr) {
    throw_failure({.code = Code::invalid_argument, .message = "current_worker() was called outside a handler"});
  }
  return *static_cast<Worker*>(worker);
}

bool cancelled() {
  const Ambient& ambient = current_ambient();
  return ambient.cancelled && ambient.cancelled->load();
}

}  // namespace holdfast
