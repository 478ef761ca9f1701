// The `holdfast` command: its subcommands, help, version, and how errors are shown.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace holdfast {

// What a subcommand does once its options are parsed; answers the exit status. `rest` is what follows them: words
// that are no options, from the first one on, untouched. A LaunchError or Error it throws is shown.
using CommandBody = std::function<int(const std::vector<std::string>& rest)>;

// The exit status. 2: the arguments are wrong.
int command_main(int argc, char** argv);

}  // namespace holdfast
