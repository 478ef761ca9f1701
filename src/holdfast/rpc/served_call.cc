#include <holdfast/rpc/served_call.h>

#include <fmt/format.h>

#include <holdfast/base/ambient.h>
#include <holdfast/base/blocking.h>
#include <holdfast/rpc/flow.h>

namespace holdfast {

ServedCall::ServedCall(CallHost& host, const Function& function, WorkerPtr caller, CallId id, Time deadline,
                       Message&& message, size_t arguments_at, std::shared_ptr<Keeper> keeper)
    : host(host),
      function(function),
      caller(std::move(caller)),
      id(id),
      deadline(deadline),
      message(std::move(message)),
      keeper_(std::move(keeper)),
      arguments_at_(arguments_at) {}

ServedCall::~ServedCall() {
  take_hook().reset();
  if (!responded_) {
    respond(Failure{.code = Code::cancelled, .message = fmt::format("{} ended without a result", function.name)});
  }
}

void ServedCall::run() {
  const Time started = host.now();
  if (!host.begin(*this, started)) {
    responded_ = true;  // the caller has given up; it wants no reply
    if (keeper_) keeper_->fail(function.name, {.code = Code::timeout, .message = "its time was up before it began"});
    return;
  }
  Result<std::shared_ptr<void>> flow = enter_flow(host, caller, message);
  if (!flow) return respond(std::move(flow.failure()));
  const std::shared_ptr<ServedCall> self = shared_from_this();
  AmbientScope scope({.worker = host.worker(),
                      .deadline = deadline,
                      .cancelled = std::shared_ptr<std::atomic<bool>>(self, &cancelled),
                      .flow = std::move(*flow)});
  const uint64_t blocked_before = blocking_count();
  function.invoke(self);
  function.history.add(host.now() - started, blocking_count() != blocked_before);
}

void ServedCall::cancel(Step& step) {
  cancelled = true;
  if (std::unique_ptr<Closure> hook = take_hook()) step.closures.emplace_back([hook = std::move(hook)] { (*hook)(); });
}

void ServedCall::on_cancel(Closure hook) {
  delete hook_.exchange(new Closure(std::move(hook)));
  // Cancelled just before, or just now: whoever takes the hook runs it.
  if (!cancelled) return;
  if (std::unique_ptr<Closure> mine = take_hook()) (*mine)();
}

void ServedCall::respond(std::shared_ptr<Message> reply) {
  if (!responded_.exchange(true)) host.respond(*this, std::move(reply));
}

void ServedCall::respond(Failure failure) {
  if (responded_.exchange(true)) return;
  if (keeper_) {
    keeper_->fail(function.name, std::move(failure));
    host.respond(*this, nullptr);
  } else {
    host.respond(*this, failed_reply(id, failure));
  }
}

void ServedCall::keep(KeptValue value) {
  if (responded_.exchange(true)) return;
  keeper_->keep(std::move(value));
  host.respond(*this, nullptr);
}

void ServedCall::respond_with_current_exception() {
  Failure failure = describe_current_exception();
  if (failure.code != Code::remote_error || !failure.worker.empty()) {
    // One of our own errors, from a call that the handler made.
    failure.type = fmt::format("holdfast::{}", name_of(failure.code));
    failure.worker.clear();
  }
  failure.code = Code::remote_error;
  respond(std::move(failure));
}

}  // namespace holdfast
