// Canaries: deliberate defects in the protocols. They exist only in a test build (sim/canary), which switches them on
// one at a time and expects the simulator to catch each. In every other build HOLDFAST_CANARY is false, and the
// compiler drops what stands behind it. Used in .cc files only: headers are the same in both builds.
#pragma once

#ifdef HOLDFAST_CANARIES

namespace holdfast {

// name, what is wrong: in references and links first, then in backward passes
#define HOLDFAST_CANARY_LIST(X)                                                                  \
  X(delete_not_sent, "a user that drops its reference says nothing")                             \
  X(parent_not_kept, "a parent is deleted before its child is confirmed")                        \
  X(child_forgotten_with_worker, "... or as soon as the child's worker is lost")                 \
  X(repetition_counted, "a repeated message is taken for a new one")                             \
  X(no_quarantine, "a lost user's forks are removed at once")                                    \
  X(settled_too_early, "a worker says that it has confirmed everything when it has not")         \
  X(never_settled, "... or never says so")                                                       \
  X(argument_not_held, "a reference that arrives at its owner as an argument does not count")    \
  X(accept_not_sent, "the owner confirms nothing")                                               \
  X(child_accept_not_sent, "the child does not tell its parent")                                 \
  X(request_not_sent, "a child does not tell the owner of itself")                               \
  X(request_overtaken, "... or tells it after it has used the reference")                        \
  X(delete_overtakes, "a user deletes its reference before the owner has confirmed it")          \
  X(sent_fork_not_counted, "the owner does not count a fork that it sends")                      \
  X(lost_creator_ignored, "an expected object whose creator is lost stays expected")             \
  X(lost_owner_ignored, "references to objects of a lost worker wait for it")                    \
  X(undecoded_kept, "references in a message that is never decoded are not given up")            \
  X(not_resent, "what was under way when a connection broke is not sent again")                  \
  X(duplicate_delivered, "what was sent again is delivered again")                               \
  X(reached_not_told, "a worker that meets a context through another does not tell the creator") \
  X(late_reach_not_answered, "... or tells it too late, and gets no answer")                     \
  X(context_comes_back, "a context that has ended is not remembered")                            \
  X(lost_creator_keeps_contexts, "contexts of a lost creator stay")                              \
  X(counters_for_sets, "a pass counts ids instead of comparing them")                            \
  X(first_done_ends, "a SMART pass is over when the first part is done")                         \
  X(done_too_early, "a part says that it is done after its first run")                           \
  X(run_before_settled, "a part runs what may yet be marked again")                              \
  X(marked_not_sent, "a part that holds something is not told that nobody marks any more")       \
  X(starved_ignored, "functions that wait in vain are no error")                                 \
  X(report_not_sent, "a part that spawns nothing does not report")                               \
  X(gradient_not_sent, "some gradients are not sent")                                            \
  X(pass_end_not_sent, "parts are not told of the end of a pass")                                \
  X(late_report_not_answered, "a part that reports after the end is not told")                   \
  X(pass_comes_back, "a pass that has ended is not remembered")                                  \
  X(lost_part_ignored, "a lost worker does not fail the passes it takes part in")                \
  X(loss_before_report_ignored, "... if it was lost before its part was known")                  \
  X(lost_root_ignored, "parts of a lost root stay")

enum class Canary {
  none,
#define HOLDFAST_CANARY_NAME(name, text) name,
  HOLDFAST_CANARY_LIST(HOLDFAST_CANARY_NAME)
#undef HOLDFAST_CANARY_NAME
};

struct CanaryInfo {
  Canary canary;
  const char* name;
  const char* text;
};
inline constexpr CanaryInfo kCanaries[] = {
#define HOLDFAST_CANARY_INFO(name, text) {Canary::name, #name, text},
    HOLDFAST_CANARY_LIST(HOLDFAST_CANARY_INFO)
#undef HOLDFAST_CANARY_INFO
};

// Of this thread: a simulated world runs on one.
inline thread_local Canary active_canary = Canary::none;

}  // namespace holdfast

#define HOLDFAST_CANARY(name) (::holdfast::active_canary == ::holdfast::Canary::name)

#else
#define HOLDFAST_CANARY(name) false
#endif
