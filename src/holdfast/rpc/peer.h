// Peer: a worker as one calls it. Cheap to copy; any thread may use it. Bound to one life of that worker: when
// it dies, calls fail with WorkerLost, also after a replacement has joined (ask Worker::peer again).
#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include <holdfast/base/future.h>
#include <holdfast/link/worker_info.h>
#include <holdfast/rpc/signature.h>

namespace c10 {
struct IValue;
}

namespace holdfast {

template <class T>
class RRef;  // rref/rref.h, which also holds the definitions of Peer::remote and Peer::make

namespace rpc_detail {

// What all copies of a Peer share.
struct PeerState {
  std::shared_ptr<Host> host;
  WorkerPtr worker;
  std::shared_ptr<WaitHelper> helper;  // lets a waiting thread read this peer's replies itself; may be null
};

// A message that starts with the header of a call of that function.
std::shared_ptr<Message> begin_call(Kind kind, const Function& function);
// Completes the promise with the result in a REPLY.
template <class R>
void complete(CallHost& host, const WorkerPtr& from, Promise<R>& promise, Result<Message> result) {
  if (!result) {
    promise.set_failure(std::move(result.failure()));
    return;
  }
  ReceiveContext context(host, from, *result);
  wire::Reader reader(*result, &context);
  skip_reply_header(reader);
  if constexpr (std::is_void_v<R>) {
    promise.set_value();
  } else {
    R value{};
    wire::decode(reader, value);
    reader.finish();
    if (reader.ok()) {
      promise.set_value(std::move(value));
    } else {
      promise.set_failure({.code = Code::corrupt, .message = "the result does not decode: " + reader.error()});
    }
  }
}

template <class R>
Future<R> finish_call(const PeerState& peer, const Function& function, std::shared_ptr<Message> message,
                      Duration timeout) {
  Promise<R> promise(peer.host->executor());
  if (peer.helper) promise.set_helper(peer.helper);
  Future<R> future = promise.future();
  peer.host->start_call(
      peer.worker, function, std::move(message), timeout,
      [host = peer.host.get(), from = peer.worker, promise = std::move(promise)](Result<Message> result) mutable {
        complete(*host, from, promise, std::move(result));
      },
      *future.state());
  return future;
}

// Encodes an argument as the function's own parameter type.
template <class Parameter, class Argument>
void encode_as(wire::Writer& writer, const Argument& argument) {
  if constexpr (std::is_same_v<Parameter, Argument>) {
    wire::encode(writer, argument);
  } else {
    static_assert(std::is_convertible_v<const Argument&, Parameter>,
                  "an argument does not convert to the function's parameter");
    wire::encode(writer, static_cast<Parameter>(argument));
  }
}

// The type by which an argument without a declared parameter travels: a string literal is a string.
template <class Argument>
using AsArgument =
    std::conditional_t<std::is_convertible_v<Argument, const char*>, std::string, std::remove_cvref_t<Argument>>;

template <class... Parameters, class... Args>
void encode_arguments(wire::Writer& writer, std::tuple<Parameters...>*, const Args&... args) {
  static_assert(sizeof...(Parameters) == sizeof...(Args), "the function takes another number of arguments");
  (encode_as<Parameters>(writer, args), ...);
}

// The CALL of that function with those arguments.
template <class Parameters, class... Args>
std::shared_ptr<Message> call_message(const PeerState& peer, Kind kind, const Function& function,
                                      Parameters* parameters, const Args&... args) {
  std::shared_ptr<Message> message = begin_call(kind, function);
  SendContext context(*peer.host, peer.worker, kind);
  wire::Writer writer(*message, &context);
  encode_arguments(writer, parameters, args...);
  context.finish(*message);
  return message;
}

}  // namespace rpc_detail

class Peer {
 public:
  // For Worker.
  Peer(std::shared_ptr<const rpc_detail::PeerState> state, Duration timeout)
      : state_(std::move(state)), timeout_(timeout) {}

  const WorkerInfo& info() const { return *state_->worker; }
  const std::string& name() const { return info().name; }
  int rank() const { return static_cast<int>(info().rank.value); }

  // The same peer, with another timeout for its calls. kForever: none.
  Peer with_timeout(Duration timeout) const { return {state_, timeout}; }

  // Runs F(args...) over there and waits for the result. Throws what went wrong: see base/error.h.
  template <auto F, class... Args>
  typename Registered<F>::Result call(const Args&... args) const {
    return async<F>(args...).take();
  }

  // The same, without waiting. If too much is in flight to that worker, this waits until there is room.
  template <auto F, class... Args>
  Future<typename Registered<F>::Result> async(const Args&... args) const {
    const Function& function = Registered<F>::entry;
    std::shared_ptr<Message> message = rpc_detail::call_message(
        *state_, kCall, function, static_cast<typename Registered<F>::Arguments*>(nullptr), args...);
    return rpc_detail::finish_call<typename Registered<F>::Result>(*state_, function, std::move(message), timeout_);
  }

  // Runs F(args...) over there and leaves the result there; the reference to it can be used at once. Never throws
  // for what goes wrong on the way: that appears when the reference is used. If too much is in flight to that worker,
  // this waits until there is room.
  template <auto F, class... Args>
  RRef<typename RegisteredKept<F>::Result> remote(const Args&... args) const;
  // The same for T(args...): any class can live remotely, also one that cannot be sent, copied or moved.
  template <class T, class... Args>
  RRef<T> make(const Args&... args) const;

  // Calls by name: for functions that this program does not contain. The types of the arguments as given, and
  // R, must be those of the function; if not, the error shows both.
  template <class R, class... Args>
  R call_named(const std::string& name, const Args&... args) const {
    return async_named<R>(name, args...).take();
  }
  template <class R, class... Args>
  Future<R> async_named(const std::string& name, const Args&... args) const {
    using Arguments = std::tuple<rpc_detail::AsArgument<Args>...>;
    const Function& function = name_function(name, rpc_detail::signature_text<R>(static_cast<Arguments*>(nullptr)));
    std::shared_ptr<Message> message =
        rpc_detail::call_message(*state_, kCall, function, static_cast<Arguments*>(nullptr), args...);
    return rpc_detail::finish_call<R>(*state_, function, std::move(message), timeout_);
  }

  // An operator of libtorch, by name: call_op("aten::add", x, 2, Kwargs{{"alpha", 3}}). Defined in tensor/operators.h.
  template <class... Args>
  c10::IValue call_op(const std::string& name, const Args&... args) const;
  template <class... Args>
  Future<c10::IValue> async_op(const std::string& name, const Args&... args) const;
  template <class... Args>
  RRef<c10::IValue> remote_op(const std::string& name, const Args&... args) const;
  // A TorchScript function that was loaded over there: Worker::load_script. Defined in tensor/script.h.
  template <class... Args>
  c10::IValue call_script(const std::string& name, const Args&... args) const;
  template <class... Args>
  Future<c10::IValue> async_script(const std::string& name, const Args&... args) const;
  template <class... Args>
  RRef<c10::IValue> remote_script(const std::string& name, const Args&... args) const;

 private:
  std::shared_ptr<const rpc_detail::PeerState> state_;
  Duration timeout_;
};

}  // namespace holdfast
