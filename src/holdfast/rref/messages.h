// The messages of references. See docs/rref.md, "Messages". Each holds a list, so that what is to be said to one peer
// travels together.
#pragma once

#include <array>
#include <vector>

#include <holdfast/rref/ids.h>
#include <holdfast/wire/fields.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

inline constexpr Kind kRemoteCall{48};       // a call whose result stays where it runs
inline constexpr Kind kRRefForkRequest{49};  // child to owner: I have this reference
inline constexpr Kind kRRefAccept{50};       // owner to child: you are in my table
inline constexpr Kind kRRefChildAccept{51};  // child to parent: I am in the owner's table
inline constexpr Kind kRRefUserDelete{52};   // user to owner: my reference is gone
inline constexpr Kind kRRefFetch{53};        // a call that returns the object itself

inline constexpr std::array<KindName, 6> kRRefKinds = {{{kRemoteCall, "REMOTE_CALL"},
                                                        {kRRefForkRequest, "RREF_FORK_REQUEST"},
                                                        {kRRefAccept, "RREF_ACCEPT"},
                                                        {kRRefChildAccept, "RREF_CHILD_ACCEPT"},
                                                        {kRRefUserDelete, "RREF_USER_DELETE"},
                                                        {kRRefFetch, "RREF_FETCH"}}};

struct ForkRequest {
  RRefId rref;
  ForkId fork;
  HOLDFAST_FIELDS(ForkRequest, rref, fork)
};

// `number` counts the control messages from one worker to another, from 1: a repetition is known by it.
struct ForkRequests {
  uint64_t number = 0;
  std::vector<ForkRequest> requests;
  HOLDFAST_FIELDS(ForkRequests, number, requests)
};

// RREF_ACCEPT, RREF_CHILD_ACCEPT, RREF_USER_DELETE.
struct Forks {
  uint64_t number = 0;
  std::vector<ForkId> forks;
  HOLDFAST_FIELDS(Forks, number, forks)
};

}  // namespace holdfast
