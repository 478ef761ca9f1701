// Message: what one worker sends another, before it has a place on a link. Immutable once sent: the link
// keeps it until the peer has acknowledged it, and several connections may send it again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <holdfast/base/bytes.h>
#include <holdfast/base/ids.h>

namespace holdfast {

// What a message is. Each layer owns a range and names its own kinds (see wire/kind.h).
using Kind = Id<struct KindTag, uint16_t>;

// Bytes that travel beside a body without being copied into it. `owner` keeps `data` alive.
struct Attachment {
  std::shared_ptr<const void> owner;
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  // To be sent: numbers and nothing else, so the receiver may be shown this memory instead of a copy. Arrived: it was,
  // and whoever sent it can still change them; what must stay as it was checked has to be copied first.
  bool shared = false;
};

// What travels with a message and is more than bytes: an upper layer wants to know that it was sent, arrived or was
// thrown away unread. See rpc/cargo.h. Never destroyed under a driver's lock (Step::garbage takes it).
class Cargo {
 public:
  Cargo() = default;
  Cargo(const Cargo&) = delete;
  Cargo& operator=(const Cargo&) = delete;
  virtual ~Cargo() = default;
};

struct Message {
  Kind kind;
  Bytes body;
  std::vector<Attachment> attachments;
  std::shared_ptr<Cargo> cargo;  // before it is sent, and after it has arrived; not in between

  uint64_t total_bytes() const {
    uint64_t total = body.size();
    for (const Attachment& attachment : attachments) total += attachment.bytes;
    return total;
  }
};

using MessagePtr = std::shared_ptr<const Message>;

}  // namespace holdfast
