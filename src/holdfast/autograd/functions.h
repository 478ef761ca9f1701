// SendFunction and RecvFunction: the two ends of a message that carried tensors, as functions of libtorch's graph. The
// sender's graph ends in a send, the receiver's begins with a recv; the gradients of the recv travel to the send.
//
// Owned by the graph, like every function; the context also keeps its sends, to find them by number. A recv names its
// send and its context by their ids: a pointer to the context would keep it alive through its own graph.
// Neither holds a lock; a function is run by one pass at a time.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <span>
#include <string>

#include <holdfast/backward/ids.h>
#include <holdfast/link/worker_info.h>

namespace holdfast::autograd {

// How the two functions look to those who walk the graph. A program that stands in for another may want the names that
// the other has, and tensors that are outputs of the recv itself. Set before any is made.
struct FunctionForm {
  std::string send_name = "holdfast::SendFunction";
  std::string recv_name = "holdfast::RecvFunction";
  // Between a tensor that arrived and its recv stands a function for the hooks on that tensor. On the recv itself hooks
  // would be called for every tensor of the message as soon as one of them has a gradient.
  bool hooks_apart = true;
};
FunctionForm& function_form();

// Hands the gradients that arrive for a message on to the tensors that it carried.
struct SendFunction : torch::autograd::Node {
  std::string name() const override { return function_form().send_name; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;
};

// The send that a recv belongs to.
struct SendOrigin {
  ContextId context;
  WorkerPtr sender;
  SendNumber number;
  // The tensors came with the reply to a call of ours. Between devices they go by the map of whoever calls, and their
  // gradients by the same map.
  bool came_in_reply = false;
};

// Its gradients are for another worker: only a distributed pass can take them there. It cannot be run, so that
// loss.backward(), which would silently stop here, fails.
struct RecvFunction : torch::autograd::Node {
  explicit RecvFunction(SendOrigin send_origin) : origin(std::move(send_origin)) {}
  std::string name() const override { return function_form().recv_name; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

  const SendOrigin origin;
};

// For the tensors of one message, before it is sent. The function takes one gradient for each tensor that requires
// grad, in their order. Null if there is nothing to record: no tensor requires grad, or grad mode is off.
std::shared_ptr<SendFunction> make_send(std::span<const at::Tensor> sent);

// For the tensors of one message that has arrived: those that require grad, as set from the message, become the outputs
// of a new recv, in their order. They must be fresh: leaves that nothing has been computed from.
std::shared_ptr<RecvFunction> make_recv(std::span<const at::Tensor> received, SendOrigin origin);

}  // namespace holdfast::autograd
