// Tensor tables that nobody in their right mind would send. Run under AddressSanitizer and UndefinedBehaviorSanitizer
// too, where a read beyond the end or an overflow ends the test.
#include <functional>

#include <holdfast/tensor/tensor_test_support.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {
namespace {

// A table that can be changed.
struct Table {
  std::vector<StorageEntry> storages;
  std::vector<TensorEntry> tensors;
  HOLDFAST_FIELDS(Table, storages, tensors)
};

struct Packet {
  Table table;
  std::vector<Attachment> attachments;
  TensorEntry& tensor() { return table.tensors.front(); }
  TensorEntry& part(size_t i) { return table.tensors.front().parts.at(i); }
  template <class T>
  T* data(size_t attachment) {
    return reinterpret_cast<T*>(const_cast<uint8_t*>(attachments.at(attachment).data));
  }
};

Packet packet_of(const std::vector<at::Tensor>& tensors) {
  const Sent sent = send(tensors);
  Packet packet;
  Message message{.kind = {}, .body = sent.table, .attachments = {}};
  packet.table = wire::decode_message<Table>(message).take();
  packet.attachments = travel(sent.message);
  return packet;
}

// Strides that decoding leaves out stay out.
Bytes encoded(const Table& table) {
  Table whole = table;
  const auto complete = [](TensorEntry& entry) {
    if (entry.strides.empty()) entry.strides = row_major_strides(entry.sizes);
  };
  for (TensorEntry& entry : whole.tensors) {
    complete(entry);
    for (TensorEntry& part : entry.parts) complete(part);
  }
  return wire::encode_message({}, whole).body;
}

// "" if it was accepted.
std::string refusal(ByteView table, const std::vector<Attachment>& attachments) {
  // In memory of exactly that size.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[table.size()]);
  std::copy(table.begin(), table.end(), exact.get());
  const auto result = read_tensors(ByteView(exact.get(), table.size()), attachments);
  if (result.ok()) return {};
  EXPECT_EQ(result.failure().code, Code::corrupt) << result.failure().message;
  return result.failure().message;
}

struct Case {
  const char* problem;  // a part of the text
  at::Tensor tensor;
  std::function<void(Packet&)> change;
};

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.problem);
    Packet packet = packet_of({c.tensor});
    ASSERT_EQ(refusal(encoded(packet.table), packet.attachments), "");
    c.change(packet);
    const std::string found = refusal(encoded(packet.table), packet.attachments);
    EXPECT_NE(found.find(c.problem), std::string::npos) << found;
  }
}

