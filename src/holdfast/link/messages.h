// The link's own messages. See docs/protocol.md, "Link". None of them is numbered; the header of every frame
// carries the acknowledgement and the credit.
#pragma once

#include <array>
#include <string>

#include <holdfast/link/worker_info.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

inline constexpr Kind kHello{1};
inline constexpr Kind kWelcome{2};
inline constexpr Kind kRefused{3};
inline constexpr Kind kAck{4};
inline constexpr Kind kResend{5};
inline constexpr Kind kPing{6};

inline constexpr std::array<KindName, 6> kLinkKinds = {{{kHello, "HELLO"},
                                                        {kWelcome, "WELCOME"},
                                                        {kRefused, "REFUSED"},
                                                        {kAck, "ACK"},
                                                        {kResend, "RESEND"},
                                                        {kPing, "PING"}}};

struct Hello {
  uint64_t features = 0;
  std::string job;
  WorkerInfo from;
  Rank to_rank;
  Incarnation to_incarnation;
  uint64_t epoch = 0;
  HOLDFAST_FIELDS(Hello, features, job, from, to_rank, to_incarnation, epoch)
};

struct Welcome {
  uint64_t features = 0;
  uint64_t epoch = 0;
  HOLDFAST_FIELDS(Welcome, features, epoch)
};

enum class RefusedReason : uint8_t { busy = 0, stranger = 1, fenced = 2 };

struct Refused {
  RefusedReason reason = RefusedReason::busy;
  std::string text;
  uint64_t epoch = 0;
  HOLDFAST_FIELDS(Refused, reason, text, epoch)
};

}  // namespace holdfast
