// Operators of libtorch on another worker, by name: peer.call_op("aten::add", x, 2). docs/operators.md is the guide.
//
// The callee's libtorch chooses the overload, so what does not fit arrives as a RemoteError that shows the candidates.
// Any thread. Timeouts, errors and autograd contexts are those of any call.
#pragma once

#include <string>

#include <holdfast/rref/rref.h>
#include <holdfast/tensor/call_arguments.h>

namespace holdfast {

// What call_op runs over there. Several results are a tuple, none is None.
c10::IValue run_operator(const std::string& name, const CallArguments& arguments);

namespace call_detail {
// A program that includes this lets others run operators on its workers.
inline const bool kOperatorsServed = rpc_detail::export_function<run_operator>();
}  // namespace call_detail

template <class... Args>
c10::IValue Peer::call_op(const std::string& name, const Args&... args) const {
  return call<run_operator>(name, CallArguments::of(args...));
}

template <class... Args>
Future<c10::IValue> Peer::async_op(const std::string& name, const Args&... args) const {
  return async<run_operator>(name, CallArguments::of(args...));
}

template <class... Args>
RRef<c10::IValue> Peer::remote_op(const std::string& name, const Args&... args) const {
  return remote<run_operator>(name, CallArguments::of(args...));
}

}  // namespace holdfast
