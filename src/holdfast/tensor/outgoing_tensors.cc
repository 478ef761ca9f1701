#include <holdfast/tensor/outgoing_tensors.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/quantized/QTensorImpl.h>
#include <fmt/format.h>

#include <holdfast/tensor/content_checks.h>
#include <holdfast/tensor/make_tensor.h>
#include <holdfast/wire/codec_containers.h>

namespace holdfast {

namespace {

constexpr size_t kSearchedOneByOne = 16;

[[noreturn]] void refuse(std::string message) {
  throw_failure({.code = Code::invalid_argument, .message = "cannot send a tensor: " + std::move(message)});
}

void refuse_if(const std::string& problem) {
  if (!problem.empty()) refuse("it has " + problem);
}

TensorForm form_of(c10::Layout layout) {
  switch (layout) {
    case c10::Layout::Strided: return TensorForm::strided;
    case c10::Layout::Sparse: return TensorForm::coo;
    case c10::Layout::SparseCsr: return TensorForm::csr;
    case c10::Layout::SparseCsc: return TensorForm::csc;
    case c10::Layout::SparseBsr: return TensorForm::bsr;
    case c10::Layout::SparseBsc: return TensorForm::bsc;
    default: return TensorForm::undefined;
  }
}

// For tensors that the receiver reads through, such as indices: without repetition, and as their bytes say.
at::Tensor plain_copy_if_needed(const at::Tensor& tensor) {
  const bool plain = !tensor.is_neg() && !tensor.is_conj() && !repeats(tensor.sizes(), tensor.strides());
  return plain ? tensor : tensor.clone(at::MemoryFormat::Contiguous);
}

// Any type of that many bytes: a copy must not change a bit.
c10::ScalarType bits_of(size_t element_bytes) {
  switch (element_bytes) {
    case 1: return c10::ScalarType::Byte;
    case 2: return c10::ScalarType::Short;
    case 4: return c10::ScalarType::Int;
    case 8: return c10::ScalarType::Long;
    default: return c10::ScalarType::ComplexDouble;
  }
}

// What `entry` shows of the memory that begins at `first`, without holes.
at::Tensor copy_without_holes(const uint8_t* first, const TensorEntry& entry, const Dims& strides,
                              uint32_t element_bytes) {
  const at::NoGradGuard no_grad;
  Dims sizes = entry.sizes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0) sizes[i] = 1;
  }
  const auto options = at::TensorOptions(bits_of(element_bytes));
  const at::Tensor from = at::from_blob(const_cast<uint8_t*>(first), sizes, entry.strides, options);
  at::Tensor copy = at::empty({element_count(sizes)}, options);
  at::from_blob(copy.data_ptr(), sizes, strides, options).copy_(from);
  return copy;
}

}  // namespace

uint32_t OutgoingTensors::add(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (!index_.empty()) {
    if (const auto found = index_.find(impl); found != index_.end()) return found->second;
  } else {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].unsafeGetTensorImpl() == impl) return static_cast<uint32_t>(i);
    }
  }
  const auto index = static_cast<uint32_t>(tensors_.size());
  if (index >= kTensorsMax) refuse(fmt::format("there are {} in this message already", kTensorsMax));
  try {
    describe(tensor, entries_.emplace_back());
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
  tensors_.push_back(tensor);
  if (!index_.empty()) {
    index_.emplace(impl, index);
  } else if (tensors_.size() > kSearchedOneByOne) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].unsafeGetTensorImpl(), i);
  }
  return index;
}

void OutgoingTensors::describe(const at::Tensor& tensor, TensorEntry& entry) {
  if (!tensor.defined()) return;
  entry.form = tensor.is_nested() ? TensorForm::undefined : form_of(tensor.layout());
  if (entry.form == TensorForm::undefined) refuse("nested and opaque ones (such as mkldnn) must be made dense before");
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype) refuse(fmt::format("its type, {}, has no number on the wire", c10::toString(tensor.scalar_type())));
  entry.dtype = *dtype;
  const c10::Device device = tensor.device();
  const auto device_number = device_number_of(device.type());
  if (!device_number) refuse(fmt::format("it is on {}, which has no number on the wire", device.str()));
  entry.device = *device_number;
  if (!device.is_cpu()) entry.device_index = static_cast<int8_t>(device.index());
  if (tensor.requires_grad()) entry.flags |= kRequiresGrad;
  entry.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  refuse_if(shape_problem(entry.sizes, tensor.scalar_type()));
  switch (entry.form) {
    case TensorForm::strided: describe_dense(tensor, entry); break;
    case TensorForm::coo: describe_coo(tensor, entry); break;
    default: describe_compressed(tensor, entry); break;
  }
}

