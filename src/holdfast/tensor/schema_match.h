// How the arguments of a call meet the schema of an operator or of a script function: by position and keyword, with
// defaults, and with the conversions that TorchScript makes. The values may be a peer's: nothing is passed on that the
// schema does not allow. Private to this layer; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/function_schema.h>

#include <holdfast/tensor/call_arguments.h>

namespace holdfast {

// TorchScript looks at all overloads as they are first, and only then for one to which the arguments convert.
enum class Conversions { none, all };

// The arguments in the order of the schema, complete. Nothing, and `why`, if they do not fit.
std::optional<std::vector<c10::IValue>> match_schema(const c10::FunctionSchema& schema, const CallArguments& arguments,
                                                     Conversions conversions, std::string& why);

// "(Tensor, int, alpha: float)"
std::string types_text(const CallArguments& arguments);
std::string schema_text(const c10::FunctionSchema& schema);

}  // namespace holdfast
