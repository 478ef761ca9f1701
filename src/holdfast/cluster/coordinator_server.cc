#include <holdfast/cluster/coordinator_server.h>

#include <pthread.h>

namespace holdfast {

namespace {

// Nobody waits for it but at the beginning and at the end: no core need be busy for that, no memory set aside.
TcpOptions unhurried(TcpOptions options) {
  options.spin = false;
  options.shared_memory = false;
  return options;
}

}  // namespace

CoordinatorServer::CoordinatorServer(CoordinatorOptions options, const ListenOptions& listen, TcpOptions tcp)
    : coordinator_(std::move(options)), step_(steady_now()), transport_(*this, unhurried(std::move(tcp))) {
  address_ = transport_.listen(listen).take();
  thread_ = std::thread([this] { serve(); });
  pthread_setname_np(thread_.native_handle(), "hf-coordinator");
}

CoordinatorServer::~CoordinatorServer() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  transport_.interrupt();
  thread_.join();
}

void CoordinatorServer::declare_lost(Rank rank, const std::string& reason, bool returns) {
  Step step(steady_now());
  {
    std::lock_guard lock(mutex_);
    coordinator_.declare_lost(step, rank, reason, returns);
  }
  perform(step);
  changed_.notify_all();
}

bool CoordinatorServer::wait_until_empty(Duration timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this] { return coordinator_.member_count() == 0; });
}

size_t CoordinatorServer::member_count() {
  std::lock_guard lock(mutex_);
  return coordinator_.member_count();
}

void CoordinatorServer::serve() {
  for (;;) {
    Time until;
    {
      std::lock_guard lock(mutex_);
      if (stopping_) return;
      step_.now = steady_now();
      coordinator_.on_time(step_);
      until = coordinator_.next_wakeup();
    }
    perform(step_);
    changed_.notify_all();
    transport_.poll(until);
    perform(step_);
  }
}

void CoordinatorServer::perform(Step& step) {
  for (ConnectionId connection : step.trusts) transport_.trust(connection);
  for (ConnectionId connection : step.flushes) transport_.flush(connection);
  for (Step::Close& close : step.closes) transport_.close(close.connection, std::move(close.why));
  step.clear();
}

void CoordinatorServer::on_accepted(ConnectionId connection) {
  std::lock_guard lock(mutex_);
  step_.now = steady_now();
  coordinator_.on_accepted(step_, connection);
}

void CoordinatorServer::on_connected(ConnectionId) {}

void CoordinatorServer::on_frames(ConnectionId connection, std::vector<InFrame>& frames) {
  std::lock_guard lock(mutex_);
  step_.now = steady_now();
  coordinator_.on_frames(step_, connection, frames);
}

void CoordinatorServer::on_progress(ConnectionId) {}

void CoordinatorServer::on_closed(ConnectionId connection, const Failure&) {
  std::lock_guard lock(mutex_);
  step_.now = steady_now();
  coordinator_.on_closed(step_, connection);
}

void CoordinatorServer::collect(ConnectionId connection, size_t, std::vector<OutFrame>& out) {
  std::lock_guard lock(mutex_);
  coordinator_.collect(connection, out);
}

}  // namespace holdfast
