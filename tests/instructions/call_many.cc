// Two workers of one process, of which one calls the other, one call after the other: for ../instructions_test, which
// counts what that takes. Nobody spins, so that the count hangs on the work alone. callgrind writes down a count for
// every few calls, since some of them are disturbed: a heartbeat comes, a handler looks slow and is given to a thread.
#include <holdfast/holdfast.h>

#include <memory>
#include <string>
#include <thread>

#include <valgrind/callgrind.h>

#include <holdfast/cluster/coordinator_server.h>

namespace {

using namespace holdfast;

Bytes echo(Bytes bytes) { return bytes; }

std::unique_ptr<Worker> join(const std::string& coordinator, int rank) {
  Options options;
  options.rank = rank;
  options.world_size = 2;
  options.coordinator = coordinator;
  options.spin = false;
  options.shared_memory = false;
  return std::make_unique<Worker>(options);
}

}  // namespace

int main() {
  CoordinatorServer coordinator({.world_size = 2}, {});
  std::unique_ptr<Worker> caller, callee;
  std::thread joining([&] { callee = join(coordinator.address(), 1); });
  caller = join(coordinator.address(), 0);
  joining.join();
  const Peer peer = caller->peer(1);
  const Bytes payload(64);
  for (int part = 0; part < 40; ++part) {
    for (int left = 50; left > 0; --left) peer.call<echo>(payload);
    CALLGRIND_DUMP_STATS_AT("50 calls");
  }
  std::thread leaving([&] { callee->shutdown(kForever); });
  caller->shutdown(kForever);
  leaving.join();
}
