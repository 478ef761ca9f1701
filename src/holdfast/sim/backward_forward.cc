#include <holdfast/sim/backward_forward.h>

#include <holdfast/wire/codecs.h>

namespace holdfast::sim {

namespace {

const size_t kIndex = RegisteredProtocol<ToyForwards>::index();

}  // namespace

std::unique_ptr<Protocol> ToyForwards::make(Node& node, Host& host) {
  auto forwards = std::make_unique<ToyForwards>(node, host);
  node.add_protocol(kToyForward, kToyForward, *forwards);
  return forwards;
}

ToyForwards& ToyForwards::of(Host& host) { return static_cast<ToyForwards&>(host.protocol(kIndex)); }

void ToyForwards::send(const WorkerPtr& to, const ToyForward& forward) {
  host_.step([&](Step& step) {
    node_.send(step, to, std::make_shared<Message>(wire::encode_message(kToyForward, forward)), false);
  });
}

Status ToyForwards::on_message(Step& step, const WorkerPtr& from, Message message) {
  Result<ToyForward> forward = wire::decode_message<ToyForward>(message);
  if (!forward) return std::move(forward.failure());
  step.closures.emplace_back([this, from, forward = std::move(*forward)] {
    if (on_forward_) on_forward_(from, forward);
  });
  return {};
}

}  // namespace holdfast::sim