TEST(TensorHostile, Dense) {
  const at::Tensor dense = at::arange(24, at::kFloat).view({4, 6});
  check({
      {"not in this libtorch", dense, [](Packet& p) { p.tensor().dtype = static_cast<DType>(0); }},
      {"not in this libtorch", dense, [](Packet& p) { p.tensor().dtype = static_cast<DType>(200); }},
      {"negative size", dense, [](Packet& p) { p.tensor().sizes[0] = -4; }},
      {"outside of its storage", dense, [](Packet& p) { p.tensor().sizes[0] = 5; }},
      {"outside of its storage", dense, [](Packet& p) { p.tensor().offset = 1; }},
      {"outside of its storage", dense, [](Packet& p) { p.tensor().offset = UINT64_MAX; }},
      {"outside of its storage", dense, [](Packet& p) { p.tensor().dtype = DType::float64; }},
      {"64 bits", dense,
       [](Packet& p) {
         p.tensor().sizes = {1LL << 32, 1LL << 32};
       }},
      {"64 bits", dense,
       [](Packet& p) {
         p.tensor().sizes = {0, 1LL << 40, 1LL << 40};
       }},
      {"dimensions", dense, [](Packet& p) { p.tensor().sizes.assign(65, 1); }},
      {"negative stride", dense,
       [](Packet& p) {
         p.tensor().strides = {-6, 1};
       }},
      {"outside of its storage", dense,
       [](Packet& p) {
         p.tensor().strides = {7, 1};
       }},
      {"outside of its storage", dense,
       [](Packet& p) {
         p.tensor().strides = {INT64_MAX / 4, 1};
       }},
      {"outside of its storage", at::arange(4, at::kByte),
       [](Packet& p) {
         p.tensor().sizes = {3, 3};
         p.tensor().strides = {INT64_MAX, INT64_MAX};
       }},
      {"64 bits", dense,
       [](Packet& p) {
         p.tensor().strides = {INT64_MAX, 1};
       }},
      {"2 sizes, but 3 strides", dense,
       [](Packet& p) {
         p.tensor().strides = {6, 1, 1};
       }},
      {"does not exist", dense, [](Packet& p) { p.tensor().storage = 1; }},
      {"elements without a storage", dense, [](Packet& p) { p.tensor().storage.reset(); }},
      {"without elements", dense, [](Packet& p) { p.tensor().sizes = {0}; }},
      {"offset without", at::empty({0}), [](Packet& p) { p.tensor().offset = 1; }},
      {"attachment that does not exist", dense, [](Packet& p) { p.table.storages[0].attachment = 1; }},
      {"another length", dense, [](Packet& p) { p.table.storages[0].bytes = 95; }},
      {"another length", dense, [](Packet& p) { p.table.storages[0].bytes = UINT64_MAX; }},
      {"another length", dense, [](Packet& p) { p.attachments[0].bytes = 95; }},
      {"two storages", dense,
       [](Packet& p) {
         p.attachments.push_back(copy_of(p.attachments[0]));
         p.table.storages.push_back(p.table.storages[0]);
       }},
      {"more storages", dense, [](Packet& p) { p.table.storages.push_back(p.table.storages[0]); }},
      {"flags", dense, [](Packet& p) { p.tensor().flags = 16; }},
      {"flags", dense, [](Packet& p) { p.tensor().flags = kCoalesced; }},
      {"not complex", dense, [](Packet& p) { p.tensor().flags = kConjugate; }},
      {"no gradient", at::arange(3), [](Packet& p) { p.tensor().flags = kRequiresGrad; }},
      {"has none", at::ones({3}, at::kBool), [](Packet& p) { p.tensor().flags = kNegative; }},
      {"unknown device", dense, [](Packet& p) { p.tensor().device = static_cast<DeviceNumber>(99); }},
      {"negative index", dense,
       [](Packet& p) {
         p.tensor().device = DeviceNumber::cuda;
         p.tensor().device_index = -2;
       }},
      {"cuda:0, and this worker takes", dense,
       [](Packet& p) {
         p.tensor().device = DeviceNumber::cuda;
         p.tensor().device_index = 0;
       }},
      {"cuda:0, and this worker takes", at::empty({0}),
       [](Packet& p) {
         p.tensor().device = DeviceNumber::cuda;
         p.tensor().device_index = 0;
       }},
      {"meta tensor with bytes", dense, [](Packet& p) { p.tensor().device = DeviceNumber::meta; }},
      {"two devices", dense,
       [](Packet& p) {
         p.table.tensors.push_back(p.tensor());
         p.table.tensors[1].device = DeviceNumber::cuda;
       }},
      {"neither 0 nor 1", at::ones({9}, at::kBool), [](Packet& p) { p.data<uint8_t>(0)[8] = 2; }},
      {"neither 0 nor 1", at::ones({9}, at::kBool), [](Packet& p) { p.data<uint8_t>(0)[0] = 0x80; }},
  });
}

