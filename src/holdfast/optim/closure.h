// Closures: how an optimizer that evaluates the loss itself, on the owner of the parameters, has that done by the
// thread that called step(), wherever that is. The owner asks through an RRef<Evaluations>; a handler there hands the
// question over to the thread in step() and waits for the answer.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include <ATen/core/Tensor.h>

#include <holdfast/autograd/context.h>
#include <holdfast/base/error.h>

namespace holdfast::optim {

// The forward and the backward of one step, in the context that it is given. Returns the loss: one element.
using Closure = std::function<at::Tensor(autograd::Context& context)>;

// One step's questions and answers. A handle: copies share one state.
class Evaluations {
 public:
  Evaluations() : shared_(std::make_shared<Shared>()) {}

  // For the owner, by a call: the loss. Throws what the closure threw, or Cancelled if the step is over.
  double evaluate();

  // For the thread in step(). Waits for the next question; false: there will be none.
  bool next();
  void answer(Result<double> loss);
  // The step is over. Any thread.
  void close();

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool asked = false;
    bool closed = false;
    std::optional<Result<double>> answer;
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace holdfast::optim
