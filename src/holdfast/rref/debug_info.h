// DebugInfo: what one worker's reference tables hold at this moment, for people and for tests. A copy: nobody's lock
// is needed to look at it.
#pragma once

#include <string>
#include <vector>

#include <holdfast/rref/ids.h>

namespace holdfast {

struct DebugInfo {
  struct OwnedObject {
    RRefId id;
    std::string type;                  // empty while there is no value
    std::string state;                 // "expected", "pending", "ready", "failed"
    std::string made_by;               // "make_counter, called by worker0"
    uint32_t handles = 0;              // on the owner itself
    std::vector<std::string> holders;  // the names of the workers that have forks, one for each fork
    size_t calls_waiting = 0;          // for the value
  };
  struct UsedReference {
    RRefId id;
    ForkId fork;
    std::string owner;
    bool confirmed = false;
    bool dead = false;  // the owner is lost
    uint32_t handles = 0;
    uint32_t pending_children = 0;
  };

  std::vector<OwnedObject> owned;
  std::vector<UsedReference> used;
  size_t forks = 0;               // of objects of this worker
  size_t pending_children = 0;    // references sent on that the owner does not know yet
  size_t pending_users = 0;       // references held here that the owner has not confirmed yet
  size_t quarantined = 0;         // lost workers whose references are kept until nothing of them is on its way
  uint64_t control_messages = 0;  // sent so far: what the tables had to say to other workers
  size_t calls_made = 0;          // under way
  size_t calls_served = 0;        // under way

  // Lines for people: all of it; only the objects.
  std::string text() const;
  std::string owned_text() const;
};

}  // namespace holdfast
