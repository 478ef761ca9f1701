#include <holdfast/rpc/served_call.h>

#include <fmt/format.h>

#include <holdfast/base/ambient.h>

namespace holdfast {

ServedCall::ServedCall(CallHost& host, const Function& function, WorkerPtr caller, CallId id, Time deadline,
                       Message message)
    : host(host),
      function(function),
      caller(std::move(caller)),
      id(id),
      deadline(deadline),
      message(std::move(message)) {}

ServedCall::~ServedCall() {
  if (!responded_) {
    respond(Failure{.code = Code::cancelled, .message = fmt::format("{} ended without a result", function.name)});
  }
}

void ServedCall::run() {
  if (!host.begin(*this)) {
    responded_ = true;  // the caller has given up; it wants no reply
    return;
  }
  AmbientScope scope({.worker = host.worker(),
                      .deadline = deadline,
                      .cancelled = std::shared_ptr<std::atomic<bool>>(shared_from_this(), &cancelled),
                      .autograd_context = nullptr});
  function.invoke(shared_from_this());
}

void ServedCall::read_arguments(wire::Reader& reader) const { read_call_header(reader); }

void ServedCall::respond(std::shared_ptr<Message> reply) {
  if (!responded_.exchange(true)) host.respond(*this, std::move(reply));
}

void ServedCall::respond(Failure failure) {
  if (!responded_.exchange(true)) host.respond(*this, failed_reply(id, failure));
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