TEST(TensorHostile, Quantised) {
  const at::Tensor one = at::quantize_per_tensor(at::rand({4, 2}), 0.1, 3, at::kQUInt8);
  const at::Tensor many =
      at::quantize_per_channel(at::rand({4, 2}), at::rand({2}).add(0.1), at::zeros({2}, at::kLong), 1, at::kQInt8);
  const at::Tensor packed = at::_empty_affine_quantized({5}, at::TensorOptions(at::kQUInt4x2), 1, 0);
  check({
      {"a scale", one, [](Packet& p) { p.tensor().scale = NAN; }},
      {"a scale", one, [](Packet& p) { p.tensor().scale = INFINITY; }},
      {"a scale", one, [](Packet& p) { p.tensor().scale = -1; }},
      {"zero point", one, [](Packet& p) { p.tensor().zero_point = 256; }},
      {"zero point", one, [](Packet& p) { p.tensor().zero_point = -1; }},
      {"quantiser", one, [](Packet& p) { p.tensor().dtype = DType::uint8; }},
      {"quantiser", one, [](Packet& p) { p.tensor().form = TensorForm::strided; }},
      {"no gradient", one, [](Packet& p) { p.tensor().flags = kRequiresGrad; }},
      {"axis", many, [](Packet& p) { p.tensor().axis = 2; }},
      {"axis", many, [](Packet& p) { p.tensor().axis = -1; }},
      {"as channels", many, [](Packet& p) { p.tensor().axis = 0; }},
      {"as channels", many, [](Packet& p) { p.part(0).sizes = {1}; }},
      {"scales of the wrong type", many, [](Packet& p) { p.part(0).dtype = DType::int64; }},
      {"points of the wrong type", many, [](Packet& p) { p.part(1).dtype = DType::float64; }},
      {"no number", many, [](Packet& p) { p.data<double>(1)[1] = NAN; }},
      {"outside of the type", many, [](Packet& p) { p.data<int64_t>(2)[1] = 128; }},
      {"repeat", many, [](Packet& p) { p.part(0).strides = {0}; }},
      {"outside of its storage", packed, [](Packet& p) { p.tensor().sizes = {7}; }},
      {"packed", packed, [](Packet& p) { p.tensor().strides = {2}; }},
      {"packed", packed, [](Packet& p) { p.tensor().offset = 1; }},
  });
}

TEST(TensorHostile, Sparse) {
  const at::Tensor coo = at::eye(3).to_sparse();
  const at::Tensor csr = at::eye(3).to_sparse_csr();
  const at::Tensor bsr =
      at::_sparse_compressed_tensor_unsafe(at::arange(3, at::kInt), at::zeros({2}, at::kInt), at::ones({2, 2, 3}),
                                           {4, 6}, at::TensorOptions(at::kSparseBsr));
  check({
      {"outside of the sizes", coo, [](Packet& p) { p.data<int64_t>(0)[5] = 3; }},
      {"outside of the sizes", coo, [](Packet& p) { p.data<int64_t>(0)[0] = -1; }},
      {"outside of the sizes", coo,
       [](Packet& p) {
         p.tensor().sizes = {3, 2};
       }},
      {"outside of the sizes", coo,
       [](Packet& p) {
         p.tensor().sizes = {3, 0};
       }},
      {"number of dimensions", coo, [](Packet& p) { p.tensor().sizes = {9}; }},
      {"number of dimensions", coo,
       [](Packet& p) {
         p.tensor().sizes = {3, 3, 1};
       }},
      {"as many values", coo, [](Packet& p) { p.part(1).sizes = {2}; }},
      {"number of dimensions", coo, [](Packet& p) { p.part(1).sizes = {}; }},
      {"no int64 matrix", coo, [](Packet& p) { p.part(0).dtype = DType::float64; }},
      {"no int64 matrix", coo, [](Packet& p) { p.part(0).sizes = {6}; }},
      {"another type", coo, [](Packet& p) { p.tensor().dtype = DType::int32; }},
      {"another device", coo,
       [](Packet& p) {
         p.tensor().device = DeviceNumber::cuda;
         p.tensor().device_index = 0;
       }},
      {"meta tensor inside", coo, [](Packet& p) { p.part(1).device = DeviceNumber::meta; }},
      {"flags", coo, [](Packet& p) { p.tensor().flags = kNegative; }},
      {"flags", coo, [](Packet& p) { p.part(1).flags = kRequiresGrad; }},
      {"flags", coo, [](Packet& p) { p.part(0).flags = kNegative; }},
      // Would take years to look at.
      {"repeat", coo,
       [](Packet& p) {
         p.part(0).sizes = {2, 1LL << 50};
         p.part(0).strides = {0, 0};
         p.part(1).sizes = {1LL << 50};
         p.part(1).strides = {0};
       }},
      {"64 bits", coo,
       [](Packet& p) {
         p.tensor().sizes = {1LL << 32, 1LL << 32};
       }},
      {"begin with 0", csr, [](Packet& p) { p.data<int64_t>(0)[0] = 1; }},
      {"backwards", csr, [](Packet& p) { p.data<int64_t>(0)[1] = 3; }},
      {"backwards", csr, [](Packet& p) { p.data<int64_t>(0)[1] = INT64_MIN; }},
      {"end with", csr, [](Packet& p) { p.data<int64_t>(0)[3] = 4; }},
      {"outside of the sizes", csr, [](Packet& p) { p.data<int64_t>(1)[2] = 3; }},
      {"outside of the sizes", csr, [](Packet& p) { p.data<int64_t>(1)[0] = -1; }},
      {"one pointer more", csr,
       [](Packet& p) {
         p.tensor().sizes = {4, 3};
       }},
      {"one pointer more", csr,
       [](Packet& p) {
         p.tensor().sizes = {INT64_MAX / 4, 1};
       }},
      {"number of dimensions", csr, [](Packet& p) { p.tensor().sizes = {3}; }},
      {"number of dimensions", csr,
       [](Packet& p) {
         p.part(0).sizes = {2, 2};
       }},
      {"as many values", csr, [](Packet& p) { p.part(2).sizes = {2}; }},
      {"neither int32 nor int64", csr, [](Packet& p) { p.part(0).dtype = DType::float64; }},
      {"values that repeat", csr,
       [](Packet& p) {
         p.part(2).sizes = {1LL << 50};
         p.part(2).strides = {0};
       }},
      {"fill the sizes", bsr,
       [](Packet& p) {
         p.tensor().sizes = {5, 6};
       }},
      {"fill the sizes", bsr,
       [](Packet& p) {
         p.tensor().sizes = {4, 7};
       }},
      {"fill the sizes", bsr,
       [](Packet& p) {
         p.part(2).sizes = {2, 0, 3};
         p.part(2).storage.reset();
       }},
  });
}

