// OutgoingTensors: the tensors of one message, gathered while its values are encoded. Used by one thread, and thrown
// away with the message.
//
// Nothing is recorded in autograd's graph, whatever the grad mode is. The memory of tensors is not copied unless they
// show only parts of it (a column of a matrix); the message's attachments keep it alive. Until the message has been
// acknowledged nobody may resize the storage of a tensor that was sent: that would free what is being read.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <holdfast/tensor/tensor_table.h>
#include <holdfast/wire/message.h>

namespace holdfast {

class OutgoingTensors {
 public:
  // Returns its index in the table; the same tensor (not only an equal one) again: the same index. Throws
  // InvalidArgument if it cannot be sent; the message is then fit only to be thrown away.
  uint32_t add(const at::Tensor& tensor);
  bool empty() const { return tensors_.empty(); }
  // By index.
  const std::vector<at::Tensor>& tensors() const { return tensors_; }

  // All are there. Attaches their memory to `message` and returns the bytes of the table, which the caller attaches.
  // Call once. Throws InvalidArgument for tensors that are on a device, unless `mover` can take them from there.
  Bytes finish(Message& message, DeviceMover* mover = nullptr);

 private:
  // The part of a storage that one tensor shows. Until finish(), an entry's `storage` is the number of its piece.
  struct Piece {
    c10::Storage storage;
    uint64_t begin_bytes = 0;
    uint64_t end_bytes = 0;
    uint32_t element_bytes = 1;
    bool holes = false;
    uint32_t run = 0;  // its number in `runs`
  };
  // Pieces of one storage that overlap, or follow on each other: one attachment, so that they share on arrival.
  struct Run {
    uint64_t begin_bytes = 0;
    uint64_t end_bytes = 0;
    uint32_t element_bytes = 1;  // the largest
    bool holes = false;
    bool alone = true;                   // of one piece
    std::optional<uint32_t> storage;     // its number in the table, once it is attached
    std::optional<Dims> copied_strides;  // it was copied, without its holes
  };

  // Most messages hold few tensors: no memory is taken for them but where it must be.
  using Runs = c10::SmallVector<Run, 2>;
  using Storages = c10::SmallVector<StorageEntry, 4>;

  void describe(const at::Tensor& tensor, TensorEntry& entry);
  void describe_dense(const at::Tensor& tensor, TensorEntry& entry);
  void describe_quantiser(const at::Tensor& tensor, TensorEntry& entry);
  void describe_coo(const at::Tensor& tensor, TensorEntry& entry);
  void describe_compressed(const at::Tensor& tensor, TensorEntry& entry);
  TensorEntry describe_part(const at::Tensor& tensor);

  Runs make_runs();
  void place(TensorEntry& entry, Runs& runs, Storages& storages, Message& message, DeviceMover* mover);
  StorageEntry attach(const Piece& piece, Run& run, const TensorEntry& entry, Message& message, DeviceMover* mover);

  std::vector<at::Tensor> tensors_;
  std::vector<TensorEntry> entries_;  // as tensors_
  c10::SmallVector<Piece, 2> pieces_;
  // Where a tensor stands; filled when there are many of them.
  std::unordered_map<const c10::TensorImpl*, uint32_t> index_;
};

}  // namespace holdfast
