#include <holdfast/tensor/tensor_table.h>

namespace holdfast::wire {

namespace {

constexpr auto kFormMax = static_cast<uint64_t>(TensorForm::bsc);

// By form: how many values an entry is, and how many of them are tensors.
struct FormLayout {
  uint8_t values;
  uint8_t parts;
};
constexpr FormLayout kLayouts[kFormMax + 1] = {{1, 0}, {8, 0}, {10, 0}, {11, 2}, {7, 2},
                                               {8, 3}, {8, 3}, {8, 3},  {8, 3}};

const FormLayout& layout_of(TensorForm form) { return kLayouts[static_cast<size_t>(form)]; }

void encode_device(Writer& writer, const TensorEntry& entry) {
  if (entry.device == DeviceNumber::cpu) {
    writer.nil();
  } else {
    writer.array_header(2);
    wire::encode(writer, entry.device);
    writer.integer(entry.device_index);
  }
}

void decode_device(Reader& reader, TensorEntry& out) {
  out.device = DeviceNumber::cpu;
  out.device_index = -1;
  if (reader.try_nil() || !reader.array_header_of(2, "a device")) return;
  wire::decode(reader, out.device);
  wire::decode(reader, out.device_index);
  if (out.device == DeviceNumber::cpu) reader.fail("expected nil for the cpu, found its number");
}

void encode_dims(Writer& writer, const Dims& dims) {
  writer.array_header(dims.size());
  writer.numbers(std::span<const int64_t>(dims.data(), dims.size()));
}

void decode_dims(Reader& reader, Dims& out) {
  const uint32_t count = reader.array_header();
  if (count > kDimensionsMax) {
    reader.fail("expected at most " + std::to_string(kDimensionsMax) + " dimensions, found " + std::to_string(count));
    return;
  }
  out.resize(count);
  for (int64_t& dim : out) dim = reader.integer();
}

void encode_memory(Writer& writer, const TensorEntry& entry) {
  if (entry.storage) {
    writer.unsigned_integer(*entry.storage);
  } else {
    writer.nil();
  }
  writer.unsigned_integer(entry.offset);
  if (is_contiguous(entry.sizes, entry.strides)) {
    writer.nil();
  } else {
    encode_dims(writer, entry.strides);
  }
}

// The strides stay empty if they are nil: before the sizes are checked they cannot be computed.
void decode_memory(Reader& reader, TensorEntry& out) {
  out.storage.reset();
  if (!reader.try_nil()) wire::decode(reader, out.storage.emplace());
  out.offset = reader.unsigned_integer();
  out.strides.clear();
  if (!reader.try_nil()) {
    decode_dims(reader, out.strides);
    // Would otherwise look like nil.
    if (out.strides.empty()) reader.fail("expected nil for the strides of a tensor without dimensions, found an array");
  }
}

// `part`: it stands inside another.
void decode_entry(Reader& reader, TensorEntry& out, bool part) {
  const uint32_t count = reader.array_header();
  const uint64_t form = reader.unsigned_integer();
  if (!reader.ok()) return;
  out.form = static_cast<TensorForm>(form);
  if (form > kFormMax || (part && out.form != TensorForm::strided)) {
    reader.fail("expected the form of a tensor, found " + std::to_string(form));
    return;
  }
  if (count != layout_of(out.form).values) {
    reader.fail("expected a tensor of " + std::to_string(layout_of(out.form).values) + " values, found " +
                std::to_string(count));
  }
  if (!reader.ok() || out.form == TensorForm::undefined) return;
  wire::decode(reader, out.dtype);
  wire::decode(reader, out.flags);
  decode_device(reader, out);
  decode_dims(reader, out.sizes);
  if (is_dense(out.form)) decode_memory(reader, out);
  if (out.form == TensorForm::per_tensor) {
    out.scale = reader.float64();
    out.zero_point = reader.integer();
  }
  if (out.form == TensorForm::per_channel) out.axis = reader.integer();
  if (!reader.ok()) return;
  out.parts.resize(layout_of(out.form).parts);
  for (TensorEntry& inner : out.parts) decode_entry(reader, inner, true);
}

}  // namespace

void Codec<TensorEntry>::encode(Writer& writer, const TensorEntry& entry) {
  writer.array_header(layout_of(entry.form).values);
  wire::encode(writer, entry.form);
  if (entry.form == TensorForm::undefined) return;
  wire::encode(writer, entry.dtype);
  wire::encode(writer, entry.flags);
  encode_device(writer, entry);
  encode_dims(writer, entry.sizes);
  if (is_dense(entry.form)) encode_memory(writer, entry);
  if (entry.form == TensorForm::per_tensor) {
    writer.float64(entry.scale);
    writer.integer(entry.zero_point);
  }
  if (entry.form == TensorForm::per_channel) writer.integer(entry.axis);
  for (const TensorEntry& part : entry.parts) encode(writer, part);
}

void Codec<TensorEntry>::decode(Reader& reader, TensorEntry& out) {
  out = {};
  decode_entry(reader, out, false);
}

}  // namespace holdfast::wire
