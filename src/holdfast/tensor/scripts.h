// Scripts: the TorchScript that one worker has loaded, for others to call. One in each worker, reached like a protocol
// but without messages of its own: nothing that arrives is ever compiled. What is loaded stays until the worker ends,
// and longer where objects of its classes live on. Private to this layer; any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/class_type.h>
#include <ATen/core/ivalue.h>

#include <holdfast/rpc/call_host.h>
#include <holdfast/rpc/protocol.h>
#include <holdfast/tensor/ivalue_types.h>

namespace torch::jit {
struct Function;
}

namespace holdfast {

struct ScriptUnit;  // tensor/script_source.h

// What a name in call_script stands for: one of these.
struct ScriptEntry {
  torch::jit::Function* function = nullptr;
  c10::ClassTypePtr class_type;  // called: makes an object
  c10::IValue object;            // the module by itself, or with `function`: one of its methods
};

class Scripts final : public Protocol, public KnownTypes {
 public:
  static std::unique_ptr<Protocol> make(Node& node, Host& host);
  static Scripts& of(Host& host);

  // Throws InvalidArgument.
  void load_source(const std::string& source, const std::string& file);
  void load_module(const std::string& path, const std::string& name);

  // "f", "__torch__.f", "Class", "Class.method", "module", "module.method". Throws NoSuchFunction.
  ScriptEntry find(const std::string& name) const;
  c10::NamedTypePtr find_type(std::string_view name) const override;

  // Protocol
  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  bool idle() const override { return true; }

 private:
  // All with mutex_ held.
  void check_new(const std::string& name) const;
  bool find_in_units(const std::string& name, ScriptEntry& entry) const;
  bool find_in_modules(const std::string& name, ScriptEntry& entry) const;
  std::string all_names() const;

  mutable std::mutex mutex_;
  // Both only grow.
  std::vector<std::shared_ptr<const ScriptUnit>> units_;
  std::map<std::string, c10::IValue> modules_;
};

namespace call_detail {
// Every worker of a program that includes this has it.
inline const size_t kScriptsIndex = RegisteredProtocol<Scripts>::index();
}  // namespace call_detail

}  // namespace holdfast
