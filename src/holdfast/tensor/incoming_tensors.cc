#include <holdfast/tensor/incoming_tensors.h>

#include <new>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>

#include <holdfast/tensor/content_checks.h>
#include <holdfast/tensor/make_tensor.h>
#include <holdfast/wire/codec_containers.h>

namespace holdfast {

namespace {

[[noreturn]] void corrupt(std::string_view problem) {
  throw_failure({.code = Code::corrupt, .message = fmt::format("a tensor that cannot be: {}", problem)});
}

void corrupt_if(const std::string& problem) {
  if (!problem.empty()) corrupt(problem);
}

c10::Storage take_over(const Attachment& attachment) {
  auto owner = std::make_unique<std::shared_ptr<const void>>(attachment.owner);
  void* data = const_cast<uint8_t*>(attachment.data);
  c10::DataPtr memory(
      data, owner.get(), [](void* context) { delete static_cast<std::shared_ptr<const void>*>(context); },
      c10::Device(c10::DeviceType::CPU));
  owner.release();
  return {c10::Storage::use_byte_size_t{}, attachment.bytes, std::move(memory), c10::GetCPUAllocator(),
          /*resizable=*/true};
}

c10::Layout layout_of(TensorForm form) {
  switch (form) {
    case TensorForm::csr: return c10::Layout::SparseCsr;
    case TensorForm::csc: return c10::Layout::SparseCsc;
    case TensorForm::bsr: return c10::Layout::SparseBsr;
    default: return c10::Layout::SparseBsc;
  }
}

// Reads one table. Throws Error for what is wrong with it.
class TableReader {
 public:
  TableReader(ByteView table, std::span<const Attachment> attachments, DeviceMover* mover)
      : reader_(table), attachments_(attachments), mover_(mover) {}

  std::vector<at::Tensor> read() {
    reader_.array_header_of(2, "a tensor table");
    read_storages();
    const uint32_t count = reader_.array_header();
    if (count > kTensorsMax) corrupt("more tensors than there may be");
    std::vector<TensorEntry> entries;
    for (uint32_t i = 0; i < count; ++i) {
      wire::decode(reader_, entries.emplace_back());
      check_reader();
      mark_checked(entries.back(), /*is_index=*/false);
    }
    reader_.finish();
    check_reader();
    std::vector<at::Tensor> tensors;
    tensors.reserve(count);
    for (const TensorEntry& entry : entries) tensors.push_back(make(entry));
    return tensors;
  }

 private:
  struct Arrived {
    const Attachment* attachment = nullptr;
    c10::Storage memory;                // made at the first use
    bool checked = false;               // some of its elements are looked at, and must stay as they are
    std::optional<c10::Device> device;  // of the tensors that use it: the same for all
    c10::Storage on_device;             // if that is not the cpu
  };
  // A dense tensor where its bytes arrived, which can be looked at, and where it is to be.
  struct Made {
    at::Tensor here;
    at::Tensor there;
  };

  void mark_checked(const TensorEntry& entry, bool is_index) {
    const bool checked = is_index || entry.dtype == DType::boolean;
    if (checked && entry.storage && *entry.storage < storages_.size()) storages_[*entry.storage].checked = true;
    // Of the tensors inside a sparse one the last has the values.
    const size_t values = is_dense(entry.form) ? entry.parts.size() : entry.parts.size() - 1;
    for (size_t i = 0; i < entry.parts.size(); ++i) mark_checked(entry.parts[i], i != values);
  }

  void check_reader() const {
    if (!reader_.ok()) corrupt(reader_.error());
  }

  void read_storages() {
    const uint32_t count = reader_.array_header();
    if (count > attachments_.size()) corrupt("more storages than attachments");
    storages_.resize(count);
    std::vector<bool> used(attachments_.size());
    for (Arrived& storage : storages_) {
      StorageEntry entry;
      wire::decode(reader_, entry);
      check_reader();
      if (entry.attachment >= attachments_.size()) corrupt("an attachment that does not exist");
      if (used[entry.attachment]) corrupt("an attachment that is two storages");
      used[entry.attachment] = true;
      storage.attachment = &attachments_[entry.attachment];
      if (entry.bytes == 0 || entry.bytes != storage.attachment->bytes) corrupt("an attachment of another length");
      if (entry.bytes > INT64_MAX) corrupt("an attachment of more bytes than 64 bits can count");
    }
    check_reader();
  }

  at::Tensor make(const TensorEntry& entry) {
    if (entry.form == TensorForm::undefined) return {};
    at::Tensor tensor;
    if (is_dense(entry.form)) {
      tensor = make_dense(entry).there;
    } else if (entry.form == TensorForm::coo) {
      tensor = make_coo(entry);
    } else {
      tensor = make_compressed(entry);
    }
    if ((entry.flags & kRequiresGrad) != 0) {
      const auto type = tensor.scalar_type();
      if (!c10::isFloatingType(type) && !c10::isComplexType(type)) corrupt("no gradient can be asked for that type");
      tensor.set_requires_grad(true);
    }
    return tensor;
  }

