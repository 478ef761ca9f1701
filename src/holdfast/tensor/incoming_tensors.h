// read_tensors: from a message's tensor table and attachments to tensors. Any thread.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/base/error.h>
#include <holdfast/tensor/device.h>
#include <holdfast/wire/message.h>

namespace holdfast {

// In the order in which they were added on the other side. The tensors take over the memory of the attachments, which
// must belong to nobody else: programs write into their tensors. `attachments` are those of the message, without the
// table itself and what stands behind it.
//
// The bytes are a peer's, and may be anything: all of it is checked, and what does not hold is Code::corrupt. Never
// throws. Takes no memory but for bookkeeping, unless an attachment is not aligned for elements (16 bytes): then a
// copy.
Result<std::vector<at::Tensor>> read_tensors(ByteView table, std::span<const Attachment> attachments,
                                             DeviceMover* mover = nullptr);

}  // namespace holdfast
