// Tensors to a message and back: what must be the same afterwards, what is shared, what is copied, what is refused.
#include <ATen/core/grad_mode.h>

#include <map>
#include <set>

#include <holdfast/tensor/make_tensor.h>
#include <holdfast/tensor/peak_test_support.h>
#include <holdfast/tensor/tensor_test_support.h>
#include <holdfast/wire/wire_test_support.h>

namespace holdfast {
namespace {

std::vector<at::Tensor> read(const Sent& sent, DeviceMover* mover = nullptr) {
  return read_tensors(sent.table, travel(sent.message), mover).take();
}

std::vector<at::Tensor> round_trip(const std::vector<at::Tensor>& tensors) {
  const Sent sent = send(tensors);
  const auto got = read(sent);
  std::vector<at::Tensor> ordered;
  for (const uint32_t index : sent.indices) ordered.push_back(got.at(index));
  return ordered;
}

at::Tensor one(const at::Tensor& tensor) { return round_trip({tensor}).front(); }

uint64_t attached_bytes(const std::vector<at::Tensor>& tensors) { return send(tensors).message.total_bytes(); }

// Elements that had one place have one place again, and others do not. `place` says where each byte went.
void expect_same_sharing(const at::Tensor& sent, const at::Tensor& got, std::map<uint8_t*, uint8_t*>& place,
                         std::map<uint8_t*, uint8_t*>& back) {
  std::vector<uint8_t*> from;
  each_element(sent, [&](uint8_t* at) { from.push_back(at); });
  size_t i = 0;
  each_element(got, [&](uint8_t* at) {
    for (size_t byte = 0; byte < sent.itemsize(); ++byte) {
      EXPECT_EQ(place.emplace(from[i] + byte, at + byte).first->second, at + byte);
      EXPECT_EQ(back.emplace(at + byte, from[i] + byte).first->second, from[i] + byte);
    }
    ++i;
  });
}

TEST(TensorTable, RandomTensorsArriveAsTheyWereSent) {
  std::set<int> seen;  // types and layouts: that the generator makes all of them
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const auto tensors = random_tensors(random);
    const auto got = round_trip(tensors);
    std::map<uint8_t*, uint8_t*> place;
    std::map<uint8_t*, uint8_t*> back;
    for (size_t i = 0; i < tensors.size(); ++i) {
      SCOPED_TRACE(i);
      expect_same(tensors[i], got[i]);
      if (HasFailure()) return;
      if (!tensors[i].defined()) continue;
      seen.insert({static_cast<int>(tensors[i].scalar_type()), 100 + static_cast<int>(tensors[i].layout())});
      if (is_plain_dense(tensors[i])) expect_same_sharing(tensors[i], got[i], place, back);
      for (size_t j = 0; j < i; ++j) {
        EXPECT_EQ(tensors[i].is_same(tensors[j]), got[i].is_same(got[j]));
      }
    }
  }
  EXPECT_EQ(seen.size(), std::size(kPlainTypes) + std::size(kQuantisedTypes) + 6);
}

struct SizeCase {
  const char* name;
  at::Tensor tensor;
  uint64_t bytes;  // attached
};

TEST(TensorTable, SendsTheBytesThatAreShown) {
  const at::Tensor matrix = at::arange(600, at::kFloat).view({20, 30});
  const SizeCase cases[] = {
      {"scalar", at::scalar_tensor(7, at::kDouble), 8},
      {"empty", at::empty({3, 0, 2}), 0},
      {"whole", matrix, 2400},
      {"transposed", matrix.t(), 2400},
      {"rows", matrix.slice(0, 5, 7), 240},
      {"column", matrix.select(1, 3), 80},
      {"every second column", matrix.slice(1, 0, 30, 2), 1200},
      {"expanded", at::ones({1}, at::kFloat).expand({1000, 1000}), 4},
      {"expanded column", matrix.select(1, 3).unsqueeze(1).expand({20, 50}), 80},
      {"windows", at::arange(100, at::kFloat).unfold(0, 10, 1), 400},
      {"channels last", at::rand({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast), 480},
      {"meta", at::empty({1000, 1000}, at::TensorOptions(at::kMeta)), 0},
      {"undefined", at::Tensor(), 0},
      {"sparse", at::eye(3, at::kFloat).to_sparse(), 3 * 4 + 2 * 3 * 8},
  };
  for (const SizeCase& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(attached_bytes({c.tensor}), c.bytes);
    expect_same(c.tensor, one(c.tensor));
  }
}

TEST(TensorTable, WhatSharesMemoryIsSentOnceAndSharesAgain) {
  const at::Tensor base = at::zeros({10, 10}, at::kInt);
  const at::Tensor row = base.select(0, 2);
  const at::Tensor column = base.select(1, 3);
  const at::Tensor as_bytes = base.view(at::kByte).slice(0, 2, 4);
  const std::vector<at::Tensor> tensors = {row, column, base, as_bytes, base, base.t()};
  EXPECT_EQ(attached_bytes(tensors), 400U);
  const auto got = round_trip(tensors);
  EXPECT_TRUE(got[2].is_same(got[4]));
  got[0][3] = 0x01020304;
  EXPECT_EQ(got[1][2].item<int>(), 0x01020304);
  EXPECT_EQ(got[5][3][2].item<int>(), 0x01020304);
  EXPECT_EQ(got[3][0][12].item<int>(), 4);

  // Far apart in one storage: nothing is shared, and what lies between stays here.
  EXPECT_EQ(attached_bytes({base.select(0, 0), base.select(0, 9)}), 80U);
  // Side by side: one attachment.
  EXPECT_EQ(send({base.select(0, 0), base.select(0, 1)}).message.attachments.size(), 1U);
  // Beside one with holes, which is copied.
  EXPECT_EQ(attached_bytes({base.slice(0, 0, 5).select(1, 0), base.slice(0, 5, 10)}), 20U + 200U);
}

TEST(TensorTable, TypesOfOtherSizesShareAtOddPlaces) {
  const at::Tensor base = at::arange(64, at::kByte);
  const at::Tensor longs = base.view(at::kLong).slice(0, 1, 3);
  const at::Tensor bytes = base.slice(0, 5, 12);
  const auto got = round_trip({bytes, longs});
  expect_same(bytes, got[0]);
  expect_same(longs, got[1]);
  got[0][3] = 99;  // the first byte of the first long
  EXPECT_EQ(got[1][0].item<int64_t>() & 255, 99);
}

TEST(TensorTable, IsSmall) {
  EXPECT_LT(send({at::rand({1000, 1000})}).table.size(), 40U);
  // As docs/tensor.md has it.
  EXPECT_EQ(wire::hex(send({at::zeros({2, 3}).t()}).table), "92 91 92 00 18 91 98 01 07 00 c0 92 03 02 00 00 92 01 03");
}

TEST(TensorTable, NumbersOfTypesNeverChange) {
  const std::pair<int, at::ScalarType> numbers[] = {
      {1, at::kByte},        {2, at::kChar},          {3, at::kShort},          {4, at::kInt},
      {5, at::kLong},        {6, at::kHalf},          {7, at::kFloat},          {8, at::kDouble},
      {9, at::kComplexHalf}, {10, at::kComplexFloat}, {11, at::kComplexDouble}, {12, at::kBool},
      {13, at::kBFloat16},   {14, at::kQInt8},        {15, at::kQUInt8},        {16, at::kQInt32},
      {17, at::kQUInt4x2},   {18, at::kQUInt2x4}};
  for (const auto& [number, type] : numbers) {
    EXPECT_EQ(scalar_type_of(static_cast<DType>(number)), type) << number;
    EXPECT_EQ(dtype_of(type), static_cast<DType>(number)) << number;
  }
  EXPECT_FALSE(scalar_type_of(static_cast<DType>(0)));
  EXPECT_FALSE(scalar_type_of(static_cast<DType>(26)));
}

TEST(TensorTable, ManyTensors) {
  std::vector<at::Tensor> tensors;
  for (int i = 0; i < 300; ++i) tensors.push_back(at::full({1}, i));
  for (size_t i = 0; i < 300; ++i) tensors.push_back(at::Tensor(tensors[i]));
  const auto got = round_trip(tensors);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].item<int>(), static_cast<int>(i % 300));
  EXPECT_EQ(send(tensors).message.attachments.size(), 300U);
}

