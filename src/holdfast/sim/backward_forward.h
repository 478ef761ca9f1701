// ToyForwards: the messages by which toy programs (backward_toy.h) send values to other workers in their forward: what
// calls with tensors are in a real program. One for each simulated worker.
#pragma once

#include <functional>
#include <memory>

#include <holdfast/backward/ids.h>
#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/node.h>
#include <holdfast/rpc/protocol.h>
#include <holdfast/wire/fields.h>
#include <holdfast/wire/kind.h>

namespace holdfast::sim {

inline constexpr Kind kToyForward{96};
inline constexpr std::array<KindName, 1> kToyKinds = {{{kToyForward, "TOY_FORWARD"}}};

struct ToyForward {
  ContextId context;
  WorkerInfo creator;
  uint64_t send_function = 0;
  HOLDFAST_FIELDS(ToyForward, context, creator, send_function)
};

class ToyForwards final : public Protocol {
 public:
  using OnForward = std::function<void(const WorkerPtr& from, const ToyForward& forward)>;

  ToyForwards(Node& node, Host& host) : node_(node), host_(host) {}
  static std::unique_ptr<Protocol> make(Node& node, Host& host);
  static ToyForwards& of(Host& host);

  // Called outside the lock, at once.
  void set_on_forward(OnForward on_forward) { on_forward_ = std::move(on_forward); }
  void send(const WorkerPtr& to, const ToyForward& forward);

  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  bool idle() const override { return true; }

 private:
  Node& node_;
  Host& host_;
  OnForward on_forward_;
};

}  // namespace holdfast::sim
