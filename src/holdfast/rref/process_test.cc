// Real processes: six workers share references at random while one after another is killed and replaced. At the end
// every table must be empty and the memory back.
#include <malloc.h>

#include <holdfast/base/random.h>
#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/rpc/rpc_test_support.h>
#include <holdfast/rref/rref.h>

namespace holdfast::rref_process_test {
namespace {

using namespace test;

constexpr int kWorkers = 6;  // ranks 1 to 6; rank 0 is this test
constexpr int kKills = test::kSanitizer ? 3 : 8;
constexpr size_t kStashMax = 24;

// Large enough to be seen in the heap, and it knows if it was overwritten.
struct Block {
  explicit Block(uint64_t seed) : words(16384, seed) { ++alive; }
  ~Block() { --alive; }
  Block(const Block&) = delete;
  uint64_t check() const {
    for (uint64_t word : words) {
      if (word != words[0]) std::abort();
    }
    return words[0];
  }
  std::vector<uint64_t> words;
  std::vector<RRef<Block>> others;
  void hold(const RRef<Block>& other) {
    if (others.size() < 4) others.push_back(other);
  }
  static inline std::atomic<int> alive{0};
};

// What one worker holds, in its own process.
struct Stash {
  std::mutex mutex;
  std::vector<RRef<Block>> references;
  std::atomic<bool> stopping{false};
  std::atomic<bool> stopped{false};
  std::atomic<uint64_t> done{0};

