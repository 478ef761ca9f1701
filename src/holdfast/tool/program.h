// Finds the program to start, as a shell would. No state; any thread.
#pragma once

#include <string>

namespace holdfast {

// The path of `program`: itself if it has a slash, else the first match in `search_path` (the value of PATH).
// Throws LaunchError with status 127 (there is none) or 126 (it is there but cannot be executed).
std::string find_program(const std::string& program, const std::string& search_path);
// Throws LaunchError with status 126; `error` is an errno.
[[noreturn]] void cannot_execute(const std::string& path, int error);

}  // namespace holdfast
