// The parts of Worker that are about references.
#include <holdfast/rpc/worker.h>

#include <holdfast/rref/references.h>

namespace holdfast {

DebugInfo Worker::debug_info() { return References::of(host()).debug_info(); }

}  // namespace holdfast
