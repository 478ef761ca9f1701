// Writes the first inputs of fuzz_tensor_table, one for each form of tensor: make_tensor_corpus DIRECTORY. A program of
// its own, for it needs libtorch's headers.
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <holdfast/tensor/tensor_table.h>
#include <holdfast/wire/codecs.h>

#include "input.h"

namespace holdfast::fuzz {
namespace {

struct Table {
  std::vector<StorageEntry> storages;
  std::vector<TensorEntry> tensors;
  HOLDFAST_FIELDS(Table, storages, tensors)
};

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TensorEntry strided(DType dtype, Dims sizes, uint32_t storage) {
  TensorEntry entry{.form = TensorForm::strided, .dtype = dtype, .sizes = sizes, .storage = storage};
  entry.strides = row_major_strides(sizes);
  return entry;
}

void write(const std::filesystem::path& directory, const std::string& name, const std::vector<Bytes>& attachments,
           std::vector<TensorEntry> tensors) {
  Table table{.storages = {}, .tensors = std::move(tensors)};
  Output out;
  out.byte(attachments.size());
  for (const Bytes& bytes : attachments) {
    table.storages.push_back({.attachment = static_cast<uint32_t>(table.storages.size()), .bytes = bytes.size()});
    out.two_bytes(bytes.size()).append(bytes);
  }
  out.append(wire::encode_message({}, table).body);
  std::filesystem::create_directories(directory);
  std::ofstream file(directory / ("seed_" + name), std::ios::binary);
  file.write(reinterpret_cast<const char*>(out.bytes().data()), static_cast<std::streamsize>(out.bytes().size()));
}

void write_all(const std::filesystem::path& directory) {
  const Bytes floats = bytes_of(std::vector<float>{0, 1, 2, 3, 4, 5});
  const Bytes indices = bytes_of(std::vector<int64_t>{0, 1, 1, 0});
  const Bytes values = bytes_of(std::vector<float>{1, 2});

  TensorEntry transposed = strided(DType::float32, {3, 2}, 0);
  transposed.strides = {1, 3};
  TensorEntry meta{.form = TensorForm::strided, .dtype = DType::float32, .device = DeviceNumber::meta, .sizes = {2}};
  meta.strides = {1};
  write(directory, "strided", {floats}, {strided(DType::float32, {2, 3}, 0), transposed, meta, {}});
  TensorEntry flagged = strided(DType::float32, {6}, 0);
  flagged.flags = kRequiresGrad;
  write(directory, "requires_grad", {floats}, {flagged, strided(DType::boolean, {1}, 0)});

  TensorEntry quantised = strided(DType::qint8, {4}, 0);
  quantised.form = TensorForm::per_tensor;
  quantised.scale = 0.5;
  quantised.zero_point = 3;
  write(directory, "per_tensor", {Bytes{1, 2, 3, 4}}, {quantised});
  quantised.form = TensorForm::per_channel;
  quantised.sizes = {2, 2};
  quantised.strides = {2, 1};
  quantised.parts = {strided(DType::float64, {2}, 1), strided(DType::int64, {2}, 2)};
  write(directory, "per_channel",
        {Bytes{1, 2, 3, 4}, bytes_of(std::vector<double>{0.5, 0.25}), bytes_of(std::vector<int64_t>{0, 1})},
        {quantised});

  TensorEntry sparse{.form = TensorForm::coo, .dtype = DType::float32, .sizes = {2, 2}};
  sparse.parts = {strided(DType::int64, {2, 2}, 0), strided(DType::float32, {2}, 1)};
  write(directory, "coo", {indices, values}, {sparse});
  sparse.form = TensorForm::csr;
  sparse.parts = {strided(DType::int64, {3}, 0), strided(DType::int64, {2}, 1), strided(DType::float32, {2}, 2)};
  write(directory, "csr", {bytes_of(std::vector<int64_t>{0, 1, 2}), bytes_of(std::vector<int64_t>{1, 0}), values},
        {sparse});
  sparse.form = TensorForm::bsr;
  sparse.sizes = {2, 2};
  sparse.parts = {strided(DType::int64, {2}, 0), strided(DType::int64, {1}, 1), strided(DType::float32, {1, 2, 2}, 2)};
  write(directory, "bsr",
        {bytes_of(std::vector<int64_t>{0, 1}), bytes_of(std::vector<int64_t>{0}),
         bytes_of(std::vector<float>{1, 2, 3, 4})},
        {sparse});
}

}  // namespace
}  // namespace holdfast::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  holdfast::fuzz::write_all(std::filesystem::path(argv[1]) / "tensor_table");
  return 0;
}
