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

// As a library would that keeps one flow per thread.
class OneFlow final : public FlowCarrier {
 public:
  std::shared_ptr<void> carry(std::shared_ptr<void> flow) override {
    flow_.swap(flow);
    return {this, [this, before = std::move(flow)](void*) { flow_ = before; }};
  }
  std::shared_ptr<void> carried() override { return flow_; }
  void carry_again(const std::shared_ptr<void>& flow) override { flow_ = flow; }

 private:
  std::shared_ptr<void> flow_;
};

TEST(AmbientTest, ALibraryCarriesTheFlow) {
  static OneFlow library;  // a program sets it once, and for good
  set_flow_carrier(library);
  const auto flow = std::make_shared<int>(0);
  EXPECT_EQ(current_flow(), nullptr);
  {
    AmbientScope scope(Ambient{.flow = flow});
    EXPECT_EQ(library.carried(), flow);
    {
      AmbientScope none(Ambient{});
      EXPECT_EQ(library.carried(), nullptr);
      EXPECT_EQ(current_flow(), nullptr);
    }
    EXPECT_EQ(library.carried(), flow);
  }
  EXPECT_EQ(library.carried(), nullptr);

  // Brought along to a thread that has no Ambient.
  auto brought = library.carry(flow);
  EXPECT_EQ(current_flow(), flow);
  EXPECT_EQ(captured_ambient().flow, flow);
  {
    AmbientScope none(Ambient{});
    EXPECT_EQ(current_flow(), nullptr) << "who installs an Ambient without a flow means it";
  }
  brought.reset();
  EXPECT_EQ(current_flow(), nullptr);
}

TEST(AmbientTest, NothingIsCarriedOnWhenWorkHasMovedAway) {
  static OneFlow library;
  set_flow_carrier(library);
  {
    AmbientScope scope(Ambient{});
    // A coroutine makes a context, and goes on elsewhere before that ends.
    current_ambient().flow = std::make_shared<int>(0);
    library.carry_again(current_ambient().flow);
  }
  EXPECT_EQ(library.carried(), nullptr);
}

}  // namespace
}  // namespace holdfast
