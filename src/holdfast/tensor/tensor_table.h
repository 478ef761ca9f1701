// The tensor table of a message, as it is on the wire; docs/tensor.md describes it for other languages.
//
//   table    [storages, tensors]
//   storage  [attachment, bytes]
//   tensor   [form, ...], see below
//
// Plain data, and what reads and writes it. Nothing here has been checked but that the bytes have this form:
// incoming_tensors.cc looks at what they say.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <holdfast/tensor/device.h>
#include <holdfast/tensor/dtype.h>
#include <holdfast/tensor/geometry.h>
#include <holdfast/wire/fields.h>

namespace holdfast {

// As many as attachments. Tensors without bytes need none, so that this is a limit of its own.
inline constexpr size_t kTensorsMax = 65535;

// What a tensor is, and so which fields follow.
enum class TensorForm : uint8_t {
  undefined = 0,    // nothing
  strided = 1,      // dtype, flags, device, sizes, storage, offset, strides
  per_tensor = 2,   // the same, then scale, zero point
  per_channel = 3,  // the same, then axis, scales, zero points
  coo = 4,          // dtype, flags, device, sizes, indices, values
  csr = 5,          // dtype, flags, device, sizes, compressed indices, plain indices, values
  csc = 6,
  bsr = 7,
  bsc = 8,
};

// May be added.
enum TensorFlag : uint8_t { kRequiresGrad = 1, kConjugate = 2, kNegative = 4, kCoalesced = 8 };

struct StorageEntry {
  uint32_t attachment = 0;
  uint64_t bytes = 0;
  HOLDFAST_FIELDS(StorageEntry, attachment, bytes)
};

struct TensorEntry {
  TensorForm form = TensorForm::undefined;
  DType dtype = DType::uint8;
  uint8_t flags = 0;
  DeviceNumber device = DeviceNumber::cpu;  // nil on the wire: the cpu; else [number, index]
  int8_t device_index = -1;                 // -1: the current one
  Dims sizes;
  std::optional<uint32_t> storage;  // none: it has no bytes, for it is empty or a meta tensor
  uint64_t offset = 0;              // of the first element in the storage; in elements
  Dims strides;                     // in elements. nil on the wire if they are those of a contiguous tensor
  double scale = 0;
  int64_t zero_point = 0;
  int64_t axis = 0;
  // The tensors inside this one, in the order above. They are always strided, so that nothing nests deeper.
  std::vector<TensorEntry> parts;
};

inline bool is_quantised(TensorForm form) { return form == TensorForm::per_tensor || form == TensorForm::per_channel; }
inline bool is_dense(TensorForm form) { return form == TensorForm::strided || is_quantised(form); }
inline bool is_compressed(TensorForm form) { return form >= TensorForm::csr && form <= TensorForm::bsc; }
inline bool is_blocked(TensorForm form) { return form == TensorForm::bsr || form == TensorForm::bsc; }

namespace wire {

template <>
struct Codec<TensorEntry> {
  static void encode(Writer& writer, const TensorEntry& entry);
  static void decode(Reader& reader, TensorEntry& out);
  static std::string type_name() { return "tensor entry"; }
};

}  // namespace wire
}  // namespace holdfast
