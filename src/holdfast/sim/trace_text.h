// One frame of a simulated network as a line for people: its kind by name, and the ids that matter.
#pragma once

#include <string>

#include <holdfast/wire/frame.h>

namespace holdfast::sim {

// "RREF_FORK_REQUEST #3 object 0.1.2 fork 1.2.5"
std::string text_of_frame(const FrameHeader& header, const Message& message);
// Says nothing new to a reader: heartbeats and acknowledgements.
bool is_routine(Kind kind);

}  // namespace holdfast::sim
