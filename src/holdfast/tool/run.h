// `holdfast run`: starts the workers of a job on this machine and hosts their coordinator.
#pragma once

#include <holdfast/tool/command.h>

namespace CLI {
class App;
}

namespace holdfast {

// Adds the options; the body keeps them alive itself. Main thread only.
CommandBody add_run_command(CLI::App& app);

}  // namespace holdfast
