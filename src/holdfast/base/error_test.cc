#include <holdfast/base/error.h>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace holdfast {
namespace {

template <class Exception>
void expect_throws(Code code, std::string_view name) {
  EXPECT_EQ(name_of(code), name);
  EXPECT_TRUE(is_code(static_cast<uint8_t>(code)));
  try {
    throw_failure({.code = code, .message = "text"});
  } catch (const Exception& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_STREQ(error.what(), "text");
  } catch (...) {
    ADD_FAILURE() << "not a " << name;
  }
}

TEST(ErrorTest, EveryCodeHasItsClass) {
  expect_throws<InvalidArgument>(Code::invalid_argument, "InvalidArgument");
  expect_throws<NoSuchFunction>(Code::no_such_function, "NoSuchFunction");
  expect_throws<Timeout>(Code::timeout, "Timeout");
  expect_throws<WorkerLost>(Code::worker_lost, "WorkerLost");
  expect_throws<Cancelled>(Code::cancelled, "Cancelled");
  expect_throws<RemoteError>(Code::remote_error, "RemoteError");
  expect_throws<Corrupt>(Code::corrupt, "Corrupt");
  expect_throws<Overloaded>(Code::overloaded, "Overloaded");
  expect_throws<Shutdown>(Code::shutdown, "Shutdown");
  expect_throws<RRefDeleted>(Code::rref_deleted, "RRefDeleted");
  expect_throws<Unavailable>(Code::unavailable, "Unavailable");
  expect_throws<FaultInjected>(Code::fault_injected, "FaultInjected");
}

TEST(ErrorTest, NumbersFromAPeerAreChecked) {
  EXPECT_FALSE(is_code(0));
  EXPECT_TRUE(is_code(1));
  EXPECT_TRUE(is_code(12));
  EXPECT_FALSE(is_code(13));
  EXPECT_FALSE(is_code(255));
}

TEST(ErrorTest, WorkerLostSaysWhoAndWhether) {
  try {
    throw_failure({.code = Code::worker_lost, .message = "gone", .worker = "worker1", .maybe_executed = true});
  } catch (const WorkerLost& error) {
    EXPECT_EQ(error.worker(), "worker1");
    EXPECT_TRUE(error.maybe_executed());
  }
}

Failure describe(auto thrown) {
  try {
    throw thrown;
  } catch (...) {
    return describe_current_exception();
  }
}

TEST(ErrorTest, DescribesOwnErrorsWithTheirCode) {
  const Failure failure = describe(Overloaded({.code = Code::overloaded, .message = "full", .worker = "w"}));
  EXPECT_EQ(failure.code, Code::overloaded);
  EXPECT_EQ(failure.message, "full");
  EXPECT_EQ(failure.worker, "w");
}

TEST(ErrorTest, DescribesStandardExceptionsWithTypeAndText) {
  const Failure failure = describe(std::out_of_range("index 7"));
  EXPECT_EQ(failure.code, Code::remote_error);
  EXPECT_EQ(failure.message, "index 7");
  EXPECT_EQ(failure.type, "std::out_of_range");
}

TEST(ErrorTest, DescribesAnythingElseByItsType) {
  const Failure failure = describe(42);
  EXPECT_EQ(failure.code, Code::remote_error);
  EXPECT_EQ(failure.type, "int");
  EXPECT_FALSE(failure.message.empty());
}

TEST(ErrorTest, ResultHoldsOneOfBoth) {
  Result<std::unique_ptr<int>> good(std::make_unique<int>(3));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(**good, 3);
  EXPECT_EQ(*good.take(), 3);
  Result<std::unique_ptr<int>> bad(Failure{.code = Code::corrupt, .message = "bits"});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.failure().code, Code::corrupt);
  EXPECT_THROW(bad.take(), Corrupt);
}

TEST(ErrorTest, StatusChecks) {
  Status good;
  EXPECT_TRUE(good.ok());
  EXPECT_NO_THROW(good.check());
  Status bad(Failure{.code = Code::shutdown, .message = "bye"});
  EXPECT_FALSE(bad.ok());
  EXPECT_THROW(bad.check(), Shutdown);
}

}  // namespace
}  // namespace holdfast
