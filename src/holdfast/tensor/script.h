// TorchScript on another worker: functions and modules that it has loaded (Worker::load_script) are called by name,
// methods of objects through references. docs/operators.md is the guide.
//
//   worker.load_script("def double(x: Tensor) -> Tensor:\n    return x * 2\n");   // over there
//   at::Tensor y = peer.call_script("double", x).toTensor();
//
// Any thread. What a script throws arrives as a RemoteError with its message and its line.
#pragma once

#include <concepts>
#include <string>

#include <holdfast/rref/rref.h>
#include <holdfast/tensor/call_arguments.h>
#include <holdfast/tensor/scripts.h>

namespace torch::jit {
struct Module;
}

namespace holdfast {

// What call_script runs over there: a function, a method of a module ("net.forward"); a class by its name makes an
// object; a module by its name alone is that module, for remote_script.
c10::IValue run_script(const std::string& name, const CallArguments& arguments);

namespace call_detail {
// A program that includes this lets others run the scripts that its workers have loaded.
inline const bool kScriptsServed = rpc_detail::export_function<run_script>();

Future<c10::IValue> start_method(const RRef<c10::IValue>& object, const std::string& method, const CallArguments&);
Future<c10::IValue> start_method(const RRef<torch::jit::Module>& object, const std::string& method,
                                 const CallArguments&);
RRef<c10::IValue> remote_method(const RRef<c10::IValue>& object, const std::string& method, const CallArguments&);
RRef<c10::IValue> remote_method(const RRef<torch::jit::Module>& object, const std::string& method,
                                const CallArguments&);
}  // namespace call_detail

template <class... Args>
c10::IValue Peer::call_script(const std::string& name, const Args&... args) const {
  return call<run_script>(name, CallArguments::of(args...));
}

template <class... Args>
Future<c10::IValue> Peer::async_script(const std::string& name, const Args&... args) const {
  return async<run_script>(name, CallArguments::of(args...));
}

template <class... Args>
RRef<c10::IValue> Peer::remote_script(const std::string& name, const Args&... args) const {
  return remote<run_script>(name, CallArguments::of(args...));
}

// A method of an object of a script's class, or of a module, where it is. Calls of one object may run at the same time.
template <class T>
concept ScriptObject = std::same_as<T, c10::IValue> || std::same_as<T, torch::jit::Module>;

template <ScriptObject T, class... Args>
c10::IValue call_method(const RRef<T>& object, const std::string& method, const Args&... args) {
  return call_detail::start_method(object, method, CallArguments::of(args...)).take();
}

template <ScriptObject T, class... Args>
Future<c10::IValue> async_method(const RRef<T>& object, const std::string& method, const Args&... args) {
  return call_detail::start_method(object, method, CallArguments::of(args...));
}

template <ScriptObject T, class... Args>
RRef<c10::IValue> remote_method(const RRef<T>& object, const std::string& method, const Args&... args) {
  return call_detail::remote_method(object, method, CallArguments::of(args...));
}

}  // namespace holdfast