  static c10::ScalarType type_of(const TensorEntry& entry) {
    const auto type = scalar_type_of(entry.dtype);
    if (!type)
      corrupt(fmt::format("type {} {}: not in this libtorch", int{uint8_t(entry.dtype)}, name_of(entry.dtype)));
    return *type;
  }

  static c10::Device device_of(const TensorEntry& entry) {
    const auto type = device_type_of(entry.device);
    if (!type) corrupt("an unknown device");
    if (entry.device_index < -1) corrupt("a device with a negative index");
    return {*type, entry.device_index};
  }

  static void allow_flags(const TensorEntry& entry, int flags) {
    if ((entry.flags & ~flags) != 0) corrupt(fmt::format("flags {} do not go with it", entry.flags));
  }

  Made make_dense(const TensorEntry& entry) {
    const auto type = type_of(entry);
    allow_flags(entry, kRequiresGrad | kConjugate | kNegative);
    if ((entry.flags & kConjugate) != 0 && !c10::isComplexType(type)) corrupt("a conjugate that is not complex");
    if ((entry.flags & kNegative) != 0 && (type == c10::ScalarType::Bool || c10::isQIntType(type))) {
      corrupt("a negative of a type that has none");
    }
    if (c10::isQIntType(type) != is_quantised(entry.form)) corrupt("a quantiser that does not go with the type");
    corrupt_if(shape_problem(entry.sizes, type));
    const Dims strides = entry.strides.empty() ? row_major_strides(entry.sizes) : entry.strides;
    corrupt_if(strides_problem(entry.sizes, strides, type));
    Made made = make_memory(entry, type, strides);
    for (const at::Tensor& tensor : {made.here, made.there}) {
      if ((entry.flags & kConjugate) != 0) tensor._set_conj(true);
      if ((entry.flags & kNegative) != 0) tensor._set_neg(true);
    }
    return made;
  }

  Made make_memory(const TensorEntry& entry, c10::ScalarType type, const Dims& strides) {
    const c10::Device device = device_of(entry);
    const at::QuantizerPtr quantiser = make_quantiser(entry, type);
    if (device.is_meta()) {
      if (entry.storage || entry.offset != 0 || quantiser) corrupt("a meta tensor with bytes");
      const at::Tensor meta = at::empty_strided(entry.sizes, strides, at::TensorOptions(type).device(device));
      return {meta, meta};
    }
    const auto span = span_elements(entry.sizes, strides);
    if (!span) corrupt("elements outside of its storage");
    if (entry.storage.has_value() != (*span != 0)) corrupt("a storage without elements, or elements without a storage");
    if (!entry.storage) {
      if (entry.offset != 0) corrupt("an offset without a storage");
      const at::Tensor none = tensor_over(empty_storage(device), type, 0, entry.sizes, strides, quantiser);
      return {none, none};
    }
    Arrived& storage = use_storage(*entry.storage, device);
    check_inside(entry, type, strides, *span, storage.attachment->bytes);
    if (type == c10::ScalarType::Bool) {
      const auto* first = static_cast<const uint8_t*>(storage.memory.data()) + entry.offset;
      corrupt_if(bool_problem(first, entry.sizes, strides));
    }
    Made made;
    made.here = tensor_over(storage.memory, type, entry.offset, entry.sizes, strides, quantiser);
    made.there = device.is_cpu() ? made.here
                                 : tensor_over(storage.on_device, type, entry.offset, entry.sizes, strides, quantiser);
    return made;
  }

  static void check_inside(const TensorEntry& entry, c10::ScalarType type, const Dims& strides, uint64_t span,
                           uint64_t storage_bytes) {
    const auto packed = static_cast<uint64_t>(elements_per_byte(type));
    if (packed != 1 && (entry.offset != 0 || !is_contiguous(entry.sizes, strides)))
      corrupt("a view of packed elements");
    const uint64_t room = storage_bytes / c10::elementSize(type) * packed;
    if (entry.offset > room || span > room - entry.offset) corrupt("elements outside of its storage");
  }

  at::QuantizerPtr make_quantiser(const TensorEntry& entry, c10::ScalarType type) {
    if (entry.form == TensorForm::per_tensor) {
      corrupt_if(per_tensor_problem(type, entry.scale, entry.zero_point));
      return at::make_per_tensor_affine_quantizer(entry.scale, entry.zero_point, type);
    }
    if (entry.form == TensorForm::per_channel) {
      const Made scales = make_part(entry.parts[0], /*values=*/false);
      const Made zero_points = make_part(entry.parts[1], /*values=*/false);
      corrupt_if(per_channel_problem(type, entry.sizes, entry.axis, scales.here, zero_points.here));
      return at::make_per_channel_affine_quantizer(scales.there, zero_points.there, entry.axis, type);
    }
    return {};
  }

  c10::Storage empty_storage(c10::Device device) {
    if (!device.is_cpu() && mover_ == nullptr) no_mover(device);
    return {c10::Storage::use_byte_size_t{}, 0, c10::DataPtr(nullptr, device),
            device.is_cpu() ? c10::GetCPUAllocator() : nullptr, device.is_cpu()};
  }

