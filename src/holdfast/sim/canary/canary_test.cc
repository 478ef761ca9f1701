// Canaries: does the simulator catch what it is there for? This program contains the protocol code compiled with
// deliberate defects (base/canary.h). Each is switched on by itself; the worlds of the first seeds must find it. With
// none, they must find nothing.
//
// A defect may also end the program, by an assertion or worse: so worlds run in a child process, and the world in which
// that ends counts as one that caught it.
#include <holdfast/base/canary.h>
#include <holdfast/sim/backward_world.h>
#include <holdfast/sim/rref_world.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

namespace holdfast {

// Found by gtest, for its messages.
void PrintTo(const CanaryInfo& info, std::ostream* out) { *out << info.name; }

namespace sim {
namespace {

constexpr uint64_t kWorlds = 300;       // for how often
constexpr uint64_t kWorldsMax = 20000;  // for whether at all

// From this one on they are caught in worlds of backward passes, before it in worlds of references.
constexpr Canary kFirstOfPasses = Canary::reached_not_told;

// What the child says of each world.
struct Verdict {
  bool caught = false;
  char what[200] = {};
};

// A child process that runs the worlds from `seed` on, with that canary, and writes a Verdict for each until nobody
// reads them any more.
class Child {
 public:
  Child(Canary canary, uint64_t seed) {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      run(canary, seed, ends[1]);
      _exit(0);
    }
    close(ends[1]);
    from_ = ends[0];
  }
  ~Child() {
    close(from_);
    int status = 0;
    waitpid(pid_, &status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False: the child has ended.
  bool read(Verdict& verdict) const { return ::read(from_, &verdict, sizeof verdict) == sizeof verdict; }

 private:
  static void run(Canary canary, uint64_t seed, int to) {
    signal(SIGPIPE, SIG_DFL);
    active_canary = canary;
    for (;; ++seed) {
      const std::vector<std::string> violations =
          canary >= kFirstOfPasses ? run_backward_world(seed).violations : run_rref_world(seed).violations;
      Verdict verdict{.caught = !violations.empty()};
      if (verdict.caught) std::snprintf(verdict.what, sizeof verdict.what, "%s", violations[0].c_str());
      if (write(to, &verdict, sizeof verdict) != sizeof verdict) return;
    }
  }

  pid_t pid_ = -1;
  int from_ = -1;
};

struct Catch {
  uint64_t worlds = 0;
  uint64_t caught = 0;
  uint64_t first = 0;
  std::string what;
};

Catch run_worlds(Canary canary) {
  Catch result;
  const auto enough = [&] { return result.worlds >= kWorldsMax || (result.worlds >= kWorlds && result.caught > 0); };
  while (!enough()) {
    const Child child(canary, result.worlds + 1);
    Verdict verdict;
    bool there = true;
    while (there && !enough()) {
      there = child.read(verdict);
      if (!there) verdict = {.caught = true, .what = "it ended the program"};
      ++result.worlds;
      if (!verdict.caught || result.caught++ > 0) continue;
      result.first = result.worlds;
      result.what = verdict.what;
    }
  }
  return result;
}

class CanaryTest : public testing::TestWithParam<CanaryInfo> {};

TEST_P(CanaryTest, IsCaught) {
  const Catch result = run_worlds(GetParam().canary);
  std::printf("%s (%s): caught in %llu of %llu worlds, first in world %llu: %s\n", GetParam().name, GetParam().text,
              static_cast<unsigned long long>(result.caught), static_cast<unsigned long long>(result.worlds),
              static_cast<unsigned long long>(result.first), result.what.c_str());
  EXPECT_GT(result.caught, 0u) << "no world of " << result.worlds << " noticed";
}

INSTANTIATE_TEST_SUITE_P(All, CanaryTest, testing::ValuesIn(kCanaries),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(NoCanary, NothingIsFound) {
  for (uint64_t seed = 1; seed <= kWorlds; ++seed) {
    const WorldReport report = run_rref_world(seed);
    ASSERT_TRUE(report.violations.empty()) << describe_violations(report);
  }
}

TEST(NoCanary, ThereAreAtLeastTwelve) { EXPECT_GE(std::size(kCanaries), 12u); }

}  // namespace
}  // namespace sim
}  // namespace holdfast
