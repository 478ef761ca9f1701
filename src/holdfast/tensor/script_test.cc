// TorchScript on another worker: functions, classes, modules, and what their errors say.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/jit/api/module.h>

#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/tensor/script.h>

namespace holdfast {
namespace {

using at::Tensor;
using c10::IValue;
using test::expect_throw;
using torch::jit::Module;

const char* const kSource = R"(
def double(x: Tensor) -> Tensor:
    return x * 2

def scale(x: Tensor, k: float = 3.0, *, shift: int = 0) -> Tensor:
    return double(x) * k / 2 + shift

def describe(n: int, f: float, c: complex, b: bool, s: str, t: Tensor, o: Optional[int], l: List[int],
             d: Dict[str, List[float]], p: Tuple[int, str], v: Device) -> Dict[str, str]:
    return {"n": str(n), "f": str(f), "b": str(b), "s": s, "o": str(o), "l": str(l), "d": str(d["x"][1]),
            "p": p[1], "t": str(t.dim()), "c": str(c), "v": str(v.type)}

class Range(NamedTuple):
    low: int
    high: int

def widen(r: Range, by: int) -> Range:
    return Range(r.low - by, r.high + by)

class Counter:
    def __init__(self, n: int):
        self.n = n
        self.seen: List[int] = []
    def add(self, k: int) -> int:
        if k < 0:
            raise ValueError("cannot count down")
        self.n += k
        self.seen.append(k)
        return self.n

def count_twice(c: Counter, k: int) -> Counter:
    c.add(k)
    c.add(k)
    return c

def fails(x: Tensor) -> Tensor:
    y = x + 1
    return y.view([17])

def halves(x: Tensor) -> Tensor:
    return x.to(torch.float16)

def grad_off(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return x * 2
)";

Module make_net() {
  Module net("Net");
  net.register_parameter("weight", at::ones({2}) * 5, false);
  net.register_attribute("calls", c10::IntType::get(), 0);
  net.define(R"(
def forward(self, x):
    self.calls += 1
    return x * self.weight

def count(self) -> int:
    return self.calls
)");
  return net;
}

Module net_there() { return make_net(); }

class ScriptTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    job_ = std::make_unique<test::TestJob>(2);
    for (int rank = 0; rank < 2; ++rank) (*job_)[rank].load_script(kSource);
  }
  static void TearDownTestSuite() {
    job_->shutdown();
    job_.reset();
  }
  static Worker& here() { return (*job_)[0]; }
  static Worker& there() { return (*job_)[1]; }
  static Peer peer() { return here().peer(1); }
  static std::string refusal(const std::function<void()>& run) { return expect_throw<RemoteError>(run).what(); }

  static std::unique_ptr<test::TestJob> job_;
};
std::unique_ptr<test::TestJob> ScriptTest::job_;

TEST_F(ScriptTest, FunctionsAreCalledByName) {
  const Tensor x = at::ones({2});
  EXPECT_TRUE(at::allclose(peer().call_script("double", x).toTensor(), x * 2));
  EXPECT_TRUE(at::allclose(peer().call_script("__torch__.double", x).toTensor(), x * 2));
  EXPECT_TRUE(at::allclose(peer().call_script("scale", x).toTensor(), x * 3));
  EXPECT_TRUE(at::allclose(peer().call_script("scale", x, 4, Kwargs{{"shift", 1}}).toTensor(), x * 5));
  EXPECT_TRUE(at::allclose(peer().async_script("scale", Kwargs{{"k", 2}, {"x", x}}).get().toTensor(), x * 2));
  RRef<IValue> kept = peer().remote_script("double", x);
  EXPECT_TRUE(at::allclose(kept.to_here().toTensor(), x * 2));
  EXPECT_EQ(peer().call_script("halves", x).toTensor().scalar_type(), at::kHalf);
}

