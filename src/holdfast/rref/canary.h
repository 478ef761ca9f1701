// Canaries: deliberate defects in the reference protocol. They exist only in a test build, which switches them on one
// at a time and expects the simulator to catch each. In every other build HOLDFAST_CANARY is false, and the compiler
// drops what stands behind it.
#pragma once

#ifdef HOLDFAST_CANARIES

#include <array>
#include <string_view>

namespace holdfast {

enum class Canary {
  none,
  delete_not_sent,              // a user that drops its reference says nothing
  parent_not_kept,              // a parent is deleted before its child is confirmed
  child_forgotten_with_worker,  // ... or as soon as the child's worker is lost, though that one may have shared on
  repetition_counted,           // a repeated message is taken for a new one
  no_quarantine,                // a lost user's forks are removed at once
  settled_too_early,            // a worker says that it has confirmed everything when it has not
  never_settled,                // ... or never says so
  fetch_does_not_hold,          // the owner frees an object while a call waits for it
  argument_not_held,            // a reference that arrives at its owner as an argument does not count
  accept_not_sent,              // the owner confirms nothing
  child_accept_not_sent,        // the child does not tell its parent
  request_not_sent,             // a child does not tell the owner of itself
  delete_overtakes,             // a user deletes its reference before the owner has confirmed it
  sent_fork_not_counted,        // the owner does not count a fork that it sends
  lost_creator_ignored,         // an expected object whose creator is lost stays expected
  undecoded_kept,               // references in a message that is never decoded are not given up
};

inline constexpr std::array<std::string_view, 17> kCanaryNames = {
    "none",          "delete_not_sent",   "parent_not_kept",  "child_forgotten_with_worker",
    "repetition_counted", "no_quarantine", "settled_too_early", "never_settled",
    "fetch_does_not_hold", "argument_not_held", "accept_not_sent", "child_accept_not_sent",
    "request_not_sent", "delete_overtakes", "sent_fork_not_counted", "lost_creator_ignored",
    "undecoded_kept"};

// Of this thread: a simulated world runs on one.
inline thread_local Canary active_canary = Canary::none;

}  // namespace holdfast

#define HOLDFAST_CANARY(name) (::holdfast::active_canary == ::holdfast::Canary::name)

#else
#define HOLDFAST_CANARY(name) false
#endif
