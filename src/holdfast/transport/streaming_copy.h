// A copy into memory that another core will read, and read last: its stores go past the caches where the processor can
// do that. Ordinary stores would first fetch every line from the caches of the core that read the last content,
// which takes longer than the copy itself.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast {

// The memory may be of any size and alignment, and must not overlap. When this returns the bytes are there for whoever
// sees what the caller stores afterwards, as with memcpy.
void streaming_copy(uint8_t* to, const uint8_t* from, size_t bytes);

}  // namespace holdfast