TEST_F(ScriptTest, EveryKindOfValueIsTaken) {
  c10::Dict<std::string, std::vector<double>> dict;
  dict.insert("x", std::vector<double>{1, 2.5});
  const IValue result =
      peer().call_script("describe", 1, 2.5, std::complex<double>(1, 2), true, "text", at::ones({2, 2}), std::nullopt,
                         std::vector<int>{1, 2}, dict, std::make_tuple(7, std::string("pair")), c10::Device("cpu"));
  const std::vector<std::pair<std::string, std::string>> expected = {
      {"n", "1"},      {"f", "2.5"}, {"b", "True"}, {"s", "text"}, {"o", "None"},
      {"l", "[1, 2]"}, {"d", "2.5"}, {"p", "pair"}, {"t", "2"},    {"v", "cpu"}};
  for (const auto& [key, text] : expected) EXPECT_EQ(result.toGenericDict().at(key).toStringRef(), text) << key;

  const IValue range = here().self().call_script(
      "widen",
      peer().call_script(
          "widen",
          [] {
            return c10::ivalue::Tuple::createNamed(
                {IValue(1), IValue(2)}, c10::TupleType::createNamed(c10::QualifiedName("__torch__.Range"),
                                                                    std::vector<std::string>{"low", "high"},
                                                                    {c10::IntType::get(), c10::IntType::get()}));
          }(),
          10),
      1);
  EXPECT_EQ(range.toTuple()->elements()[0].toInt(), -10);
  EXPECT_EQ(range.type()->repr_str(), "__torch__.Range");
}

TEST_F(ScriptTest, ObjectsOfClassesTravelOrStay) {
  // By value.
  const IValue counter = here().self().call_script("Counter", 40);
  const IValue counted = peer().call_script("count_twice", counter, 1);
  EXPECT_EQ(counted.toObjectRef().getAttr("n").toInt(), 42);
  EXPECT_EQ(counted.toObjectRef().getAttr("seen").toIntVector(), (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(counter.toObjectRef().getAttr("n").toInt(), 40);
  EXPECT_EQ(peer().call_script("Counter.add", counter, 5).toInt(), 45);
  // By reference.
  RRef<IValue> remote = peer().remote_script("Counter", 1);
  EXPECT_EQ(call_method(remote, "add", 2).toInt(), 3);
  EXPECT_EQ(async_method(remote, "add", Kwargs{{"k", 3}}).get().toInt(), 6);
  EXPECT_EQ(remote_method(remote, "add", 4).to_here().toInt(), 10);
  EXPECT_EQ(remote.to_here().toObjectRef().getAttr("n").toInt(), 10);
  EXPECT_CONTAINS(refusal([&] { call_method(remote, "subtract", 1); }), "it has: __init__, add");
  EXPECT_CONTAINS(refusal([&] { call_method(peer().remote_script("double", at::ones({1})), "add"); }), "no methods");
}

TEST_F(ScriptTest, ModulesStayWhereTheyAre) {
  static_assert(!wire::Encodable<Module>, "to_here() of a module must not compile");
  RRef<Module> net = peer().remote<net_there>();
  const Tensor x = at::ones({2});
  EXPECT_TRUE(at::allclose(call_method(net, "forward", x).toTensor(), x * 5));
  EXPECT_TRUE(at::allclose(remote_method(net, "forward", x).to_here().toTensor(), x * 5));
  EXPECT_EQ(async_method(net, "count").get().toInt(), 2);
  EXPECT_CONTAINS(refusal([&] { call_method(net, "backward", x); }), "no method backward; it has: forward, count");
  EXPECT_CONTAINS(refusal([&] { call_method(net, "forward"); }), "'x' is missing");
  const std::string text =
      expect_throw<InvalidArgument>([&] { peer().call_script("double", make_net()._ivalue()); }).what();
  EXPECT_CONTAINS(text, "a ScriptModule is not sent; call its methods where it is");
}

TEST_F(ScriptTest, SavedModulesAndSourcesAreLoadedFromFiles) {
  const auto folder = std::filesystem::temp_directory_path() / ("holdfast_script_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  make_net().save((folder / "net.pt").string());
  std::ofstream(folder / "more.py") << "def four(x: Tensor) -> Tensor:\n    return double(double(x))\n";
  std::ofstream(folder / "broken.pt") << "PK and then nothing of the kind\n";

  there().load_script((folder / "net.pt").string());
  there().load_script((folder / "net.pt").string(), "other");
  there().load_script((folder / "more.py").string());
  const Tensor x = at::ones({2});
  EXPECT_TRUE(at::allclose(peer().call_script("four", x).toTensor(), x * 4));
  EXPECT_TRUE(at::allclose(peer().call_script("net.forward", x).toTensor(), x * 5));
  RRef<IValue> net = peer().remote_script("net");
  EXPECT_TRUE(at::allclose(call_method(net, "forward", x).toTensor(), x * 5));
  EXPECT_EQ(peer().call_script("net.count").toInt(), 2);
  EXPECT_EQ(peer().call_script("other.count").toInt(), 0);
  EXPECT_CONTAINS(refusal([&] { net.to_here(); }), "a ScriptModule is not sent");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("net.train"); }), "net.forward, net.count");

  const auto wrong = [](const std::string& path, const std::string& name = "") {
    return std::string(expect_throw<InvalidArgument>([&] { there().load_script(path, name); }).what());
  };
  EXPECT_CONTAINS(wrong((folder / "net.pt").string()), "net is loaded already");
  EXPECT_CONTAINS(wrong((folder / "broken.pt").string()), "does not load");
  EXPECT_CONTAINS(wrong((folder / "nothing.pt").string()), "cannot be read");
  EXPECT_CONTAINS(wrong((folder / "more.py").string(), "name"), "names of its own");
  std::filesystem::remove_all(folder);
}