TEST(TensorHostile, ALieAboutCoalescedIsNotBelieved) {
  Packet packet = packet_of({at::eye(3).to_sparse()});
  ASSERT_EQ(packet.tensor().flags, kCoalesced);
  std::swap(packet.data<int64_t>(0)[0], packet.data<int64_t>(0)[1]);
  const auto got = read_tensors(encoded(packet.table), packet.attachments).take();
  EXPECT_FALSE(got[0].is_coalesced());
}

TEST(TensorHostile, BytesOfAnotherForm) {
  using wire::Writer;
  const auto written = [](const std::function<void(Writer&)>& write) {
    Message message;
    Writer writer(message);
    write(writer);
    return message.body;
  };
  // A part that is itself sparse, and so on for ever: parts are strided.
  Bytes nested = written([](Writer& w) {
    w.array_header(2);
    w.array_header(0);
    w.array_header(1);
    for (int i = 0; i < 100000; ++i) {
      w.array_header(7);
      for (const int value : {4, 7, 0}) w.integer(value);
      w.nil();
      w.array_header(0);
    }
  });
  EXPECT_NE(refusal(nested, {}).find("form"), std::string::npos);
  Bytes dimensions = written([](Writer& w) {
    w.array_header(2);
    w.array_header(0);
    w.array_header(1);
    w.array_header(8);
    for (const int value : {1, 7, 0}) w.integer(value);
    w.nil();
    w.array_header(3'000'000);
    for (int i = 0; i < 3'000'000; ++i) w.integer(1);
  });
  EXPECT_NE(refusal(dimensions, {}).find("at most 64 dimensions"), std::string::npos);
  Bytes many = written([](Writer& w) {
    w.array_header(2);
    w.array_header(0);
    w.array_header(kTensorsMax + 1);
    for (size_t i = 0; i <= kTensorsMax; ++i) {
      w.array_header(1);
      w.integer(0);
    }
  });
  EXPECT_NE(refusal(many, {}).find("more tensors"), std::string::npos);
  EXPECT_NE(refusal(Bytes(), {}), "");
  EXPECT_NE(refusal(Bytes{0x92, 0x90, 0x90, 0x00}, {}), "");
  EXPECT_NE(refusal(Bytes{0x92, 0x90, 0x91, 0x91, 0x09}, {}), "");
  EXPECT_EQ(refusal(Bytes{0x92, 0x90, 0x91, 0x91, 0x00}, {}), "");
}

