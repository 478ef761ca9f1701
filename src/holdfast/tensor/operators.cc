#include <holdfast/tensor/operators.h>

#include <algorithm>
#include <string_view>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <holdfast/tensor/operator_table.h>
#include <holdfast/tensor/schema_match.h>
#include <holdfast/tensor/torch_errors.h>

namespace holdfast {

namespace {

// Of namespace aten, what reaches beyond its arguments: files, the settings and random numbers of the whole program.
constexpr std::string_view kReachBeyond[] = {"aten::from_file",        "aten::save", "aten::manual_seed",
                                             "aten::set_grad_enabled", "aten::warn", "aten::wait"};
constexpr size_t kCandidatesMax = 30;

bool is_named_in(const std::vector<std::string>& allowed, const std::string& name) {
  const std::string whole_namespace = name.substr(0, name.find("::")) + "::*";
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const std::string& entry) { return entry == name || entry == whole_namespace; });
}

// Why the operator is refused unless the worker's options name it; null: it is not.
const char* why_refused(std::string_view name) {
  constexpr std::string_view kAten = "aten::";
  if (!name.starts_with(kAten)) return "it is not in the namespace aten";
  if (std::find(std::begin(kReachBeyond), std::end(kReachBeyond), name) != std::end(kReachBeyond)) {
    return "it reaches beyond its arguments";
  }
  const std::string_view base = name.substr(kAten.size());
  // Inner parts of libtorch, which rely on others to have checked their arguments. "__and__" and its like are not.
  if ((base.starts_with('_') && !base.starts_with("__")) || base.find("unsafe") != std::string_view::npos) {
    return "it does not check its arguments";
  }
  return nullptr;
}

[[noreturn]] void no_such_operator(const std::string& name) {
  const std::vector<std::string> near = OperatorTable::instance().near(name);
  std::string text = fmt::format("there is no operator {} here", name.substr(0, 200));
  for (size_t i = 0; i < near.size(); ++i) text += (i == 0 ? "; did you mean " : ", ") + near[i];
  throw_failure({.code = Code::no_such_function, .message = std::move(text)});
}

struct Chosen {
  Overload overload;
  std::vector<c10::IValue> stack;
};

Chosen choose(const std::string& name, const CallArguments& arguments) {
  const std::vector<Overload> overloads = OperatorTable::instance().find(name);
  if (overloads.empty()) no_such_operator(name);
  std::string problems;
  for (const Conversions conversions : {Conversions::none, Conversions::all}) {
    size_t count = 0;
    for (const Overload& overload : overloads) {
      std::string why;
      auto stack = match_schema(*overload.schema, arguments, conversions, why);
      if (stack) return {overload, std::move(*stack)};
      if (conversions == Conversions::none || ++count > kCandidatesMax) continue;
      problems += fmt::format("\n  {}: {}", schema_text(*overload.schema), why);
    }
    if (count > kCandidatesMax) problems += fmt::format("\n  and {} more", count - kCandidatesMax);
  }
  throw_failure({.code = Code::invalid_argument,
                 .message = fmt::format("{}{} fits none of:{}", name, types_text(arguments), problems)});
}

}  // namespace

c10::IValue run_operator(const std::string& name, const CallArguments& arguments) {
  if (const char* why = why_refused(name)) {
    if (!is_named_in(current_worker().options().allowed_operators, name)) {
      if (OperatorTable::instance().find(name).empty()) no_such_operator(name);
      throw_failure({.code = Code::invalid_argument,
                     .message = fmt::format("{} is not run for others: {}. If they may, name it in "
                                            "Options::allowed_operators of this worker",
                                            name, why)});
    }
  }
  return with_torch_errors([&]() -> c10::IValue {
    auto [overload, stack] = choose(name, arguments);
    at::AutoGradMode keep(at::GradMode::is_enabled());  // what the operator sets does not stay
    overload.run(stack);
    if (stack.size() == 1) return std::move(stack[0]);
    if (stack.empty()) return {};
    return c10::ivalue::Tuple::create(std::move(stack));
  });
}

}  // namespace holdfast
