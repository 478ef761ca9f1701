#include <holdfast/base/ambient.h>

#include <gtest/gtest.h>

#include <thread>

namespace holdfast {
namespace {

TEST(AmbientTest, ScopesNestAndRestore) {
  int worker1 = 0;
  int worker2 = 0;
  EXPECT_EQ(current_ambient().worker, nullptr);
  EXPECT_EQ(current_ambient().deadline, kNever);
  {
    AmbientScope outer(Ambient{.worker = &worker1, .deadline = Time(Duration(5))});
    EXPECT_EQ(current_ambient().worker, &worker1);
    {
      AmbientScope inner(Ambient{.worker = &worker2});
      EXPECT_EQ(current_ambient().worker, &worker2);
      EXPECT_EQ(current_ambient().deadline, kNever);
    }
    EXPECT_EQ(current_ambient().worker, &worker1);
    EXPECT_EQ(current_ambient().deadline, Time(Duration(5)));
  }
  EXPECT_EQ(current_ambient().worker, nullptr);
}

TEST(AmbientTest, EachThreadHasItsOwn) {
  int worker = 0;
  AmbientScope scope(Ambient{.worker = &worker});
  void* seen = &worker;
  std::thread([&] { seen = current_ambient().worker; }).join();
  EXPECT_EQ(seen, nullptr);
}

TEST(AmbientTest, LetsGoOfWhatItHeld) {
  auto context = std::make_shared<int>(0);
  { AmbientScope scope(Ambient{.flow = context}); }
  EXPECT_EQ(context.use_count(), 1);
}

}  // namespace
}  // namespace holdfast
