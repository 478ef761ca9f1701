#include <holdfast/autograd/torch_pass.h>

#include <fmt/format.h>

#include <ATen/ops/clone.h>

#include <holdfast/tensor/incoming_tensors.h>
#include <holdfast/tensor/outgoing_tensors.h>
#include <holdfast/wire/fields.h>

namespace holdfast::autograd {

namespace {

using torch::autograd::variable_list;

// The body of a gradient message: for each tensor that the send carried, where its gradient stands in the table of
// tensors. Those that have none share an entry, as does one gradient for several.
struct GradientBody {
  std::vector<uint32_t> entries;
  Bytes table;
  HOLDFAST_FIELDS(GradientBody, entries, table)
};

// `to_self`: the receiver would write into the very memory that was sent.
Gradient pack(const variable_list& gradients, bool to_self) {
  OutgoingTensors tensors;
  Message message;
  GradientBody body;
  for (const at::Tensor& gradient : gradients) {
    body.entries.push_back(tensors.add(to_self && gradient.defined() ? gradient.clone() : gradient));
  }
  body.table = tensors.finish(message);
  return {.body = wire::encode_message({}, body).body, .attachments = std::move(message.attachments)};
}

variable_list unpack(const Gradient& gradient) {
  wire::Reader reader(gradient.body);
  GradientBody body;
  wire::decode(reader, body);
  reader.finish();
  if (!reader.ok()) throw_failure({.code = Code::corrupt, .message = "gradients: " + reader.error()});
  Result<std::vector<at::Tensor>> tensors = read_tensors(body.table, gradient.attachments);
  if (!tensors) throw_failure(std::move(tensors.failure()));
  variable_list gradients;
  for (const uint32_t entry : body.entries) {
    if (entry >= tensors->size()) {
      throw_failure({.code = Code::corrupt, .message = "a gradient that did not come with the message"});
    }
    gradients.push_back((*tensors)[entry]);
  }
  return gradients;
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

RunResult TorchPass::run(bool, std::vector<ArrivedGradient> arrived) {
  for (const ArrivedGradient& one : arrived) pass_.add_arrived(context_->send(one.send), unpack(one.gradient));
  RunResult result;
  const WorkerId self = context_->host.self()->id();
  pass_.run([&](const LocalPass::RecvPtr& recv, variable_list gradients) {
    const SendOrigin& origin = recv->origin;
    result.gradients.push_back(
        {.to = origin.sender, .send = origin.number, .gradient = pack(gradients, origin.sender->id() == self)});
  });
  result.waiting = pass_.waiting();
  result.waiting_names = pass_.waiting_names();
  return result;
}

}  // namespace holdfast::autograd