void OutgoingTensors::describe_dense(const at::Tensor& tensor, TensorEntry& entry) {
  const auto type = tensor.scalar_type();
  if (tensor.is_conj()) entry.flags |= kConjugate;
  if (tensor.is_neg()) entry.flags |= kNegative;
  entry.strides.assign(tensor.strides().begin(), tensor.strides().end());
  refuse_if(strides_problem(entry.sizes, entry.strides, type));
  if (c10::isQIntType(type)) describe_quantiser(tensor, entry);
  if (tensor.is_meta() || tensor.numel() == 0) return;

  const auto span = span_elements(entry.sizes, entry.strides);
  if (!tensor.has_storage() || !span) refuse("it has no memory of its own");
  const auto offset = static_cast<uint64_t>(tensor.storage_offset());
  const bool packed = elements_per_byte(type) != 1;
  if (packed && (offset != 0 || !is_contiguous(entry.sizes, entry.strides))) {
    refuse("a view of packed elements has to be made contiguous before");
  }
  Piece piece{.storage = tensor.storage(), .element_bytes = static_cast<uint32_t>(c10::elementSize(type))};
  const uint64_t elements_max = INT64_MAX / kElementBytesMax;
  if (offset > elements_max || *span > elements_max) refuse("it has more bytes than 64 bits can count");
  piece.begin_bytes = bytes_of_elements(type, offset);
  piece.end_bytes = bytes_of_elements(type, offset + *span);
  piece.holes = has_holes(entry.sizes, entry.strides);
  if (piece.storage.data() == nullptr || piece.end_bytes > piece.storage.nbytes()) {
    refuse("its memory is smaller than its sizes say: was its storage resized?");
  }
  if (type == c10::ScalarType::Bool && tensor.is_cpu()) {
    const auto* first = static_cast<const uint8_t*>(piece.storage.data()) + piece.begin_bytes;
    refuse_if(bool_problem(first, entry.sizes, entry.strides));
  }
  entry.storage = static_cast<uint32_t>(pieces_.size());
  pieces_.push_back(std::move(piece));
}

void OutgoingTensors::describe_quantiser(const at::Tensor& tensor, TensorEntry& entry) {
  const auto quantiser = at::get_qtensorimpl(tensor)->quantizer();
  switch (quantiser->qscheme()) {
    case c10::kPerTensorAffine: {
      const auto& affine = static_cast<const at::PerTensorAffineQuantizer&>(*quantiser);
      entry.form = TensorForm::per_tensor;
      entry.scale = affine.scale();
      entry.zero_point = affine.zero_point();
      refuse_if(per_tensor_problem(tensor.scalar_type(), entry.scale, entry.zero_point));
      break;
    }
    case c10::kPerChannelAffine:
    case c10::kPerChannelAffineFloatQParams: {
      const auto& affine = static_cast<const at::PerChannelAffineQuantizer&>(*quantiser);
      const at::NoGradGuard no_grad;
      const at::Tensor scales = plain_copy_if_needed(affine.scales());
      const at::Tensor zero_points = plain_copy_if_needed(affine.zero_points());
      entry.form = TensorForm::per_channel;
      entry.axis = affine.axis();
      if (scales.is_cpu() && zero_points.is_cpu()) {
        refuse_if(per_channel_problem(tensor.scalar_type(), entry.sizes, entry.axis, scales, zero_points));
      }
      entry.parts = {describe_part(scales), describe_part(zero_points)};
      break;
    }
    default: refuse("it is quantised in a way that is not known");
  }
}

void OutgoingTensors::describe_coo(const at::Tensor& tensor, TensorEntry& entry) {
  const auto& impl = static_cast<const at::SparseTensorImpl&>(*tensor.unsafeGetTensorImpl());
  const at::NoGradGuard no_grad;
  const at::Tensor indices = plain_copy_if_needed(impl.indices());
  if (indices.is_cpu()) refuse_if(coo_problem(entry.sizes, indices, impl.values()));
  if (impl.coalesced()) entry.flags |= kCoalesced;
  entry.parts = {describe_part(indices), describe_part(impl.values())};
}

void OutgoingTensors::describe_compressed(const at::Tensor& tensor, TensorEntry& entry) {
  const auto& impl = static_cast<const at::SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
  const at::NoGradGuard no_grad;
  const at::Tensor compressed = plain_copy_if_needed(impl.compressed_indices());
  const at::Tensor plain = plain_copy_if_needed(impl.plain_indices());
  const at::Tensor values = plain_copy_if_needed(impl.values());
  if (compressed.is_cpu()) refuse_if(compressed_problem(entry.form, entry.sizes, compressed, plain, values));
  entry.parts = {describe_part(compressed), describe_part(plain), describe_part(values)};
}

TensorEntry OutgoingTensors::describe_part(const at::Tensor& tensor) {
  TensorEntry part;
  describe(tensor, part);
  if (part.form != TensorForm::strided) refuse("the tensors inside it are not dense");
  part.flags &= static_cast<uint8_t>(~kRequiresGrad);  // is the outer tensor's affair
  return part;
}