TEST_F(ScriptTest, ErrorsSayWhereAndWhat) {
  const Tensor x = at::ones({2});
  EXPECT_CONTAINS(refusal([&] { peer().call_script("treble", x); }), "no script treble here; loaded are: ");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("treble", x); }), "count_twice, describe, double");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("Range", 1, 2); }), "no script Range");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("double"); }),
                  "double(Tensor x) -> Tensor: argument 'x' is missing");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("double", "x"); }), "argument 'x' must be a Tensor, not a str");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("scale", x, Kwargs{{"q", 1}}); }), "no argument 'q'");

  const RemoteError failed = expect_throw<RemoteError>([&] { peer().call_script("fails", x); });
  EXPECT_CONTAINS(failed.what(), "shape '[17]' is invalid");
  EXPECT_CONTAINS(failed.what(), "line 38");
  EXPECT_CONTAINS(failed.what(), "y.view([17])");
  const RemoteError raised = expect_throw<RemoteError>(
      [&] { peer().call_script("Counter.add", here().self().call_script("Counter", 1), -1); });
  EXPECT_CONTAINS(raised.what(), "cannot count down");
  EXPECT_CONTAINS(raised.what(), "line 26");
  EXPECT_EQ(raised.worker(), "worker1");
}

TEST_F(ScriptTest, GradModeOfTheThreadStays) {
  for (int i = 0; i < 20; ++i) {
    const Tensor x = at::ones({2}).set_requires_grad(true);
    EXPECT_FALSE(peer().call_script("grad_off", x).toTensor().requires_grad());
    EXPECT_TRUE(peer().call_script("double", x).toTensor().requires_grad());
  }
}

TEST_F(ScriptTest, SourceThatDoesNotCompileLeavesNothing) {
  for (const auto& [source, problem] : std::vector<std::pair<std::string, std::string>>{
           {"def f(x: Tensor) -> Tensor:\n    return unknown(x)\n", "unknown"},
           {"def g(x: Tensor) -> Tensor:\n    return x\ndef f(x: Tensor) -> Tensor:\n    return 1\n", "Tensor"},
           {"def f(x\n", "expected"},
           {"import os\ndef f(x: Tensor) -> Tensor:\n    return x\n", "expected"},
           {"class A(B):\n    def __init__(self):\n        pass\n", "derived from B"},
           {"class A(Enum):\n    x = [1]\n", "number or a string"},
           {"class A(NamedTuple):\n    x: int = 1\n", "a name and a type"},
           {"class A:\n    next: Optional[A]\n    def __init__(self):\n        self.next = None\n", "its own class"},
           {"class A:\n    def __init__(self, other: List[A]):\n        self.other = other\n", "its own class"},
           {"class A:\n    x: int = 1\n    def __init__(self):\n        pass\n", "__init__"},
           {"def double(x: Tensor) -> Tensor:\n    return x\n", "double is loaded already"},
           {"class Counter(NamedTuple):\n    x: int\n", "Counter is loaded already"},
       }) {
    const std::string text = expect_throw<InvalidArgument>([&] { there().load_script(source); }).what();
    EXPECT_CONTAINS(text, problem);
  }
  EXPECT_CONTAINS(refusal([&] { peer().call_script("f", at::ones({1})); }), "no script f");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("g", at::ones({1})); }), "no script g");
  EXPECT_CONTAINS(refusal([&] { peer().call_script("A"); }), "no script A");
  there().load_script("def g(x: Tensor) -> Tensor:\n    return double(x)\n");
  EXPECT_NO_THROW(peer().call_script("g", at::ones({1})));
  // Each worker has its own.
  EXPECT_CONTAINS(refusal([&] { here().self().call_script("g", at::ones({1})); }), "no script g");
}

}  // namespace
}  // namespace holdfast