  [[noreturn]] static void no_mover(c10::Device device) {
    corrupt(fmt::format("it is for {}, and this worker takes tensors for no device", device.str()));
  }

  Arrived& use_storage(uint32_t number, c10::Device device) {
    if (number >= storages_.size()) corrupt("a storage that does not exist");
    Arrived& storage = storages_[number];
    if (storage.device && *storage.device != device) corrupt("a storage on two devices");
    if (storage.device) return storage;
    storage.device = device;
    storage.memory = take_over(*storage.attachment);
    const bool misaligned = reinterpret_cast<uintptr_t>(storage.attachment->data) % kElementBytesMax != 0;
    if (misaligned || (storage.checked && storage.attachment->shared)) {
      at::Tensor copy = at::empty({static_cast<int64_t>(storage.attachment->bytes)}, c10::ScalarType::Byte);
      copy.copy_(tensor_of_bytes(storage.memory, 0, storage.attachment->bytes));
      storage.memory = copy.storage();
    }
    if (device.is_cpu()) return storage;
    if (mover_ == nullptr) no_mover(device);
    const uint64_t bytes = storage.attachment->bytes;
    const at::Tensor moved = mover_->to_device(tensor_of_bytes(storage.memory, 0, bytes), device).take();
    if (moved.nbytes() != bytes || !moved.is_contiguous() || moved.storage_offset() != 0) {
      throw_failure({.code = Code::unavailable, .message = "device " + device.str() + " gave other bytes"});
    }
    storage.on_device = moved.storage();
    return storage;
  }

  // `values`: may be a view that repeats or is conjugated. Other parts are read through.
  Made make_part(const TensorEntry& part, bool values) {
    allow_flags(part, values ? kConjugate | kNegative : 0);
    if (part.device == DeviceNumber::meta) corrupt("a meta tensor inside another");
    Made made = make_dense(part);
    if (!values && repeats(made.here.sizes(), made.here.strides())) corrupt("indices that repeat");
    return made;
  }

  static c10::TensorOptions sparse_options(const TensorEntry& entry, const at::Tensor& values, c10::Layout layout) {
    if (values.scalar_type() != type_of(entry)) corrupt("values of another type");
    if (values.device() != device_of(entry)) corrupt("values on another device");
    return at::TensorOptions(values.scalar_type()).layout(layout).device(values.device());
  }

  at::Tensor make_coo(const TensorEntry& entry) {
    allow_flags(entry, kRequiresGrad | kCoalesced);
    corrupt_if(shape_problem(entry.sizes, type_of(entry)));
    const Made indices = make_part(entry.parts[0], /*values=*/false);
    const Made values = make_part(entry.parts[1], /*values=*/true);
    const auto options = sparse_options(entry, values.there, c10::Layout::Sparse);
    corrupt_if(coo_problem(entry.sizes, indices.here, values.here));
    const at::Tensor tensor = at::_sparse_coo_tensor_unsafe(indices.there, values.there, entry.sizes, options);
    tensor._coalesced_((entry.flags & kCoalesced) != 0 && is_coalesced(indices.here));
    return tensor;
  }

  at::Tensor make_compressed(const TensorEntry& entry) {
    allow_flags(entry, kRequiresGrad);
    corrupt_if(shape_problem(entry.sizes, type_of(entry)));
    const Made compressed = make_part(entry.parts[0], /*values=*/false);
    const Made plain = make_part(entry.parts[1], /*values=*/false);
    const Made values = make_part(entry.parts[2], /*values=*/true);
    // libtorch makes the values contiguous.
    if (repeats(values.here.sizes(), values.here.strides())) corrupt("values that repeat");
    const auto options = sparse_options(entry, values.there, layout_of(entry.form));
    corrupt_if(compressed_problem(entry.form, entry.sizes, compressed.here, plain.here, values.here));
    return at::_sparse_compressed_tensor_unsafe(compressed.there, plain.there, values.there, entry.sizes, options);
  }

  wire::Reader reader_;
  std::span<const Attachment> attachments_;
  DeviceMover* const mover_;
  std::vector<Arrived> storages_;
};

Failure describe_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return error.failure();
  } catch (const std::bad_alloc&) {
    return {.code = Code::overloaded, .message = "no memory for the tensors of a message"};
  } catch (const c10::Error& error) {
    return {.code = Code::corrupt,
            .message = std::string("a tensor that cannot be: ") + error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {.code = Code::corrupt, .message = std::string("a tensor that cannot be: ") + error.what()};
  }
}

}  // namespace

Result<std::vector<at::Tensor>> read_tensors(ByteView table, std::span<const Attachment> attachments,
                                             DeviceMover* mover) {
  const at::NoGradGuard no_grad;
  try {
    return TableReader(table, attachments, mover).read();
  } catch (...) {
    return describe_failure();
  }
}

}  // namespace holdfast
