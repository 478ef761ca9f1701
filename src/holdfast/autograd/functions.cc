#include <holdfast/autograd/functions.h>

#include <fmt/format.h>

#include <holdfast/base/error.h>

namespace holdfast::autograd {

using torch::autograd::variable_list;

FunctionForm& function_form() {
  static FunctionForm form;
  return form;
}

variable_list SendFunction::apply(variable_list&& gradients) { return std::move(gradients); }

namespace {

// Between a tensor that arrived and its recv: FunctionForm::hooks_apart.
struct ReceivedTensor : torch::autograd::Node {
  std::string name() const override { return "holdfast::ReceivedTensor"; }
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

}  // namespace

variable_list RecvFunction::apply(variable_list&&) {
  throw_failure({.code = Code::invalid_argument,
                 .message = fmt::format("a local backward reached a tensor that came from worker \"{}\" by a call; its "
                                        "gradient belongs there: use context.backward()",
                                        origin.sender->name)});
}

// All get libtorch's own deleter, as all functions do: it takes long graphs apart without recursion.

std::shared_ptr<SendFunction> make_send(std::span<const at::Tensor> sent) {
  if (!at::GradMode::is_enabled()) return nullptr;
  torch::autograd::edge_list edges;
  for (const at::Tensor& tensor : sent) {
    if (tensor.requires_grad()) edges.push_back(torch::autograd::impl::gradient_edge(tensor));
  }
  if (edges.empty()) return nullptr;
  std::shared_ptr<SendFunction> send(new SendFunction(), torch::autograd::deleteNode);
  send->set_next_edges(std::move(edges));
  return send;
}

std::shared_ptr<RecvFunction> make_recv(std::span<const at::Tensor> received, SendOrigin origin) {
  std::shared_ptr<RecvFunction> recv(new RecvFunction(std::move(origin)), torch::autograd::deleteNode);
  for (const at::Tensor& tensor : received) {
    if (!tensor.requires_grad()) continue;
    // A tensor that stands in the message twice keeps its last place; no gradient comes for the first one then.
    const uint32_t index = recv->add_input_metadata(tensor);
    if (!function_form().hooks_apart) {
      torch::autograd::impl::set_gradient_edge(tensor, {recv, index});
      continue;
    }
    std::shared_ptr<ReceivedTensor> output(new ReceivedTensor(), torch::autograd::deleteNode);
    output->set_next_edges({{recv, index}});
    torch::autograd::impl::set_gradient_edge(tensor, {output, output->add_input_metadata(tensor)});
  }
  return recv;
}

}  // namespace holdfast::autograd
