// Operators by name on another worker, and the values that they take and give.
#include <functional>

#include <ATen/ATen.h>

#include <holdfast/base/random.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/tensor/operators.h>
#include <holdfast/tensor/script.h>

namespace holdfast {
namespace {

using at::Tensor;
using c10::IValue;
using test::expect_throw;

// Two workers for all tests of this file: to make them takes longer than most tests.
class OperatorsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    job_ = std::make_unique<test::TestJob>(2, [](Options& options) {
      if (options.rank == 1) options.allowed_operators = {"aten::_softmax", "prim::*"};
    });
  }
  static void TearDownTestSuite() {
    job_->shutdown();
    job_.reset();
  }
  static Worker& worker() { return (*job_)[0]; }
  static Peer peer() { return worker().peer(1); }
  static std::string refusal(const std::function<void()>& run) { return expect_throw<RemoteError>(run).what(); }

  static std::unique_ptr<test::TestJob> job_;
};
std::unique_ptr<test::TestJob> OperatorsTest::job_;

bool same(const IValue& a, const IValue& b) {
  if (a.isTensor() && b.isTensor()) {
    return a.toTensor().dtype() == b.toTensor().dtype() && at::equal(a.toTensor(), b.toTensor());
  }
  if (a.isTuple() && b.isTuple()) {
    const auto left = a.toTuple(), right = b.toTuple();
    if (left->size() != right->size()) return false;
    for (size_t i = 0; i < left->size(); ++i) {
      if (!same(left->elements()[i], right->elements()[i])) return false;
    }
    return true;
  }
  if (a.isList() && b.isList()) {
    const auto left = a.toList(), right = b.toList();
    if (left.size() != right.size() || *left.elementType() != *right.elementType()) return false;
    for (size_t i = 0; i < left.size(); ++i) {
      if (!same(left.get(i), right.get(i))) return false;
    }
    return true;
  }
  return a == b;
}

TEST_F(OperatorsTest, GiveWhatTheyGiveHere) {
  const Tensor x = at::arange(12, at::kFloat).view({3, 4});
  const Tensor y = at::ones({3, 4}) * 3;
  using Ints = std::vector<int64_t>;
  const auto op = [](const std::string& name, const auto&... args) { return peer().call_op(name, args...); };
  const auto tuple = [](auto&&... items) { return IValue(std::make_tuple(items...)); };
  const std::vector<std::pair<IValue, IValue>> cases = {
      {op("aten::add", x, y), at::add(x, y)},
      {op("aten::add", x, 2), at::add(x, 2)},
      {op("aten::add", x, 2.5), at::add(x, 2.5)},
      {op("aten::add", x, y, Kwargs{{"alpha", 3}}), at::add(x, y, 3)},
      {op("aten::add", x, 2, Kwargs{{"alpha", 3u}}), at::add(x, 2, 3)},
      {op("aten::add", Kwargs{{"input", x}, {"other", y}}), at::add(x, y)},
      {op("aten::add", 40, 2), 42},
      {op("aten::add", 40, 2.5f), 42.5},
      {op("aten::mul", 3.0, x), x * 3.0},  // one that libtorch has in TorchScript
      {op("aten::cat", std::vector<Tensor>{x, y}), at::cat({x, y})},
      {op("aten::cat", std::vector<Tensor>{x, y}, -1), at::cat({x, y}, -1)},
      {op("aten::cat", std::make_tuple(x, y), Kwargs{{"dim", 1}}), at::cat({x, y}, 1)},
      {op("aten::sum", x), at::sum(x)},
      {op("aten::sum", x, Ints{0, 1}), at::sum(x)},
      {op("aten::sum", x, std::vector<int>{1}, true), at::sum(x, {1}, true)},
      {op("aten::sum", x, 1), at::sum(x, {1})},
      {op("aten::sum", x, std::nullopt, Kwargs{{"dtype", at::kDouble}}), at::sum(x, at::kDouble)},
      {op("aten::max", x), at::max(x)},
      {op("aten::max", x, 1), tuple(std::get<0>(at::max(x, 1)), std::get<1>(at::max(x, 1)))},
      {op("aten::clamp", x, std::optional<double>(2), std::nullopt), at::clamp(x, 2.0)},
      {op("aten::clamp", x, Kwargs{{"max", 4}}), at::clamp_max(x, 4)},
      {op("aten::full", Ints{2, 2}, 7), at::full({2, 2}, 7)},
      {op("aten::full", Ints{2}, true), at::full({2}, true)},
      {op("aten::einsum", "ij,kj->ik", std::vector<Tensor>{x, y}), at::einsum("ij,kj->ik", {x, y})},
      {op("aten::split", x, 2), IValue(at::split(x, 2))},
      {op("aten::split", x, Ints{1, 2}), IValue(at::split_with_sizes(x, {1, 2}))},
      {op("aten::permute", x, Ints{1, 0}), x.t()},
      {op("aten::dropout", x, 0, false), x},  // int for float
      {op("aten::avg_pool2d", x.view({1, 3, 4}), 2), at::avg_pool2d(x.view({1, 3, 4}), 2)},
      {op("aten::zeros", Ints{2}, Kwargs{{"dtype", at::kLong}, {"device", "cpu"}}), at::zeros({2}, at::kLong)},
      {op("aten::index", x, std::vector<Tensor>{at::tensor({0L, 2L})}), x.index({at::tensor({0L, 2L})})},
      {op("aten::select", x, 0, at::scalar_tensor(2, at::kLong)),
       x.select(0, 2)},  // a tensor without dimensions for an int
      {op("aten::size", x), IValue(std::vector<int64_t>{3, 4})},
      {op("aten::upper", "abc"), "ABC"},
      {op("aten::append", Ints{1, 2}, 3), IValue(std::vector<int64_t>{1, 2, 3})},
      {op("aten::add_", x, 1), x + 1},                     // on the callee's copy
      {op("aten::add", x, y, Kwargs{{"out", x}}), x + y},  // the same
      {op("aten::_softmax", x, 1, false), at::softmax(x, 1)},
      {op("prim::min", 3, 2), 2},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_TRUE(same(cases[i].first, cases[i].second)) << "case " << i << ": " << cases[i].first;
  }
  EXPECT_TRUE(at::equal(x, at::arange(12, at::kFloat).view({3, 4})));
}

