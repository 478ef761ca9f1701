#include <holdfast/tensor/script.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>

#include <holdfast/tensor/schema_match.h>
#include <holdfast/tensor/torch_errors.h>

namespace holdfast {

namespace {

[[noreturn]] void refuse_script(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = std::move(message)});
}

c10::IValue run_function(torch::jit::Function& function, const CallArguments& arguments) {
  std::string why;
  auto stack = match_schema(function.getSchema(), arguments, Conversions::all, why);
  if (!stack) refuse_script(fmt::format("{}: {}", schema_text(function.getSchema()), why));
  at::AutoGradMode keep(at::GradMode::is_enabled());  // what the script sets does not stay
  function.run(*stack);
  return std::move(stack->front());
}

c10::IValue run_on(const c10::IValue& self, torch::jit::Function& method, const CallArguments& arguments) {
  CallArguments with_self = arguments;
  with_self.positional.insert(with_self.positional.begin(), self);
  return run_function(method, with_self);
}

c10::IValue make_object(const c10::ClassTypePtr& type, const CallArguments& arguments) {
  c10::IValue object =
      c10::ivalue::Object::create(c10::StrongTypePtr(type->compilation_unit(), type), type->numAttributes());
  torch::jit::Function* init = type->findMethod("__init__");
  if (init == nullptr) refuse_script(fmt::format("the class {} has no __init__", type->repr_str()));
  run_on(object, *init, arguments);
  return object;
}

c10::IValue run_method(const c10::IValue& object, const std::string& name, const CallArguments& arguments) {
  if (!object.isObject()) refuse_script(fmt::format("a {} has no methods", object.tagKind()));
  const c10::ClassTypePtr type = object.toObjectRef().type();
  torch::jit::Function* method = type->findMethod(name);
  if (method == nullptr) {
    std::string names;
    for (const torch::jit::Function* known : type->methods()) names += (names.empty() ? "" : ", ") + known->name();
    throw_failure({.code = Code::no_such_function,
                   .message = fmt::format("{} has no method {}; it has: {}", type->repr_str(), name.substr(0, 200),
                                          names.empty() ? "none" : names)});
  }
  return with_torch_errors([&] { return run_on(object, *method, arguments); });
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse_script(fmt::format("the file {} cannot be read (source text has more than one line)", path));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) refuse_script(fmt::format("the file {} cannot be read", path));
  return text;
}

}  // namespace

c10::IValue run_script(const std::string& name, const CallArguments& arguments) {
  const ScriptEntry entry = Scripts::of(current_worker().host()).find(name);
  return with_torch_errors([&]() -> c10::IValue {
    if (entry.class_type) return make_object(entry.class_type, arguments);
    if (entry.function == nullptr) return entry.object;
    return entry.object.isNone() ? run_function(*entry.function, arguments)
                                 : run_on(entry.object, *entry.function, arguments);
  });
}

// Named, so that the calls of other programs find them.
c10::IValue run_object_method(const c10::IValue& object, const std::string& name, const CallArguments& arguments) {
  return run_method(object, name, arguments);
}
c10::IValue run_module_method(const torch::jit::Module& module, const std::string& name,
                              const CallArguments& arguments) {
  return run_method(module._ivalue(), name, arguments);
}

namespace call_detail {

Future<c10::IValue> start_method(const RRef<c10::IValue>& object, const std::string& method,
                                 const CallArguments& arguments) {
  return object.async<run_object_method>(method, arguments);
}

Future<c10::IValue> start_method(const RRef<torch::jit::Module>& object, const std::string& method,
                                 const CallArguments& arguments) {
  return object.async<run_module_method>(method, arguments);
}

RRef<c10::IValue> remote_method(const RRef<c10::IValue>& object, const std::string& method,
                                const CallArguments& arguments) {
  return object.remote<run_object_method>(method, arguments);
}

RRef<c10::IValue> remote_method(const RRef<torch::jit::Module>& object, const std::string& method,
                                const CallArguments& arguments) {
  return object.remote<run_module_method>(method, arguments);
}

}  // namespace call_detail

void Worker::load_script(const std::string& path_or_source, const std::string& name) {
  Scripts& scripts = Scripts::of(host());
  if (path_or_source.find('\n') != std::string::npos) {
    if (!name.empty()) refuse_script("source has names of its own: load_script takes a name for a saved module only");
    return scripts.load_source(path_or_source, "<script>");
  }
  const std::string content = read_file(path_or_source);
  if (content.starts_with("PK")) {  // a saved module is a zip archive
    return scripts.load_module(path_or_source,
                               name.empty() ? std::filesystem::path(path_or_source).stem().string() : name);
  }
  if (!name.empty()) refuse_script("source has names of its own: load_script takes a name for a saved module only");
  scripts.load_source(content, path_or_source);
}

}  // namespace holdfast