OutgoingTensors::Runs OutgoingTensors::make_runs() {
  c10::SmallVector<uint32_t, 8> order(pieces_.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const auto* storage_a = pieces_[a].storage.unsafeGetStorageImpl();
    const auto* storage_b = pieces_[b].storage.unsafeGetStorageImpl();
    return storage_a != storage_b ? std::less<>()(storage_a, storage_b)
                                  : pieces_[a].begin_bytes < pieces_[b].begin_bytes;
  });
  Runs runs;
  const c10::StorageImpl* storage = nullptr;  // of the last run
  for (const uint32_t i : order) {
    Piece& piece = pieces_[i];
    const bool joins = !runs.empty() && piece.storage.unsafeGetStorageImpl() == storage &&
                       (piece.begin_bytes < runs.back().end_bytes ||
                        // Side by side: together they cost nothing more, unless holes would be filled for it.
                        (piece.begin_bytes == runs.back().end_bytes && !piece.holes && !runs.back().holes));
    if (!joins) runs.push_back({.begin_bytes = piece.begin_bytes});
    Run& run = runs.back();
    run.end_bytes = std::max(run.end_bytes, piece.end_bytes);
    run.element_bytes = std::max(run.element_bytes, piece.element_bytes);
    run.holes |= piece.holes;
    run.alone = !joins;
    piece.run = static_cast<uint32_t>(runs.size() - 1);
    storage = piece.storage.unsafeGetStorageImpl();
  }
  // Offsets count in elements, of whatever type: all must stand where elements can. This adds bytes only where types of
  // different sizes share a storage.
  for (Run& run : runs) run.begin_bytes -= run.begin_bytes % run.element_bytes;
  return runs;
}

StorageEntry OutgoingTensors::attach(const Piece& piece, Run& run, const TensorEntry& entry, Message& message,
                                     DeviceMover* mover) {
  const uint64_t bytes = run.end_bytes - run.begin_bytes;
  Attachment attachment;
  attachment.bytes = bytes;
  c10::Storage memory = piece.storage;
  uint64_t begin_bytes = run.begin_bytes;
  if (!memory.device().is_cpu()) {
    const at::NoGradGuard no_grad;
    const at::Tensor on_device = tensor_of_bytes(memory, run.begin_bytes, bytes);
    const at::Tensor moved = mover->to_cpu(on_device).take();
    if (!moved.is_cpu() || !moved.is_contiguous() || moved.nbytes() != bytes) refuse("its device gave other bytes");
    memory = moved.storage();
    begin_bytes = static_cast<uint64_t>(moved.storage_offset()) * moved.itemsize();
  }
  attachment.data = static_cast<const uint8_t*>(memory.data()) + begin_bytes;
  // Elements that overlap stay as they are: a copy would tear them apart.
  if (run.alone && run.holes && !may_overlap(entry.sizes, entry.strides)) {
    run.copied_strides = packed_strides(entry.sizes, entry.strides);
    const at::Tensor copy = copy_without_holes(attachment.data, entry, *run.copied_strides, piece.element_bytes);
    memory = copy.storage();
    attachment.data = static_cast<const uint8_t*>(memory.data());
    attachment.bytes = memory.nbytes();
  }
  attachment.owner = std::make_shared<c10::Storage>(std::move(memory));
  attachment.shared = true;
  return {.attachment = wire::Writer(message).attach(attachment), .bytes = attachment.bytes};
}

void OutgoingTensors::place(TensorEntry& entry, Runs& runs, Storages& storages, Message& message, DeviceMover* mover) {
  const bool on_cpu = entry.device == DeviceNumber::cpu;
  if (entry.device != DeviceNumber::meta && !(on_cpu && mover == nullptr)) {
    const c10::Device device(*device_type_of(entry.device), entry.device_index);
    if (mover == nullptr) {
      refuse(fmt::format("it is on {}, and no device of the receiver's was set for that: send tensor.cpu()",
                         device.str()));
    }
    const c10::Device target = mover->target_of(device).take();
    const auto number = device_number_of(target.type());
    if (!number || *number == DeviceNumber::meta) refuse("no number on the wire for device " + target.str());
    entry.device = *number;
    entry.device_index = target.is_cpu() ? int8_t{-1} : static_cast<int8_t>(target.index());
  }
  if (entry.storage) {
    const Piece& piece = pieces_[*entry.storage];
    Run& run = runs[piece.run];
    if (!run.storage) {
      run.storage = static_cast<uint32_t>(storages.size());
      storages.push_back(attach(piece, run, entry, message, mover));
    }
    entry.storage = run.storage;
    entry.offset = (piece.begin_bytes - run.begin_bytes) / piece.element_bytes;
    if (run.copied_strides) entry.strides = *run.copied_strides;
  }
  for (TensorEntry& part : entry.parts) place(part, runs, storages, message, mover);
}

Bytes OutgoingTensors::finish(Message& message, DeviceMover* mover) {
  Runs runs = make_runs();
  Storages storages;
  try {
    for (TensorEntry& entry : entries_) place(entry, runs, storages, message, mover);
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
  Message table;
  wire::Writer writer(table);
  writer.array_header(2);
  writer.array_header(storages.size());
  for (const StorageEntry& storage : storages) wire::encode(writer, storage);
  wire::encode(writer, entries_);
  return std::move(table.body);
}

}  // namespace holdfast