TEST_F(OperatorsTest, ComeAsFuturesAndAsReferences) {
  const Tensor x = at::ones({2, 2});
  EXPECT_TRUE(same(peer().async_op("aten::add", x, 1).get(), x + 1));
  RRef<IValue> sum = peer().remote_op("aten::add", x, 1);
  EXPECT_TRUE(same(peer().call_op("aten::mul", sum.to_here(), 2), (x + 1) * 2));
  RRef<IValue> wrong = peer().remote_op("aten::add", x, "one");
  EXPECT_CONTAINS(refusal([&] { wrong.to_here(); }), "aten::add.Tensor");
}

TEST_F(OperatorsTest, ErrorsSayWhatWouldFit) {
  const Tensor x = at::ones({2, 2});
  const std::vector<std::pair<std::function<void()>, std::vector<std::string>>> cases = {
      {[&] { peer().call_op("aten::adda", x, 1); }, {"no operator aten::adda", "did you mean", "aten::add"}},
      {[&] { peer().call_op("relu", x); }, {"no operator relu", "aten::relu"}},
      {[&] { peer().call_op("", x); }, {"no operator"}},
      {[&] { peer().call_op(std::string(100'000, 'x')); }, {"no operator xxx"}},
      {[&] { peer().call_op("aten::format", "{}", 1); }, {"no operator aten::format"}},
      {[&] { peer().call_op("aten::relu", x, 1); }, {"aten::relu(Tensor self) -> Tensor", "too many"}},
      {[&] { peer().call_op("aten::relu"); }, {"'self' is missing"}},
      {[&] { peer().call_op("aten::relu", 1); }, {"(int)", "'self' must be a Tensor, not 1"}},
      {[&] { peer().call_op("aten::add", x, "one"); },
       {"(Tensor, str)", "aten::add.Tensor(", "aten::add.Scalar(", "not a str"}},
      {[&] {
         peer().call_op("aten::add", x, 1, Kwargs{{"beta", 1}});
       },
       {"no argument 'beta'"}},
      {[&] {
         peer().call_op("aten::add", x, 1, Kwargs{{"other", 1}});
       },
       {"'other' is given twice"}},
      {[&] {
         peer().call_op("aten::zeros", std::vector<int>{2}, Kwargs{{"dtype", 200}});
       },
       {"'dtype'", "200"}},
      {[&] { peer().call_op("aten::append", std::vector<int>{1}, "x"); }, {"aten::append", "'el'"}},
      {[&] { peer().call_op("aten::view", x, std::vector<int>{3}); }, {"shape '[3]' is invalid"}},
  };
  for (const auto& [run, parts] : cases) {
    const std::string text = refusal(run);
    for (const std::string& part : parts) EXPECT_CONTAINS(text, part);
    EXPECT_LT(text.size(), 20'000u);
    EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
  }
}

TEST_F(OperatorsTest, ThatReachBeyondTheirArgumentsAreRefusedUnlessNamed) {
  const Tensor x = at::ones({2, 2});
  for (const auto& [name, why] : std::vector<std::pair<std::string, std::string>>{
           {"aten::from_file", "beyond"},
           {"aten::save", "beyond"},
           {"aten::manual_seed", "beyond"},
           {"aten::set_grad_enabled", "beyond"},
           {"aten::_log_softmax", "check"},
           {"aten::_sparse_coo_tensor_unsafe", "check"},
           {"aten::unsafe_split", "check"},
           {"quantized::add", "namespace"},
       }) {
    const std::string text = refusal([&] { peer().call_op(name, x); });
    EXPECT_CONTAINS(text, name + " is not run for others");
    EXPECT_CONTAINS(text, why);
    EXPECT_CONTAINS(text, "allowed_operators");
  }
  // The other worker allows some by name: see above. This one does not.
  EXPECT_CONTAINS(refusal([&] { worker().self().call_op("prim::min", 3, 2); }), "namespace");
  EXPECT_CONTAINS(refusal([&] { worker().self().call_op("aten::_softmax", x, 1, false); }), "check");
}

TEST(OperatorOptions, AreChecked) {
  for (const char* name : {"", "add", "::add", "aten::"}) {
    Options options;
    options.allowed_operators = {name};
    EXPECT_CONTAINS(expect_throw<InvalidArgument>([&] { validate(options); }).what(), "allowed_operators") << name;
  }
}

// ---- values

IValue echo(IValue value) { return value; }

const char* const kTypes = R"(
class Color(Enum):
    red = 1
    blue = 2

class Point(NamedTuple):
    x: float
    name: Optional[str]

class Leaf:
    def __init__(self, value: int):
        self.value = value

class Node:
    value: int
    next: Optional[Leaf]
    def __init__(self, value: int):
        self.value = value
        self.next = None
    def same(self, other: Node) -> bool:
        return self.value == other.value

def node(value: int) -> Node:
    head = Node(value)
    head.next = Leaf(value + 1)
    return head

def blue() -> Color:
    return Color.blue

def point(x: float) -> Point:
    return Point(x, None)

def sum_of(head: Node) -> int:
    total = head.value
    next = head.next
    if next is not None:
        total += next.value
    return total

def is_blue(color: Color) -> bool:
    return color == Color.blue
)";

class IValueTest : public OperatorsTest {
 protected:
  static void SetUpTestSuite() {
    OperatorsTest::SetUpTestSuite();
    for (int rank = 0; rank < 2; ++rank) (*job_)[rank].load_script(kTypes);
  }
  static IValue there_and_back(const IValue& value) { return peer().call<echo>(value); }

  // One of each kind, with a tensor.
  static std::vector<IValue> examples() {
    c10::impl::GenericList generic(c10::AnyType::get());
    generic.push_back(1);
    generic.push_back("two");
    generic.push_back(at::ones({2}));
    c10::impl::GenericDict dict(c10::StringType::get(), c10::ListType::create(c10::FloatType::get()));
    dict.insert("a", std::vector<double>{1, 2});
    dict.insert("b", std::vector<double>{});
    c10::impl::GenericDict by_number(c10::IntType::get(), c10::TensorType::get());
    by_number.insert(7, at::arange(3));
    return {IValue(),
            true,
            -5,
            INT64_MAX,
            2.5,
            INFINITY,
            c10::complex<double>(1, -2),
            "text",
            std::string("\0\xff", 2),
            at::arange(6).view({2, 3}),
            std::vector<int64_t>{1, 2, 3},
            std::vector<double>{},
            c10::List<bool>({true, false}),
            std::vector<std::string>{"x"},
            to_ivalue(std::vector<std::vector<int>>{{1}, {}}),
            to_ivalue(std::vector<std::optional<Tensor>>{std::nullopt, at::ones({1})}),
            generic,
            dict,
            by_number,
            std::make_tuple(1, at::zeros({2}), std::string("x")),
            c10::ivalue::Tuple::create(std::vector<IValue>{}),
            c10::Device("cpu"),
            c10::Device("cuda:3"),
            worker().self().call_script("node", 1),
            worker().self().call_script("blue"),
            worker().self().call_script("point", 2.5)};
  }
};

TEST_F(IValueTest, ArriveAsTheyWere) {
  for (const IValue& value : examples()) {
    const IValue back = there_and_back(value);
    if (value.isObject()) {
      EXPECT_EQ(back.toObjectRef().getAttr("value").toInt(), 1);
      EXPECT_EQ(back.toObjectRef().getAttr("next").toObjectRef().getAttr("value").toInt(), 2);
      EXPECT_EQ(back.toObjectRef().type()->name()->qualifiedName(), "__torch__.Node");
    } else if (value.isGenericDict()) {
      const auto a = value.toGenericDict(), b = back.toGenericDict();
      EXPECT_EQ(*a.keyType(), *b.keyType());
      EXPECT_EQ(*a.valueType(), *b.valueType());
      ASSERT_EQ(a.size(), b.size());
      for (const auto& entry : a) EXPECT_TRUE(same(entry.value(), b.at(entry.key())));
    } else {
      EXPECT_TRUE(same(value, back)) << value << " came back as " << back;
      if (!value.isTensor()) {
        EXPECT_EQ(value.type()->repr_str(), back.type()->repr_str());
      }
    }
  }
  EXPECT_FALSE(there_and_back(at::Tensor()).toTensor().defined());
  // They are what the functions of the other worker take.
  EXPECT_EQ(peer().call_script("sum_of", worker().self().call_script("node", 20)).toInt(), 41);
  EXPECT_TRUE(peer().call_script("is_blue", worker().self().call_script("blue")).toBool());
}

TEST_F(IValueTest, ThatCannotTravelAreRefused) {
  const auto refused = [](const IValue& value) {
    return std::string(expect_throw<InvalidArgument>([&] { there_and_back(value); }).what());
  };
  EXPECT_CONTAINS(refused(at::Storage()), "Storage is not sent");
  EXPECT_CONTAINS(refused(c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get())), "Future is not sent");
  IValue deep(1);
  for (int i = 0; i < 100; ++i) deep = c10::ivalue::Tuple::create(std::vector<IValue>{deep});
  refused(deep);
  c10::impl::GenericList itself(c10::AnyType::get());
  itself.push_back(itself);
  refused(itself);
  itself.clear();
}

TEST_F(IValueTest, OfClassesThatAreNotKnownThereSaySo) {
  worker().load_script("class OnlyHere:\n    def __init__(self):\n        self.n = 1\n");
  const IValue object = worker().self().call_script("OnlyHere");
  EXPECT_CONTAINS(expect_throw<Corrupt>([&] { there_and_back(object); }).what(), "no class __torch__.OnlyHere here");
}

// ---- bytes that nobody in their right mind would send

class HostileIValueTest : public IValueTest {
 protected:
  // The call of echo with that value, as it goes out.
  static std::shared_ptr<Message> message_of(const IValue& value) {
    Host& host = worker().host();
    return rpc_detail::call_message(*host.peer_state(host.self()), kCall, Registered<echo>::entry,
                                    static_cast<std::tuple<IValue>*>(nullptr), value);
  }
  // "" if it decodes.
  static std::string decode(const Message& message, size_t begin, IValue& out) {
    Host& host = worker().host();
    ReceiveContext context(host, host.self(), message);
    wire::Reader reader(ByteView(message.body).subspan(begin), message.attachments, &context);
    wire::decode(reader, out);
    reader.finish();
    return reader.error();
  }
  static size_t header_bytes(const Message& message) {
    wire::Reader reader(message);
    read_call_header(reader);
    return message.body.size() - reader.remaining();
  }
};

TEST_F(HostileIValueTest, AnyChangeOfTheBytesIsRefusedOrAnotherValue) {
  Random random(7);
  size_t refused = 0, accepted = 0;
  for (const IValue& value : examples()) {
    const std::shared_ptr<Message> message = message_of(value);
    const size_t begin = header_bytes(*message);
    IValue out;
    ASSERT_EQ(decode(*message, begin, out), "") << value;
    for (int i = 0; i < 2000; ++i) {
      Message changed = *message;
      changed.cargo = nullptr;
      const size_t bytes = changed.body.size() - begin;
      for (uint64_t changes = random.between(1, 3); changes > 0; --changes) {
        uint8_t& byte = changed.body[begin + random.below(bytes)];
        byte = random.chance(0.5) ? static_cast<uint8_t>(random.next())
                                  : static_cast<uint8_t>(byte + random.between(0, 2) - 1);
      }
      if (random.chance(0.1)) changed.body.resize(begin + random.below(bytes + 1));
      if (!decode(changed, begin, out).empty()) {
        ++refused;
        continue;
      }
      ++accepted;
      // It is a value like any other.
      if (!out.isObject()) out.type()->repr_str();
      (void)message_of(out);
    }
  }
  EXPECT_GT(refused, 10'000u);
  EXPECT_GT(accepted, 100u);
}

TEST_F(HostileIValueTest, NonsenseIsTold) {
  using Write = std::function<void(wire::Writer&)>;
  const auto array = [](wire::Writer& w, std::initializer_list<int64_t> numbers) {
    w.array_header(numbers.size());
    for (const int64_t number : numbers) w.integer(number);
  };
  const std::vector<std::pair<std::string, Write>> cases = {
      {"no kind", [&](auto& w) { array(w, {}); }},
      {"unknown kind",
       [&](auto& w) {
         array(w, {99, 1, 2});
       }},
      {"number of parts",
       [&](auto& w) {
         array(w, {1, 1});
       }},
      {"unknown type", [&](auto& w) { w.array_header(3), w.integer(2), w.integer(77), w.array_header(0); }},
      {"must be int",
       [&](auto& w) { w.array_header(3), w.integer(2), w.integer(3), w.array_header(1), w.string("x"); }},
      {"twice",
       [&](auto& w) {
         w.array_header(4), w.integer(3), w.integer(3), w.integer(3), w.map_header(2);
         for (int i = 0; i < 4; ++i) w.integer(5);
       }},
      {"key",  // a list as the key of a dict
       [&](auto& w) {
         w.array_header(4), w.integer(3), w.array_header(2), w.integer(17), w.integer(3), w.integer(3), w.map_header(0);
       }},
      {"unknown device",
       [&](auto& w) {
         array(w, {6, 200, 0});
       }},
      {"unknown device",
       [&](auto& w) {
         array(w, {6, 2, 300});
       }},
      {"unknown device",
       [&](auto& w) {
         array(w, {6, 0, 1});
       }},
      {"no class", [&](auto& w) { w.array_header(3), w.integer(7), w.string("__torch__.No"), w.map_header(0); }},
      {"no class", [&](auto& w) { w.array_header(3), w.integer(7), w.string(""), w.map_header(0); }},
      {"no class", [&](auto& w) { w.array_header(3), w.integer(7), w.string("__torch__.Point"), w.map_header(0); }},
      {"other attributes",
       [&](auto& w) { w.array_header(3), w.integer(7), w.string("__torch__.Node"), w.map_header(0); }},
      {"other attributes",
       [&](auto& w) {
         w.array_header(3), w.integer(7), w.string("__torch__.Node"), w.map_header(2);
         for (int i = 0; i < 2; ++i) w.string("value"), w.integer(1);
       }},
      {"must be int",
       [&](auto& w) {
         w.array_header(3), w.integer(7), w.string("__torch__.Node"), w.map_header(2);
         w.string("next"), w.nil(), w.string("value"), w.nil();
       }},
      {"no such name", [&](auto& w) { w.array_header(3), w.integer(8), w.string("__torch__.Color"), w.string("x"); }},
      {"without names", [&](auto& w) { w.array_header(3), w.integer(5), w.integer(3), w.array_header(0); }},
      {"name of its own",
       [&](auto& w) {
         w.array_header(3), w.integer(5), w.array_header(5), w.integer(20), w.string("P"), w.array_header(2);
         w.string("x"), w.string("x"), w.integer(3), w.integer(3), w.array_header(2), w.integer(1), w.integer(2);
       }},
      {"did not come",
       [&](auto& w) {
         w.extension(1, Bytes{0, 0, 0, 9});
       }},
      {"deep",
       [&](auto& w) {
         for (int i = 0; i < 1000; ++i) w.array_header(2), w.integer(4), w.array_header(1);
       }},
      {"deep",
       [&](auto& w) {
         w.array_header(3), w.integer(2);
         for (int i = 0; i < 1000; ++i) w.array_header(2), w.integer(17);
       }},
  };
  for (const auto& [problem, write] : cases) {
    std::shared_ptr<Message> message = message_of(IValue());
    const size_t begin = header_bytes(*message);
    message->body.resize(begin);
    wire::Writer writer(*message);
    write(writer);
    IValue out;
    EXPECT_CONTAINS(decode(*message, begin, out), problem);
  }
}

}  // namespace
}  // namespace holdfast