TEST(TensorTable, AutogradSeesNothing) {
  const at::Tensor leaf = at::rand({4, 4}).set_requires_grad(true);
  const at::Tensor result = leaf * 2;
  const at::Tensor column = result.select(1, 1);  // is copied
  const auto* node = result.grad_fn().get();
  const auto version = result._version();
  for (const bool grad_mode : {true, false}) {
    const at::AutoGradMode mode(grad_mode);
    const auto got = round_trip({leaf, result, column});
    for (const at::Tensor& tensor : got) {
      EXPECT_TRUE(tensor.requires_grad());
      EXPECT_EQ(tensor.grad_fn(), nullptr);
    }
    EXPECT_EQ(at::GradMode::is_enabled(), grad_mode);
  }
  EXPECT_EQ(result.grad_fn().get(), node);
  EXPECT_EQ(result._version(), version);
  result.sum().backward();
  EXPECT_TRUE(leaf.grad().eq(2).all().item<bool>());
}

TEST(TensorTable, MemoryLivesAsLongAsItsUsers) {
  Sent sent = send({at::full({1000}, 5, at::kInt)});  // nobody else has it
  std::weak_ptr<const void> here = sent.message.attachments[0].owner;
  auto arrived = travel(sent.message);
  sent.message = {};
  EXPECT_TRUE(here.expired());
  std::weak_ptr<const void> there = arrived[0].owner;
  auto got = read_tensors(sent.table, arrived).take();
  EXPECT_EQ(got[0].data_ptr(), arrived[0].data);
  arrived.clear();
  EXPECT_EQ(got[0].sum().item<int>(), 5000);
  got[0].resize_({2000});  // an ordinary tensor
  EXPECT_TRUE(there.expired());
  EXPECT_EQ(got[0].slice(0, 0, 1000).sum().item<int>(), 5000);
}

