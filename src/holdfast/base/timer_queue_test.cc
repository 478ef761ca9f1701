#include <holdfast/base/timer_queue.h>

#include <holdfast/base/random.h>

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

namespace holdfast {
namespace {

Time at(int64_t ns) { return Time(Duration(ns)); }

TEST(TimerQueueTest, EmptyIsNever) {
  TimerQueue<int> queue;
  int out = 0;
  EXPECT_EQ(queue.next(), kNever);
  EXPECT_FALSE(queue.pop_due(kNever, out));
  EXPECT_TRUE(queue.empty());
}

TEST(TimerQueueTest, PopsOnlyWhatIsDueEarliestFirst) {
  TimerQueue<int> queue;
  queue.add(at(30), 3);
  queue.add(at(10), 1);
  queue.add(at(20), 2);
  int out = 0;
  EXPECT_EQ(queue.next(), at(10));
  EXPECT_FALSE(queue.pop_due(at(9), out));
  EXPECT_TRUE(queue.pop_due(at(20), out));
  EXPECT_EQ(out, 1);
  EXPECT_TRUE(queue.pop_due(at(20), out));
  EXPECT_EQ(out, 2);
  EXPECT_FALSE(queue.pop_due(at(20), out));
  EXPECT_EQ(queue.size(), 1u);
}

TEST(TimerQueueTest, TiesComeOutInOrderOfInsertion) {
  TimerQueue<int> queue;
  std::vector<TimerHandle> handles;
  for (int i = 0; i < 100; ++i) handles.push_back(queue.add(at(5), i));
  queue.retime(handles[0], at(5));  // now the last
  int out = 0;
  for (int i = 1; i < 100; ++i) {
    ASSERT_TRUE(queue.pop_due(at(5), out));
    ASSERT_EQ(out, i);
  }
  ASSERT_TRUE(queue.pop_due(at(5), out));
  EXPECT_EQ(out, 0);
}

TEST(TimerQueueTest, LetsGoOfKeys) {
  auto key = std::make_shared<int>(0);
  TimerQueue<std::shared_ptr<int>> queue;
  const TimerHandle handle = queue.add(at(1), key);
  queue.add(at(2), key);
  queue.remove(handle);
  EXPECT_FALSE(queue.contains(handle));
  EXPECT_EQ(key.use_count(), 2);
  std::shared_ptr<int> out;
  EXPECT_TRUE(queue.pop_due(at(2), out));
  out.reset();
  EXPECT_EQ(key.use_count(), 1);
}

// Against a std::map that does the same slowly.
TEST(TimerQueueTest, AgreesWithAModel) {
  Random random(42);
  TimerQueue<int> queue;
  std::map<std::pair<Time, uint64_t>, int> model;
  struct Live {
    TimerHandle handle;
    std::pair<Time, uint64_t> place;
  };
  std::map<int, Live> live;
  uint64_t order = 0;
  Time now = at(0);
  for (int step = 0; step < 20000; ++step) {
    const Time time = now + Duration(random.below(50));
    auto chosen = live.empty() ? live.end() : std::next(live.begin(), static_cast<long>(random.below(live.size())));
    const uint64_t action = random.below(10);
    if (action < 5 || chosen == live.end()) {
      live[step] = {queue.add(time, step), {time, order}};
      model[{time, order++}] = step;
    } else if (action < 6) {
      queue.remove(chosen->second.handle);
      model.erase(chosen->second.place);
      live.erase(chosen);
    } else if (action < 8) {
      queue.retime(chosen->second.handle, time);
      model.erase(chosen->second.place);
      chosen->second.place = {time, order};
      model[{time, order++}] = chosen->first;
    } else {
      now += Duration(random.below(20));
      int out = 0;
      while (queue.pop_due(now, out)) {
        ASSERT_FALSE(model.empty());
        ASSERT_EQ(out, model.begin()->second);
        live.erase(out);
        model.erase(model.begin());
      }
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.next(), model.empty() ? kNever : model.begin()->first.first);
  }
}

}  // namespace
}  // namespace holdfast
