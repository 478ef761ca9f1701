#include <holdfast/tensor/scripts.h>

#include <ATen/core/function.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <holdfast/base/error.h>
#include <holdfast/tensor/script_source.h>

namespace holdfast {

namespace {

constexpr std::string_view kScriptPrefix = "__torch__.";
constexpr size_t kNamesMax = 100;

std::string without_prefix(const std::string& name) {
  return name.starts_with(kScriptPrefix) ? name.substr(kScriptPrefix.size()) : name;
}

torch::jit::Function* find_method(const c10::IValue& object, const std::string& name) {
  return object.toObjectRef().type()->findMethod(name);
}

}  // namespace

std::unique_ptr<Protocol> Scripts::make(Node&, Host&) { return std::make_unique<Scripts>(); }

Scripts& Scripts::of(Host& host) { return static_cast<Scripts&>(host.protocol(RegisteredProtocol<Scripts>::index())); }

Status Scripts::on_message(Step&, const WorkerPtr&, Message) {
  return Failure{.code = Code::corrupt, .message = "a message for something that has none"};
}

void Scripts::check_new(const std::string& name) const {
  ScriptEntry entry;
  if (find_in_units(name, entry) || modules_.count(name) != 0) {
    throw_failure({.code = Code::invalid_argument, .message = fmt::format("{} is loaded already", name)});
  }
}

void Scripts::load_source(const std::string& source, const std::string& file) {
  std::vector<std::shared_ptr<const ScriptUnit>> earlier;
  {
    std::lock_guard lock(mutex_);
    earlier = units_;
  }
  std::shared_ptr<const ScriptUnit> unit = compile_source(source, file, std::move(earlier));
  std::lock_guard lock(mutex_);
  for (const auto& [name, function] : unit->functions) check_new(name);
  for (const auto& [name, type] : unit->types) check_new(name);
  units_.push_back(std::move(unit));
}

void Scripts::load_module(const std::string& path, const std::string& name) {
  torch::jit::Module module;
  try {
    module = torch::jit::load(path);
  } catch (const c10::Error& error) {
    throw_failure({.code = Code::invalid_argument,
                   .message = fmt::format("{} does not load: {}", path, error.what_without_backtrace())});
  }
  std::lock_guard lock(mutex_);
  check_new(name);
  modules_.emplace(name, module._ivalue());
}

bool Scripts::find_in_units(const std::string& name, ScriptEntry& entry) const {
  for (const std::shared_ptr<const ScriptUnit>& unit : units_) {
    if (auto found = unit->functions.find(name); found != unit->functions.end()) {
      entry.function = found->second;
      return true;
    }
    if (auto found = unit->types.find(name); found != unit->types.end()) {
      entry.class_type = found->second->cast<c10::ClassType>();
      return true;
    }
  }
  return false;
}

bool Scripts::find_in_modules(const std::string& name, ScriptEntry& entry) const {
  auto module = modules_.find(name);
  if (module == modules_.end()) {
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos) return false;
    module = modules_.find(name.substr(0, dot));
    if (module == modules_.end()) return false;
    entry.function = find_method(module->second, name.substr(dot + 1));
    if (entry.function == nullptr) return false;
  }
  entry.object = module->second;
  return true;
}

ScriptEntry Scripts::find(const std::string& name) const {
  std::lock_guard lock(mutex_);
  ScriptEntry entry;
  if (find_in_units(without_prefix(name), entry) && (entry.function != nullptr || entry.class_type)) return entry;
  if (find_in_modules(name, entry)) return entry;
  throw_failure(
      {.code = Code::no_such_function,
       .message = fmt::format("there is no script {} here; loaded are: {}", name.substr(0, 200), all_names())});
}

std::string Scripts::all_names() const {
  std::string text;
  size_t count = 0;
  const auto add = [&](const std::string& name) {
    if (++count <= kNamesMax) text += (text.empty() ? "" : ", ") + name;
  };
  for (const std::shared_ptr<const ScriptUnit>& unit : units_) {
    for (const auto& [name, function] : unit->functions) add(name);
    for (const auto& [name, type] : unit->types) {
      if (type->kind() == c10::TypeKind::ClassType) add(name);
    }
  }
  for (const auto& [name, module] : modules_) {
    for (const torch::jit::Function* method : module.toObjectRef().type()->methods()) add(name + "." + method->name());
  }
  if (count > kNamesMax) text += fmt::format(" and {} more", count - kNamesMax);
  return text.empty() ? "none" : text;
}

c10::NamedTypePtr Scripts::find_type(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const std::string bare = without_prefix(std::string(name));
  for (const std::shared_ptr<const ScriptUnit>& unit : units_) {
    if (auto found = unit->types.find(bare); found != unit->types.end()) return found->second;
  }
  for (const auto& [module_name, module] : modules_) {
    const auto unit = module.toObjectRef().type()->compilation_unit();
    if (c10::NamedTypePtr type = unit->get_type(c10::QualifiedName(std::string(name)))) return type;
  }
  return nullptr;
}

}  // namespace holdfast
