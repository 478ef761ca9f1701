// Distributed autograd with libtorch's graphs in simulated worlds: random programs, each message a call, on a network
// that delays, reorders and cuts. One thread, and nothing may block. The same seed makes the same history. It stands
// here because no layer may know the simulator.
#include <holdfast/autograd/programs_test_support.h>
#include <holdfast/autograd/workers_mover_test_support.h>
#include <holdfast/sim/world.h>

namespace holdfast::autograd {
namespace {

using namespace std::chrono_literals;

constexpr uint32_t kWorkers = 4;
constexpr uint64_t kWorlds = 20;
constexpr uint64_t kPrograms = 25;  // in each world

class TorchWorld : public testing::TestWithParam<Mode> {
 protected:
  void start(uint64_t seed) {
    world_ =
        std::make_unique<sim::World>(sim::WorldOptions{.seed = seed, .workers = kWorkers, .network = {}, .link = {}});
    ASSERT_TRUE(world_->join());
    hosts_.clear();
    for (uint32_t rank = 0; rank < kWorkers; ++rank) hosts_.push_back(&world_->worker(rank));
  }

  void wait(const Future<void>& done) {
    // Links are cut while messages are under way; they are made again, and lose nothing.
    if (world_->random().below(8) == 0) {
      const auto a = static_cast<uint32_t>(world_->random().below(kWorkers));
      world_->cut(a, (a + 1 + static_cast<uint32_t>(world_->random().below(kWorkers - 1))) % kWorkers);
    }
    ASSERT_TRUE(world_->run([&] { return done.ready(); }, 600s));
  }

  bool nothing_left() {
    return world_->run(
        [&] {
          return std::all_of(hosts_.begin(), hosts_.end(), [](Host* host) { return debug_info(*host) == DebugInfo{}; });
        },
        600s);
  }

  void run_program(uint64_t seed) {
    SCOPED_TRACE(seed);
    const bool all_used = GetParam() == Mode::fast || seed % 2 == 0;
    OneGraph one;
    const Outcome expected = run_locally(one, seed, all_used);
    RandomProgram program(seed, all_used);
    Context context(*hosts_[0]);
    WorkersMover mover(hosts_, context.id(), [this](const Future<void>& done) { wait(done); });
    const Future<void> done = context.async_backward(program.run(mover), {.mode = GetParam()});
    wait(done);
    done.get();
    for (size_t i = 0; i < program.leaves.size(); ++i) {
      expect_same(mover.gradient(program.leaves[i]), expected.gradients[i], 1e-10, "leaf " + std::to_string(i));
    }
    EXPECT_EQ(calls_of(program), expected.hook_calls);
  }

  std::unique_ptr<sim::World> world_;
  std::vector<Host*> hosts_;
};

TEST_P(TorchWorld, GivesTheGradientsOfOneGraph) {
  for (uint64_t seed = 1; seed <= kWorlds && !HasFailure(); ++seed) {
    start(seed);
    for (uint64_t i = 0; i < kPrograms && !HasFailure(); ++i) run_program(seed * kPrograms + i);
    EXPECT_TRUE(nothing_left());
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, TorchWorld, testing::Values(Mode::fast, Mode::smart),
                         [](const auto& info) { return info.param == Mode::fast ? "fast" : "smart"; });

}  // namespace
}  // namespace holdfast::autograd
