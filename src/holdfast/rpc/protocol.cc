#include <holdfast/rpc/protocol.h>

#include <mutex>

namespace holdfast {

namespace {

struct Makers {
  std::mutex mutex;
  std::vector<MakeProtocol> list;
};

// Belongs to the program, like its table of functions: it holds no state of any worker.
Makers& makers() {
  static Makers* const instance = new Makers;
  return *instance;
}

}  // namespace

size_t register_protocol(MakeProtocol make) {
  Makers& all = makers();
  std::lock_guard lock(all.mutex);
  all.list.push_back(make);
  return all.list.size() - 1;
}

std::vector<std::unique_ptr<Protocol>> make_protocols(Node& node, Host& host) {
  Makers& all = makers();
  std::lock_guard lock(all.mutex);
  std::vector<std::unique_ptr<Protocol>> protocols;
  for (MakeProtocol make : all.list) protocols.push_back(make(node, host));
  return protocols;
}

}  // namespace holdfast
