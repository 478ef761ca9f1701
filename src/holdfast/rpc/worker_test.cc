#include <holdfast/holdfast.h>

#include <thread>

#include <gtest/gtest.h>

namespace holdfast {
namespace {

double scale(double x, double k) { return x * k; }

TEST(Worker, CallsItself) {
  Worker worker(Options{});
  EXPECT_EQ(worker.self().call<scale>(3.0, 2.0), 6.0);
  worker.shutdown();
}

}  // namespace
}  // namespace holdfast
