#include <holdfast/rpc/function.h>
#include <holdfast/rpc/object_name.h>

#include <cxxabi.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include <holdfast/base/check.h>

namespace holdfast {

namespace {

struct Table {
  std::shared_mutex mutex;
  std::deque<Function> functions;  // addresses stay
  std::unordered_map<uint64_t, std::vector<const Function*>> by_id;
};

// Never destroyed: handlers may still run while static objects are.
Table& table() {
  static Table* const instance = new Table;
  return *instance;
}

const Function& insert(Table& table, std::string name, std::string signature,
                       void (*invoke)(const std::shared_ptr<ServedCall>&)) {
  Function& function = table.functions.emplace_back();
  function.id = text_id(name);
  function.signature_id = text_id(signature);
  function.name = std::move(name);
  function.signature = std::move(signature);
  function.invoke = invoke;
  table.by_id[function.id].push_back(&function);
  return function;
}

size_t matching_open(const std::string& text, size_t close) {
  int depth = 0;
  for (size_t i = close + 1; i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) return i;
  }
  return std::string::npos;
}

// What stands after the last space that is not inside brackets: a name without the return type before it.
std::string after_return_type(const std::string& text) {
  int depth = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const char c = text[i];
    if (c == '>' || c == ')' || c == '}') ++depth;
    if (c == '<' || c == '(' || c == '{') --depth;
    if (c == ' ' && depth == 0) return text.substr(i + 1);
  }
  return text;
}

void replace_all(std::string& text, std::string_view part, std::string_view replacement) {
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += replacement.size()) {
    text.replace(at, part.size(), replacement);
  }
}

bool drop_suffix(std::string& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.resize(text.size() - suffix.size());
  return true;
}

}  // namespace

const Function& add_function(std::string name, std::string signature,
                             void (*invoke)(const std::shared_ptr<ServedCall>&)) {
  Table& functions = table();
  std::unique_lock lock(functions.mutex);
  for (const Function* known : functions.by_id[text_id(name)]) {
    if (known->name == name && known->signature == signature && known->invoke == invoke) return *known;
  }
  return insert(functions, std::move(name), std::move(signature), invoke);
}

const Function& name_function(const std::string& name, const std::string& signature) {
  Table& functions = table();
  {
    std::shared_lock lock(functions.mutex);
    auto found = functions.by_id.find(text_id(name));
    if (found != functions.by_id.end()) {
      for (const Function* known : found->second) {
        if (known->name == name && known->signature == signature) return *known;
      }
    }
  }
  return add_function(name, signature, nullptr);
}

FunctionLookup find_function(uint64_t id, uint64_t signature_id) {
  Table& functions = table();
  std::shared_lock lock(functions.mutex);
  FunctionLookup result;
  auto found = functions.by_id.find(id);
  if (found == functions.by_id.end()) return result;
  for (const Function* function : found->second) {
    if (function->invoke == nullptr || function->signature_id != signature_id) continue;
    result.ambiguous = result.function != nullptr;
    result.function = function;
  }
  if (result.function != nullptr && !result.ambiguous) return result;
  for (const Function* function : found->second) {
    if (function->invoke == nullptr) continue;
    result.known_as += (result.known_as.empty() ? "" : " and ") + function->text();
  }
  return result;
}

std::string cpp_type_name(const std::type_info& type) {
  int status = 0;
  char* demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string text = status == 0 && demangled != nullptr ? demangled : type.name();
  std::free(demangled);
  return text;
}

std::string function_name_from_tag(const std::type_info& tag) {
  std::string text = cpp_type_name(tag);

  // "holdfast::FunctionTag<&ns::scale>", "...<&(int ns::twice<int>(int) const)>", "...<main::{lambda(int)#1}{}>"
  constexpr std::string_view kOpening = "FunctionTag<";
  const size_t opening = text.find(kOpening);
  if (opening == std::string::npos) return text;
  text = text.substr(opening + kOpening.size());
  drop_suffix(text, ">");
  while (text.ends_with(' ')) text.pop_back();
  replace_all(text, "(anonymous namespace)", "{anonymous}");
  replace_all(text, "[abi:cxx11]", "");      // clang names it in functions that return strings, g++ does not
  if (drop_suffix(text, "{}")) return text;  // a lambda
  if (text.starts_with('&')) text.erase(0, 1);
  if (text.starts_with('(') && text.ends_with(')')) {
    text = text.substr(1, text.size() - 2);
    while (drop_suffix(text, " const") || drop_suffix(text, " noexcept") || drop_suffix(text, " &")) {
    }
    if (text.ends_with(')')) text.resize(matching_open(text, text.size() - 1));
    text = after_return_type(text);
  }
  return text;
}

}  // namespace holdfast
