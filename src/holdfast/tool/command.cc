#include <holdfast/tool/command.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <holdfast/base/error.h>
#include <holdfast/tool/launch_error.h>
#include <holdfast/tool/run.h>
#include <holdfast/tool/sim.h>

namespace holdfast {

namespace {

using Words = std::vector<std::string>;

constexpr const char* kVersion = "holdfast 0.1.0";

// A subcommand is one line here and one file that adds its options.
struct Subcommand {
  const char* name;
  const char* summary;
  CommandBody (*add)(CLI::App& app);
};
constexpr Subcommand kSubcommands[] = {
    {"run", "Start the workers of a job on this machine", add_run_command},
    {"sim", "Try the protocols in simulated worlds full of faults", add_sim_command},
};

constexpr const char* kExamples = R"(Examples:
  holdfast run -n 4 ./train --epochs 3
  holdfast run --help
  holdfast sim --seeds 10000
)";

int complain(const std::string& command, const std::string& message, int status) {
  fmt::print(stderr, "{}: {}\n", command, message);
  if (status == kStatusUsage) fmt::print(stderr, "Try '{} --help'.\n", command);
  return status;
}

int perform(const std::string& command, const CommandBody& body, const Words& rest) {
  try {
    return body(rest);
  } catch (const LaunchError& error) {
    return complain(command, error.what(), error.status());
  } catch (const InvalidArgument& error) {
    return complain(command, error.what(), kStatusUsage);
  } catch (const std::exception& error) {
    return complain(command, error.what(), 1);
  }
}

// CLI11 would go on to look for options behind "--", which may be the program's, so it gets to see only what
// stands before.
struct Cut {
  Words ours;
  Words rest;  // with the "--"
};

Cut cut(int argc, char** argv) {
  const Words all(argv + std::min(argc, 1), argv + argc);
  const auto at = std::find(all.begin(), all.end(), "--");
  return {Words(all.begin(), at), Words(at, all.end())};
}

// What the subcommand did not recognise itself, and what was cut off.
Words rest_of(const CLI::App& app, const Words& behind) {
  Words rest = app.remaining();
  // In `-- PROGRAM` the dashes are for us; in `PROGRAM -- ARGUMENT` they are the program's.
  const bool is_ours = rest.empty() && !behind.empty();
  rest.insert(rest.end(), behind.begin() + (is_ours ? 1 : 0), behind.end());
  return rest;
}

}  // namespace

int command_main(int argc, char** argv) {
  CLI::App root("Holdfast: C++ programs that call each other's functions.", "holdfast");
  root.set_version_flag("--version", kVersion);
  root.footer(kExamples);
  root.require_subcommand(0, 1);
  std::vector<std::pair<CLI::App*, CommandBody>> bodies;
  for (const Subcommand& subcommand : kSubcommands) {
    CLI::App* app = root.add_subcommand(subcommand.name, subcommand.summary);
    bodies.emplace_back(app, subcommand.add(*app));
  }

  const Cut words = cut(argc, argv);
  try {
    root.parse(Words(words.ours.rbegin(), words.ours.rend()));  // CLI11 wants them last first
  } catch (const CLI::Success& wanted) {                        // --help, --version
    return root.exit(wanted);
  } catch (const CLI::ParseError& error) {
    const auto parsed = root.get_subcommands();
    return complain(parsed.empty() ? "holdfast" : "holdfast " + parsed[0]->get_name(), error.what(), kStatusUsage);
  }
  for (const auto& [app, body] : bodies) {
    if (app->parsed()) return perform("holdfast " + app->get_name(), body, rest_of(*app, words.rest));
  }
  return complain("holdfast", "which subcommand? None was given", kStatusUsage);
}

}  // namespace holdfast
