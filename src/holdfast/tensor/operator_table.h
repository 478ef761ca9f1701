// OperatorTable: the operators that the program's libtorch has, by name. It belongs to the program, like its table of
// functions: it holds no state of any worker. Any thread.
//
// libtorch's own lookup by name keeps every name that it was ever asked for, and reads a schema from its text when it
// is first used, without a lock. Names come from peers, so there is one table here, filled once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

namespace torch::jit {
struct Operator;
struct Function;
}  // namespace torch::jit

namespace holdfast {

// One overload: an operator, or one of the functions that libtorch has written in TorchScript itself.
struct Overload {
  const c10::FunctionSchema* schema = nullptr;
  std::shared_ptr<torch::jit::Operator> op;
  torch::jit::Function* function = nullptr;

  // Takes the arguments from the stack and leaves the results there.
  void run(std::vector<c10::IValue>& stack) const;
};

class OperatorTable {
 public:
  static OperatorTable& instance();

  // In the order in which TorchScript tries them; empty: there is no operator of that name.
  std::vector<Overload> find(const std::string& name);
  // Names that look like it, the nearest first.
  std::vector<std::string> near(const std::string& name);

 private:
  // With mutex_ held: enters what has been registered since.
  void fill();

  std::mutex mutex_;
  std::unordered_map<std::string, std::vector<Overload>> overloads_;
  size_t operator_count_ = 0;  // that libtorch had when the table was filled
};

}  // namespace holdfast