TEST(TensorTable, MemoryThatIsNotAlignedIsCopied) {
  const Sent sent = send({at::arange(100, at::kDouble)});
  Bytes shifted(1, 0);
  shifted.append(sent.message.attachments[0].data, 800);
  auto owner = std::make_shared<Bytes>(std::move(shifted));
  const Attachment attachment{.owner = owner, .data = owner->data() + 1, .bytes = 800};
  const auto got = read_tensors(sent.table, std::span(&attachment, 1)).take();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(got[0].data_ptr()) % 16, 0U);
  EXPECT_TRUE(got[0].equal(at::arange(100, at::kDouble)));
}

uint64_t peak_growth(const std::function<void()>& work) {
  const PeakMemory peak;
  work();
  return peak.growth();
}

TEST(TensorTable, LargeTensorsAreNotCopied) {
  constexpr int64_t kBytes = 256 << 20;
  const at::Tensor tensor = at::ones({kBytes}, at::kByte).view({1 << 14, -1}).t();
  Sent sent;
  EXPECT_LT(peak_growth([&] { sent = send({tensor}); }), kBytes / 16);
  EXPECT_EQ(sent.message.attachments[0].data, tensor.data_ptr());
  const auto arrived = travel(sent.message);
  std::vector<at::Tensor> got;
  EXPECT_LT(peak_growth([&] { got = read_tensors(sent.table, arrived).take(); }), kBytes / 16);
  EXPECT_EQ(got[0].data_ptr(), arrived[0].data);
  // That a copy would have been seen.
  EXPECT_GT(peak_growth([&] { send({tensor.clone()}); }), kBytes / 16 * 15);
}

TEST(TensorTable, SizesOfMoreThan32Bits) {
  // Never touched, so that it takes no memory.
  const at::Tensor huge = at::empty({5LL << 30}, at::kByte);
  Sent sent = send({huge, huge.slice(0, (5LL << 30) - 2)});
  ASSERT_EQ(sent.message.total_bytes(), 5ULL << 30);
  const auto got = read_tensors(sent.table, sent.message.attachments).take();
  EXPECT_EQ(got[0].numel(), 5LL << 30);
  EXPECT_EQ(got[1].storage_offset(), (5LL << 30) - 2);
}

std::string refusal(const std::function<at::Tensor()>& make) {
  try {
    send({make()});
    return "sent";
  } catch (const InvalidArgument& error) {
    return error.what();
  }
}

