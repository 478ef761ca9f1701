// Compiles TorchScript source: functions, classes, named tuples and enums, read from the top as Python reads a file. A
// name must be defined before it is used, but functions that follow each other may use one another. Private to this
// layer; any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/jit/api/compilation_unit.h>

namespace holdfast {

// What one source became. It does not change any more: its functions may be called by any thread.
struct ScriptUnit {
  // By name without "__torch__."; methods as "Class.method".
  std::map<std::string, torch::jit::Function*> functions;
  std::map<std::string, c10::NamedTypePtr> types;
  torch::jit::CompilationUnit code;
  // Its functions may call theirs. An object of its classes keeps the unit, and so these.
  std::vector<std::shared_ptr<const ScriptUnit>> earlier;
};

// `file` stands in error messages. Throws InvalidArgument with the compiler's words; then nothing is kept.
std::shared_ptr<const ScriptUnit> compile_source(const std::string& source, const std::string& file,
                                                 std::vector<std::shared_ptr<const ScriptUnit>> earlier);

}  // namespace holdfast
