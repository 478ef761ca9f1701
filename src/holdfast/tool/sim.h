// `holdfast sim`: random worlds of workers that share references, on a simulated network; see sim/rref_world.h.
#pragma once

#include <holdfast/tool/command.h>

namespace CLI {
class App;
}

namespace holdfast {

// Adds the options; the body keeps them alive itself. Main thread only.
CommandBody add_sim_command(CLI::App& app);

}  // namespace holdfast
