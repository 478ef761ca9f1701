#include <holdfast/tensor/operator_table.h>

#include <algorithm>
#include <utility>

#include <ATen/core/function.h>
#include <torch/csrc/jit/frontend/builtin_functions.h>
#include <torch/csrc/jit/frontend/edit_distance.h>
#include <torch/csrc/jit/runtime/operator.h>

namespace holdfast {

namespace {

// Longer than any operator's: nothing is near to it.
constexpr size_t kOperatorCharsMax = 200;
constexpr size_t kNearMax = 5;

}  // namespace

void Overload::run(std::vector<c10::IValue>& stack) const {
  if (function != nullptr) {
    function->run(stack);
  } else {
    op->getOperation()(stack);
  }
}

OperatorTable& OperatorTable::instance() {
  static OperatorTable* const table = new OperatorTable;  // handlers may still run while static objects are destroyed
  return *table;
}

void OperatorTable::fill() {
  const auto all = torch::jit::getAllOperators();
  if (all.size() == operator_count_) return;
  operator_count_ = all.size();
  overloads_.clear();
  for (const std::shared_ptr<torch::jit::Operator>& op : all) {
    // What needs more than its arguments, the node of a graph or their number, is for scripts only.
    const c10::FunctionSchema& schema = op->schema();
    const bool callable = op->hasOperation() && !schema.is_vararg() && !schema.is_varret();
    std::vector<Overload>& overloads = overloads_[schema.name()];
    if (callable) overloads.push_back({.schema = &schema, .op = op, .function = nullptr});
  }
  std::erase_if(overloads_, [](const auto& entry) { return entry.second.empty(); });
}

std::vector<Overload> OperatorTable::find(const std::string& name) {
  std::vector<Overload> overloads;
  {
    std::lock_guard lock(mutex_);
    auto found = overloads_.find(name);
    if (found == overloads_.end()) {
      fill();
      found = overloads_.find(name);
    }
    if (found == overloads_.end()) return {};
    overloads = found->second;
  }
  for (torch::jit::Function* function : torch::jit::getAllBuiltinFunctionsFor(c10::Symbol::fromQualString(name))) {
    overloads.push_back({.schema = &function->getSchema(), .op = nullptr, .function = function});
  }
  return overloads;
}

std::vector<std::string> OperatorTable::near(const std::string& name) {
  if (name.size() > kOperatorCharsMax) return {};
  // "add" for "aten::add" is as near as can be.
  const std::string full = name.find("::") == std::string::npos ? "aten::" + name : name;
  const size_t distance_max = full.size() / 4 + 1;
  std::vector<std::pair<size_t, std::string>> candidates;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [known, overloads] : overloads_) {
      const size_t distance = torch::jit::ComputeEditDistance(full.c_str(), known.c_str(), distance_max);
      if (distance <= distance_max) candidates.emplace_back(distance, known);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<std::string> names;
  for (const auto& [distance, known] : candidates) {
    if (names.size() < kNearMax) names.push_back(known);
  }
  return names;
}

}  // namespace holdfast
