#include <holdfast/autograd/torch_pass.h>

#include <fmt/format.h>

#include <ATen/ops/clone.h>

#include <limits>

#include <holdfast/tensor/devices.h>
#include <holdfast/tensor/incoming_tensors.h>
#include <holdfast/tensor/outgoing_tensors.h>
#include <holdfast/wire/fields.h>

namespace holdfast::autograd {

namespace {

// The body of a gradient message: for each tensor that the send carried, where its gradient stands in the table of
// tensors, or kNotReached. Those that have none share an entry, as does one gradient for several.
constexpr uint32_t kNotReached = std::numeric_limits<uint32_t>::max();
struct GradientBody {
  std::vector<uint32_t> entries;
  Bytes table;
  HOLDFAST_FIELDS(GradientBody, entries, table)
};

Gradient pack(const MessageGradients& message_gradients, Host& host, const SendOrigin& origin) {
  // Then the receiver would write into the very memory that was sent.
  const bool to_self = origin.sender->id() == host.self()->id();
  PeerMover mover(host, *origin.sender, origin.came_in_reply ? MapOf::sender : MapOf::receiver, /*in_order=*/true);
  OutgoingTensors tensors;
  Message message;
  GradientBody body;
  for (size_t i = 0; i < message_gradients.gradients.size(); ++i) {
    const at::Tensor& gradient = message_gradients.gradients[i];
    body.entries.push_back(message_gradients.reached[i]
                               ? tensors.add(to_self && gradient.defined() ? gradient.clone() : gradient)
                               : kNotReached);
  }
  body.table = tensors.finish(message, &mover);
  return {.body = wire::encode_message({}, body).body, .attachments = std::move(message.attachments)};
}

MessageGradients unpack(const Gradient& gradient, Host& host, const WorkerInfo& from) {
  wire::Reader reader(gradient.body);
  GradientBody body;
  wire::decode(reader, body);
  reader.finish();
  if (!reader.ok()) throw_failure({.code = Code::corrupt, .message = "gradients: " + reader.error()});
  // A gradient may have to wait for others, and then be used on another thread.
  PeerMover mover(host, from, MapOf::sender, /*in_order=*/false);
  Result<std::vector<at::Tensor>> tensors = read_tensors(body.table, gradient.attachments, &mover);
  if (!tensors) throw_failure(std::move(tensors.failure()));
  MessageGradients unpacked;
  for (const uint32_t entry : body.entries) {
    const bool is_reached = entry != kNotReached;
    if (is_reached && entry >= tensors->size()) {
      throw_failure({.code = Code::corrupt, .message = "a gradient that did not come with the message"});
    }
    unpacked.gradients.push_back(is_reached ? (*tensors)[entry] : at::Tensor());
    unpacked.reached.push_back(is_reached);
  }
  return unpacked;
}

}  // namespace

TorchPass::TorchPass(std::shared_ptr<ContextState> context, const PassInfo& info, std::vector<Root> roots)
    : context_(std::move(context)),
      roots_(std::move(roots)),
      pass_(context_->gradients, {.retain_graph = (info.options & kRetainGraph) != 0, .ended = info.ended}) {}

std::vector<RemoteSend> TorchPass::walk(const WalkFrom& from) {
  std::vector<LocalPass::RecvPtr> reached;
  if (from.roots) reached = pass_.add_roots(roots_);
  std::vector<LocalPass::SendPtr> sends;
  for (const SendNumber number : from.all_sends ? context_->all_sends() : from.sends) {
    sends.push_back(context_->send(number));
  }
  std::vector<LocalPass::RecvPtr> more = pass_.add_sends(sends);
  reached.insert(reached.end(), more.begin(), more.end());
  if (!std::exchange(has_walked_, true) && !from.all_sends) pass_.foresee(context_->send_functions());

  std::vector<RemoteSend> remote;
  for (const LocalPass::RecvPtr& recv : reached) {
    if (recv->origin.context != context_->id) {
      throw_failure(
          {.code = Code::invalid_argument,
           .message = fmt::format("the graph goes on in another context: {} received a tensor from {} in {}, and "
                                  "this pass is in {}",
                                  context_->host.name(), recv->origin.sender->name, text_of(recv->origin.context),
                                  text_of(context_->id))});
    }
    remote.push_back({.worker = recv->origin.sender, .send = recv->origin.number});
  }
  return remote;
}

RunResult TorchPass::run(bool, std::vector<ArrivedGradient> arrived, bool settled, const Leave& leave) {
  for (const ArrivedGradient& one : arrived) {
    pass_.add_arrived(context_->send(one.send), unpack(one.gradient, context_->host, *one.from));
  }
  RunResult result;
  const auto deliver = [&](const LocalPass::RecvPtr& recv, const MessageGradients& gradients) {
    const SendOrigin& origin = recv->origin;
    LeavingGradient leaving{
        .to = origin.sender, .send = origin.number, .gradient = pack(gradients, context_->host, origin)};
    if (pass_.has_ready()) {
      leave(std::move(leaving));
    } else {
      result.gradients.push_back(std::move(leaving));
    }
  };
  pass_.run(deliver, settled);
  result.held = pass_.holds();
  result.waiting = pass_.waiting();
  result.waiting_names = pass_.waiting_names();
  return result;
}

}  // namespace holdfast::autograd