  void put(RRef<Block> reference) {
    RRef<Block> dropped;  // outside the lock
    std::lock_guard lock(mutex);
    if (references.size() >= kStashMax) std::swap(dropped, references[references.size() / 2]);
    references.push_back(std::move(reference));
  }
  RRef<Block> pick(Random& random) {
    std::lock_guard lock(mutex);
    return references.empty() ? RRef<Block>() : references[random.below(references.size())];
  }
  RRef<Block> take(Random& random) {
    std::lock_guard lock(mutex);
    if (references.empty()) return {};
    std::swap(references[random.below(references.size())], references.back());
    RRef<Block> last = std::move(references.back());
    references.pop_back();
    return last;
  }
};
Stash stash;

// What others call.
void give(const RRef<Block>& reference) { stash.put(reference); }
std::vector<RRef<Block>> lend() {
  Random random(stash.done);
  return {stash.pick(random), stash.pick(random)};
}
uint64_t stop_sharing() {
  stash.stopping = true;
  eventually([] { return stash.stopped.load(); });
  return stash.done;
}
void drop_all() {
  std::vector<RRef<Block>> dropped;
  std::lock_guard lock(stash.mutex);
  dropped.swap(stash.references);
}
struct Left {
  uint64_t operations = 0, objects = 0, forks = 0, references = 0, pending = 0, quarantined = 0;
  int64_t blocks = 0, heap_bytes = 0;
  std::string text;
  HOLDFAST_FIELDS(Left, operations, objects, forks, references, pending, quarantined, blocks, heap_bytes, text)
  bool nothing() const {
    return objects == 0 && forks == 0 && references == 0 && pending == 0 && quarantined == 0 && blocks == 0;
  }
};
Left look() {
  const DebugInfo info = current_worker().debug_info();
  malloc_trim(0);
  return {.operations = stash.done,
          .objects = info.owned.size(),
          .forks = info.forks,
          .references = info.used.size(),
          .pending = info.pending_children + info.pending_users,
          .quarantined = info.quarantined,
          .blocks = Block::alive,
          .heap_bytes = static_cast<int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd),
          .text = info.text()};
}

void share_once(Worker& worker, Random& random) {
  const auto any_peer = [&] { return worker.peer(1 + static_cast<int>(random.below(kWorkers))).with_timeout(20s); };
  RRef<Block> reference = stash.pick(random);
  switch (random.below(7)) {
    case 0:
    case 1: stash.put(any_peer().make<Block>(random.next())); break;
    case 2:
      if (reference) any_peer().call<give>(reference);
      break;
    case 3:
      for (RRef<Block>& lent : any_peer().call<lend>()) {
        if (lent) stash.put(lent);
      }
      break;
    case 4:
      if (reference) reference.with_timeout(20s).call<&Block::check>();
      break;
    case 5: {
      // A new object holds an older one: no circles.
      if (!reference) break;
      RRef<Block> holder = any_peer().make<Block>(random.next());
      holder.with_timeout(20s).call<&Block::hold>(reference);
      stash.put(holder);
      break;
    }
    default: stash.take(random);
  }
}

int share_at_random() {
  Worker worker(Options::from_env());
  Random random(static_cast<uint64_t>(::getpid()));
  while (!stash.stopping) {
    try {
      share_once(worker, random);
    } catch (const Error&) {
      // Others die all the time. What they do to the tables is looked at in the end.
    }
    ++stash.done;
  }
  stash.stopped = true;
  worker.shutdown(600s);
  return 0;
}
const Role share_role("share_at_random", share_at_random);

TEST(RRefProcessTest, SixWorkersShareWhileOneAfterAnotherIsKilledAndReplaced) {
  TestCoordinator coordinator(1 + kWorkers, 600s);  // a death is known because the test says so, as a launcher would
  std::vector<std::unique_ptr<TestProcess>> processes;
  for (int rank = 1; rank <= kWorkers; ++rank) {
    processes.push_back(std::make_unique<TestProcess>("share_at_random", coordinator.options(rank)));
  }
  Worker worker(coordinator.options(0));
  const auto progress = [&](int rank) { return worker.peer(rank).call<look>(); };
  int64_t heap_peak = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    const int rank = 1 + kill % kWorkers;
    // Everybody has something to lose, and has done something since.
    for (int other = 1; other <= kWorkers; ++other) {
      const uint64_t enough = progress(other).operations + 100;
      ASSERT_TRUE(eventually([&] {
        const Left left = progress(other);
        heap_peak = std::max(heap_peak, left.heap_bytes);
        return left.operations >= enough && left.blocks >= 4 && left.references >= 4 && left.forks >= 4;
      })) << "kill "
          << kill << " worker" << other << ": " << progress(other).text;
    }
    TestProcess& victim = *processes[static_cast<size_t>(rank - 1)];
    victim.signal(SIGKILL);
    ASSERT_EQ(victim.wait(), -SIGKILL);
    coordinator.server().declare_lost(Rank{static_cast<uint32_t>(rank)}, "its process was killed");
    processes[static_cast<size_t>(rank - 1)] =
        std::make_unique<TestProcess>("share_at_random", coordinator.options(rank));
    ASSERT_TRUE(eventually([&] {
      try {
        progress(rank);
        return true;
      } catch (const Error&) {
        return false;  // not there yet
      }
    }));
  }
  uint64_t operations = 0;
  for (int rank = 1; rank <= kWorkers; ++rank) operations += worker.peer(rank).call<stop_sharing>();
  EXPECT_GT(operations, 0u);
  for (int rank = 1; rank <= kWorkers; ++rank) worker.peer(rank).call<drop_all>();
  int64_t heap_left = 0;
  for (int rank = 1; rank <= kWorkers; ++rank) {
    EXPECT_TRUE(eventually([&] { return progress(rank).nothing(); }))
        << "worker" << rank << ": " << progress(rank).text;
    heap_left = std::max(heap_left, progress(rank).heap_bytes);
  }
  std::printf(
      "%llu operations since their last start, %d workers killed; largest heap %.1f MB while sharing, %.1f MB at the "
      "end\n",
      static_cast<unsigned long long>(operations), kKills, heap_peak / 1e6, heap_left / 1e6);
  // A sanitizer's heap does not tell.
  if (heap_peak > 0) {
    EXPECT_LT(heap_left, heap_peak / 2);
  }
  worker.shutdown();
  for (auto& process : processes) EXPECT_EQ(process->wait(), 0);
}

}  // namespace
}  // namespace holdfast::rref_process_test