// Every byte that it shows can be read. Large ones are strides of 0, or sizes of a sparse tensor: only their ends.
void use(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  constexpr int64_t kReadMax = 1 << 16;
  if (tensor.layout() == at::kSparse) {
    use(tensor._indices());
    use(tensor._values());
  } else if (tensor.layout() != at::kStrided) {
    const auto& impl = static_cast<const at::SparseCsrTensorImpl&>(*tensor.unsafeGetTensorImpl());
    use(impl.compressed_indices());
    use(impl.plain_indices());
    use(impl.values());
  } else if (!tensor.is_meta()) {
    const auto span = span_elements(tensor.sizes(), tensor.strides());
    ASSERT_TRUE(span);
    ASSERT_LE(bytes_of_elements(tensor.scalar_type(), static_cast<uint64_t>(tensor.storage_offset()) + *span),
              tensor.storage().nbytes());
    if (tensor.numel() <= kReadMax) bits(tensor);
  }
  // What libtorch itself makes of it. It may not be able to, for that type or layout.
  if (tensor.numel() > kReadMax || tensor.is_meta()) return;
  if (tensor.layout() == at::kSparse && tensor._values().numel() > kReadMax) return;
  const at::NoGradGuard no_grad;
  try {
    tensor.clone();
    if (tensor.is_sparse()) tensor.coalesce().to_dense();
    if (tensor.is_quantized()) tensor.dequantize();
    if (tensor.is_sparse_csr()) tensor.to_dense();
    if (tensor.layout() == at::kStrided) tensor.contiguous().sum();
  } catch (const c10::Error&) {
  }
}

void damage(Random& random, Bytes& bytes) {
  if (bytes.empty()) return;
  const size_t at = random.below(bytes.size());
  switch (random.below(5)) {
    case 0: bytes.resize(at); break;
    case 1: bytes[at] = static_cast<uint8_t>(random.next()); break;
    case 2: bytes[at] = static_cast<uint8_t>(random.below(4)); break;
    case 3: std::swap(bytes[at], bytes[random.below(bytes.size())]); break;
    default: bytes[at] ^= static_cast<uint8_t>(1U << random.below(8)); break;
  }
}

TEST(TensorHostile, DamagedTablesAreRefusedOrMakeTensorsThatCanBeRead) {
  int refused = 0;
  int accepted = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Random random(seed);
    const Sent sent = send(random_tensors(random));
    for (int round = 0; round < 6; ++round) {
      SCOPED_TRACE(testing::Message() << seed << " " << round);
      Bytes table = sent.table;
      std::vector<Attachment> attachments = travel(sent.message);
      for (uint64_t i = random.below(3); i > 0; --i) damage(random, table);
      for (Attachment& attachment : attachments) {
        if (random.chance(0.2)) {
          const_cast<uint8_t*>(attachment.data)[random.below(attachment.bytes)] ^=
              static_cast<uint8_t>(1U << random.below(8));
        }
      }
      if (!attachments.empty() && random.chance(0.05)) attachments.pop_back();
      const auto result = read_tensors(Bytes(table), attachments);
      if (!result.ok()) {
        ASSERT_EQ(result.failure().code, Code::corrupt) << result.failure().message;
        ++refused;
        continue;
      }
      ++accepted;
      for (const at::Tensor& tensor : *result) use(tensor);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

}  // namespace
}  // namespace holdfast
