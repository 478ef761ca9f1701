// A peer for ./bench peers: Cap'n Proto.
#include <capnp/ez-rpc.h>

#include <deque>
#include <memory>
#include <vector>

#include "echo.capnp.h"
#include "rounds.h"

namespace {

// A message of a large tensor's size is allowed.
constexpr capnp::ReaderOptions kLarge = {.traversalLimitInWords = uint64_t{1} << 32, .nestingLimit = 64};

class Server final : public Echo::Server {
  kj::Promise<void> back(BackContext context) override {
    context.getResults().setData(context.getParams().getData());
    return kj::READY_NOW;
  }
  kj::Promise<void> take(TakeContext context) override {
    context.getResults().setBytes(context.getParams().getData().size());
    return kj::READY_NOW;
  }
};

void serve(const std::function<void(uint16_t)>& say_port) {
  capnp::EzRpcServer server(kj::heap<Server>(), "127.0.0.1", 0, kLarge);
  auto& scope = server.getWaitScope();
  say_port(static_cast<uint16_t>(server.getPort().wait(scope)));
  kj::NEVER_DONE.wait(scope);
}

class CapnpRounds final : public holdfast::bench::Rounds {
 public:
  explicit CapnpRounds(uint16_t port)
      : client_(std::make_unique<capnp::EzRpcClient>("127.0.0.1", port, kLarge)),
        echo_(std::make_unique<Echo::Client>(client_->getMain<Echo>())),
        scope_(client_->getWaitScope()) {}

  double latency_us(size_t bytes, size_t count) override {
    const Data data(bytes);
    return holdfast::bench::median_us(count, [&] { back(data).wait(scope_); });
  }
  double calls_per_second(size_t bytes, size_t count, size_t in_flight) override {
    const Data data(bytes);
    return static_cast<double>(count) / many(count, in_flight, [&] { return back(data).ignoreResult(); });
  }
  double gigabytes_per_second(size_t bytes, size_t count, size_t in_flight) override {
    const Data data(bytes);
    return static_cast<double>(bytes * count) / 1e9 / many(count, in_flight, [&] {
             // Room for the data, so that it is one segment.
             auto request = echo_->takeRequest(capnp::MessageSize{bytes / 8 + 64, 0});
             request.setData(kj::arrayPtr(data.data(), data.size()));
             return request.send().ignoreResult();
           });
  }

 private:
  using Data = std::vector<uint8_t>;

  capnp::RemotePromise<Echo::BackResults> back(const Data& data) {
    auto request = echo_->backRequest();
    request.setData(kj::arrayPtr(data.data(), data.size()));
    return request.send();
  }

  template <class Start>
  double many(size_t count, size_t in_flight, Start start) {
    return holdfast::bench::seconds_of([&] {
      std::deque<kj::Promise<void>> waiting;
      for (size_t i = 0; i < count; ++i) {
        if (waiting.size() == in_flight) {
          waiting.front().wait(scope_);
          waiting.pop_front();
        }
        waiting.push_back(start());
      }
      for (auto& one : waiting) one.wait(scope_);
    });
  }

  // Their destructors may throw, which a member's may not.
  const std::unique_ptr<capnp::EzRpcClient> client_;
  const std::unique_ptr<Echo::Client> echo_;
  kj::WaitScope& scope_;
};

}  // namespace

int main() {
  const uint16_t port = holdfast::bench::start_server(serve);
  CapnpRounds rounds(port);
  return holdfast::bench::answer(rounds);
}
