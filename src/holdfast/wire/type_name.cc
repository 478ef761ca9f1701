#include <holdfast/wire/type_name.h>

namespace holdfast::wire {

namespace {

thread_local const DescribingStruct* innermost = nullptr;

bool is_identifier(std::string_view text) {
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!letter && !(c >= '0' && c <= '9')) return false;
  }
  return true;
}

}  // namespace

std::string_view enum_name_in(std::string_view function) {
  // g++: "... [with T = ns::Color; std::string_view = ...]"; clang: "... [T = ns::Color]".
  constexpr std::string_view kBefore = "T = ";
  const size_t before = function.find(kBefore);
  if (before == std::string_view::npos) return {};
  std::string_view name = function.substr(before + kBefore.size());
  name = name.substr(0, name.find_first_of(";]"));
  // Not unqualified(): an enum nested in a template has the template's arguments before its own name.
  const size_t colons = name.rfind("::");
  if (colons != std::string_view::npos) name = name.substr(colons + 2);
  return is_identifier(name) ? name : std::string_view();
}

DescribingStruct::DescribingStruct(const void* type) : type_(type), outer_(innermost) {
  for (const DescribingStruct* scope = outer_; scope != nullptr; scope = scope->outer_) {
    if (scope->type_ == type) first_ = false;
  }
  innermost = this;
}

DescribingStruct::~DescribingStruct() { innermost = outer_; }

}  // namespace holdfast::wire
