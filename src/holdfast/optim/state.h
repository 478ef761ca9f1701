// State: what a distributed optimizer remembers, to continue later. Plain data, tensors on the CPU or wherever they
// are; in a file it is what torch::pickle_save writes, which torch.load in Python reads too.
//
// It does not say which worker a parameter was on: only the order of groups and parameters counts. So a job can
// continue with another placement.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <holdfast/optim/values.h>

namespace holdfast::optim {

struct GroupState {
  Values options;
  std::map<std::string, Values> owner_options;  // by name of the owner, for those with options of their own
  std::vector<Values> parameters;               // of each; empty: it has never had a gradient
};

struct State {
  std::string kind;  // "torch::optim::Adam"
  std::vector<GroupState> groups;
};

// Replaces the file when all is written. Throws Unavailable, with what the system said.
void write_state(const State& state, const std::string& path);
// Throws Unavailable if it cannot be read, InvalidArgument if it is not such a file.
State read_state(const std::string& path);

}  // namespace holdfast::optim
