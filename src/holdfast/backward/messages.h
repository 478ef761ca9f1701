// The messages of contexts and backward passes. See docs/autograd.md, "Messages".
#pragma once

#include <array>
#include <string>
#include <vector>

#include <holdfast/backward/graph.h>
#include <holdfast/backward/ids.h>
#include <holdfast/base/error.h>
#include <holdfast/wire/fields.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

inline constexpr Kind kContextReached{64};
inline constexpr Kind kCleanupContext{65};
inline constexpr Kind kMark{66};
inline constexpr Kind kReport{67};
inline constexpr Kind kGradient{68};
inline constexpr Kind kMarked{69};
inline constexpr Kind kPassError{70};
inline constexpr Kind kPassEnd{71};

inline constexpr std::array<KindName, 8> kBackwardKinds = {{{kContextReached, "CONTEXT_REACHED"},
                                                            {kCleanupContext, "CLEANUP_AUTOGRAD_CONTEXT"},
                                                            {kMark, "MARK"},
                                                            {kReport, "REPORT"},
                                                            {kGradient, "BACKWARD_AUTOGRAD"},
                                                            {kMarked, "MARKED"},
                                                            {kPassError, "PASS_ERROR"},
                                                            {kPassEnd, "PASS_END"}}};

// So many sends go into one MARK, or pairs into one REPORT.
inline constexpr size_t kSendsTogether = 256;

struct ContextReached {
  ContextId context;
  HOLDFAST_FIELDS(ContextReached, context)
};

struct CleanupContext {
  ContextId context;
  uint64_t all_ended_below = 0;
  HOLDFAST_FIELDS(CleanupContext, context, all_ended_below)
};

// What a worker must know of a pass to take part in it.
struct PassHeader {
  PassId pass;
  WorkerInfo root;
  PassMode mode = PassMode::smart;
  uint64_t options = 0;
  HOLDFAST_FIELDS(PassHeader, pass, root, mode, options)
};

struct Mark {
  PassHeader header;
  std::vector<SendNumber> sends;
  HOLDFAST_FIELDS(Mark, header, sends)
};

struct SpawnedSend {
  Rank rank;
  Incarnation incarnation;
  SendNumber send;
  WorkerId worker() const { return {rank, incarnation}; }
  HOLDFAST_FIELDS(SpawnedSend, rank, incarnation, send)
};

// SMART. How far a part is.
enum class PartStatus : uint8_t {
  working = 0,
  held = 1,  // something could run if it were known that nobody marks any more
  done = 2,  // every send that was marked has got its gradient, and all has run
};

struct Report {
  PassId pass;
  std::vector<SendNumber> processed;
  std::vector<SpawnedSend> spawned;
  uint64_t waiting = 0;
  std::string waiting_names;
  PartStatus status = PartStatus::working;
  HOLDFAST_FIELDS(Report, pass, processed, spawned, waiting, waiting_names, status)
};

// The attachments of the message are the gradient's.
struct GradientBody {
  PassHeader header;
  SendNumber send;
  Bytes body;
  bool settled = false;  // SMART: nobody marks any more
  HOLDFAST_FIELDS(GradientBody, header, send, body, settled)
};

// MARKED, PASS_END.
struct PassOnly {
  PassId pass;
  HOLDFAST_FIELDS(PassOnly, pass)
};

struct PassError {
  PassId pass;
  uint8_t code = 0;
  std::string message;
  std::string worker;
  std::string type;
  HOLDFAST_FIELDS(PassError, pass, code, message, worker, type)
};

}  // namespace holdfast
