// Large tensors between processes of one host: copied into shared memory, or lent as they are; and what is left when a
// process is killed or a connection cut.
#include <sys/mman.h>

#include <fstream>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/lendable.h>

namespace holdfast::lendable_test {
namespace {

using namespace test;

constexpr int64_t kCount = 4 << 20;  // floats: 16 MiB

// ---- at the other worker

std::vector<at::Tensor> kept;

double total(const at::Tensor& tensor) { return tensor.sum().item<double>(); }
double sum_of_sparse(const at::Tensor& tensor) { return total(tensor.to_dense()); }
double first(const at::Tensor& tensor) { return tensor.flatten()[0].item<double>(); }
double add_in_place(at::Tensor tensor) {
  tensor.add_(1);
  return total(tensor);
}
void keep(const at::Tensor& tensor) { kept.push_back(tensor); }
double sum_of_kept(size_t i) { return total(kept.at(i)); }
void drop_kept() { kept.clear(); }
at::Tensor give_back(size_t i) { return kept.at(i); }
at::Tensor make(double value) { return at::full({kCount}, value); }
// What this process has mapped of areas.
uint64_t mapped_areas() {
  std::ifstream maps("/proc/self/maps");
  uint64_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("memfd:holdfast-area") != std::string::npos ? 1 : 0;
  return count;
}

int lend_to_me() {
  Worker worker(Options::from_env());
  worker.shutdown(600s);
  return 0;
}
const Role lend_to_me_role("lend_to_me", lend_to_me);

struct OtherProcess {
  explicit OtherProcess(Options options = {})
      : process("lend_to_me", coordinator.options(1)), worker(mine(std::move(options))), peer(worker.peer(1)) {}
  Options mine(Options options) const {
    const Options base = coordinator.options(0);
    options.rank = base.rank;
    options.world_size = base.world_size;
    options.coordinator = base.coordinator;
    options.job = base.job;
    return options;
  }
  TestCoordinator coordinator{2, 600s};
  TestProcess process;
  Worker worker;
  Peer peer;
};

template <class Condition>
bool soon(Condition&& condition) {
  const Time give_up = steady_now() + 60s;
  while (!condition() && steady_now() < give_up) std::this_thread::sleep_for(10ms);
  return condition();
}

TEST(LendableTest, LargeTensorsArriveAndStayAsTheyWere) {
  OtherProcess other;
  for (int i = 0; i < 8; ++i) other.peer.call<keep>(at::full({kCount}, i));
  for (int i = 0; i < 8; ++i) EXPECT_EQ(other.peer.call<sum_of_kept>(static_cast<size_t>(i)), double{kCount} * i);
  EXPECT_EQ(other.worker.stats().shared_memory, 1u);
  EXPECT_TRUE(at::equal(other.peer.call<make>(3.0), at::full({kCount}, 3.0)));
  EXPECT_TRUE(at::equal(other.peer.call<give_back>(size_t{7}), at::full({kCount}, 7.0)));
  EXPECT_GT(other.peer.call<mapped_areas>(), 0u);
  other.peer.call<drop_kept>();
  EXPECT_TRUE(soon([&] { return other.peer.call<mapped_areas>() == 0 && mapped_areas() == 0; }))
      << "idle buffers are given up on both sides";
  other.worker.shutdown(kPatience);
}

TEST(LendableTest, ALentTensorIsNotCopied) {
  OtherProcess other;
  const at::Tensor tensor = empty_lendable({kCount}).fill_(1);
  EXPECT_EQ(other.peer.call<total>(tensor), double{kCount});
  other.peer.call<keep>(tensor);
  EXPECT_EQ(loans(tensor), 1u);
  tensor.fill_(2);
  EXPECT_EQ(other.peer.call<sum_of_kept>(size_t{0}), 2.0 * kCount) << "it is this memory that the other worker sees";
  other.peer.call<drop_kept>();
  EXPECT_TRUE(soon([&] { return loans(tensor) == 0; }));
  other.worker.shutdown(kPatience);
}

TEST(LendableTest, WhatTheReceiverWritesIsItsOwn) {
  OtherProcess other;
  const at::Tensor lent = lendable(at::ones({kCount})), copied = at::ones({kCount});
  for (const at::Tensor& tensor : {lent, copied}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.peer.call<add_in_place>(tensor), 2.0 * kCount);
    EXPECT_EQ(total(tensor), double{kCount});
  }
  other.worker.shutdown(kPatience);
}

TEST(LendableTest, ViewsOfALentTensor) {
  OtherProcess other;
  const at::Tensor table = empty_lendable({1024, 1024}, at::kDouble);
  table.copy_(at::arange(1024 * 1024).reshape({1024, 1024}));
  for (const at::Tensor& view :
       {table.slice(0, 512, 1024), table.slice(0, 1, 900), table.t(), table.slice(1, 3, 700)}) {
    EXPECT_EQ(other.peer.call<total>(view), total(view));
    EXPECT_EQ(other.peer.call<first>(view), first(view));
  }
  other.worker.shutdown(kPatience);
}

TEST(LendableTest, BoolsAndIndicesAreCheckedInACopy) {
  OtherProcess other;
  const at::Tensor bools = empty_lendable({kCount}, at::kBool).fill_(true);
  EXPECT_EQ(other.peer.call<total>(bools), double{kCount});
  const int64_t count = 100'000;
  const at::Tensor indices = lendable(at::arange(count).reshape({1, count})), values = lendable(at::ones({count}));
  EXPECT_EQ(other.peer.call<sum_of_sparse>(at::sparse_coo_tensor(indices, values, {count})), double{count});
  EXPECT_TRUE(soon([&] { return loans(bools) == 0 && loans(indices) == 0; }));
  other.worker.shutdown(kPatience);
}

TEST(LendableTest, GradientsFlowThroughALentTensor) {
  const at::Tensor leaf = lendable(at::ones({kCount}).set_requires_grad(true));
  EXPECT_TRUE(leaf.requires_grad());
  EXPECT_TRUE(leaf.is_leaf());
  EXPECT_EQ(empty_lendable({2, 3}, at::kLong).sizes(), (std::vector<int64_t>{2, 3}));
}

TEST(LendableTest, WhatCannotBe) {
  EXPECT_THROW(empty_lendable({-1}), InvalidArgument);
  EXPECT_THROW(empty_lendable({INT64_MAX, 2}), InvalidArgument);
  EXPECT_THROW(empty_lendable({2}, at::TensorOptions(at::kQInt8)), InvalidArgument);
  EXPECT_THROW(empty_lendable({2}, at::TensorOptions().device(at::kMeta)), InvalidArgument);
  EXPECT_THROW(empty_lendable({int64_t{1} << 50}), Overloaded);
  EXPECT_EQ(empty_lendable({0}).numel(), 0);
  EXPECT_EQ(loans(at::ones({2})), 0u);
  EXPECT_EQ(loans(at::Tensor()), 0u);
}

TEST(LendableTest, AKilledReceiverLeavesNothingBehind) {
  OtherProcess other;
  const at::Tensor lent = lendable(at::ones({kCount}));
  other.peer.call<keep>(lent);
  other.peer.call<keep>(at::ones({kCount}));
  EXPECT_EQ(loans(lent), 1u);
  other.process.signal(SIGKILL);
  other.process.wait();
  EXPECT_TRUE(soon([&] { return loans(lent) == 0; }));
  EXPECT_TRUE(soon([] { return mapped_areas() == 1; })) << "the lent tensor itself";
}

TEST(LendableTest, WhatAKilledSenderSentStays) {
  OtherProcess other;
  other.peer.call<keep>(at::full({kCount}, 3));
  at::Tensor received = other.peer.call<give_back>(size_t{0});
  other.process.signal(SIGKILL);
  other.process.wait();
  EXPECT_EQ(total(received), 3.0 * kCount);
  received.add_(1);
  EXPECT_EQ(total(received), 4.0 * kCount);
  EXPECT_GE(mapped_areas(), 1u);
  received.reset();
  EXPECT_TRUE(soon([] { return mapped_areas() == 0; }));
}

TEST(LendableTest, NothingChangesUnderTheReceiverWhenConnectionsAreCut) {
  Options options;
  options.faults.cut = 0.05;
  options.faults.seed = 3;
  OtherProcess other(options);
  for (int i = 0; i < 100; ++i) other.peer.call<keep>(at::full({kCount / 16}, i));
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(other.peer.call<sum_of_kept>(static_cast<size_t>(i)), double{kCount / 16} * i);
  other.worker.shutdown(kPatience);
}

}  // namespace
}  // namespace holdfast::lendable_test