// A tensor on a device that only the test knows.
at::Tensor on_fake_device(const at::Tensor& tensor) {
  auto* keep = new at::Tensor(tensor.contiguous());
  c10::DataPtr memory(
      keep->data_ptr(), keep, [](void* at) { delete static_cast<at::Tensor*>(at); },
      c10::Device(c10::DeviceType::PrivateUse1, 3));
  c10::Storage storage(c10::Storage::use_byte_size_t{}, tensor.nbytes(), std::move(memory));
  return tensor_over(std::move(storage), tensor.scalar_type(), 0, tensor.sizes(), tensor.contiguous().strides());
}

TEST(TensorTable, SaysWhatCannotBeSent) {
  const std::pair<const char*, std::function<at::Tensor()>> cases[] = {
      {"more than 64", [] { return at::ones({1}).view(std::vector<int64_t>(65, 1)); }},
      {"nested",
       [] {
         return at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})});
       }},
      {"storage resized",
       [] {
         at::Tensor tensor = at::ones({100});
         tensor.storage().set_nbytes(10);
         return tensor;
       }},
      {"neither 0 nor 1", [] { return at::full({3}, 2, at::kByte).view(at::kBool); }},
      {"a scale", [] { return at::_empty_affine_quantized({2}, at::TensorOptions(at::kQInt8), NAN, 0); }},
      {"zero point", [] { return at::_empty_affine_quantized({2}, at::TensorOptions(at::kQInt8), 1, 200); }},
      {"index outside",
       [] {
         return at::_sparse_coo_tensor_unsafe(at::full({1, 1}, 9, at::kLong), at::ones({1}), {3});
       }},
      {"privateuseone:3", [] { return on_fake_device(at::ones({2})); }},
      {"more bytes than 64 bits", [] { return at::ones({1}, at::kDouble).as_strided({1}, {INT64_MAX / 4}); }},
  };
  for (const auto& [text, make] : cases) {
    const std::string why = refusal(make);
    EXPECT_NE(why.find(text), std::string::npos) << text << ": " << why;
  }
}

// "Moves" to and from the test's device.
class FakeMover final : public DeviceMover {
 public:
  Result<c10::Device> target_of(c10::Device device) override {
    if (device.is_cpu()) return device;
    EXPECT_EQ(device.index(), 3);
    return target;
  }
  Result<at::Tensor> to_cpu(const at::Tensor& bytes) override {
    ++moved;
    const auto* data = static_cast<const uint8_t*>(bytes.storage().data()) + bytes.storage_offset();
    return at::from_blob(const_cast<uint8_t*>(data), bytes.sizes(), at::kByte).clone();
  }
  Result<at::Tensor> to_device(const at::Tensor& bytes, c10::Device device) override {
    ++moved;
    if (device != target) return Failure{.code = Code::unavailable, .message = "no such device"};
    return on_fake_device(bytes);
  }
  c10::Device target{c10::DeviceType::PrivateUse1, 3};
  int moved = 0;
};

TEST(TensorTable, DevicesByTheirMover) {
  const at::Tensor device = on_fake_device(at::arange(6, at::kInt).view({2, 3}));
  const at::Tensor part = tensor_over(device.storage(), at::kInt, 1, {2}, {3});  // shares, and has holes
  FakeMover mover;
  const Sent sent = send({device, part, at::ones({1})}, &mover);
  EXPECT_EQ(mover.moved, 1);
  const auto got = read(sent, &mover);
  EXPECT_EQ(mover.moved, 2);
  EXPECT_EQ(got[0].device(), mover.target);
  EXPECT_EQ(got[0].storage().unsafeGetStorageImpl(), got[1].storage().unsafeGetStorageImpl());
  EXPECT_EQ(static_cast<const int*>(got[0].storage().data())[5], 5);
  EXPECT_EQ(got[1].storage_offset(), 1);
  EXPECT_TRUE(got[2].is_cpu());

  const auto refused = read_tensors(sent.table, travel(sent.message));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.failure().code, Code::corrupt);

  // To the other's ordinary memory; and alone, so that the holes are left out.
  mover.target = c10::Device(c10::DeviceType::CPU);
  const auto on_cpu = read(send({part}, &mover));
  EXPECT_TRUE(on_cpu[0].equal(at::tensor({1, 4}, at::kInt)));
  EXPECT_TRUE(on_cpu[0].is_contiguous());
}

}  // namespace
}  // namespace holdfast
