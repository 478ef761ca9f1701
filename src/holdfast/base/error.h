// Errors. Inside the library they are values (Failure, Result<T>); at the edge of the public API they
// are exceptions under holdfast::Error, one class for each Code, so that a caller can react to the kind.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace holdfast {

// A code exists only where a caller reacts differently. The numbers travel on the wire: never reuse one.
enum class Code : uint8_t {
  invalid_argument = 1,  // the call itself is wrong: unknown worker, bad option, signatures differ
  no_such_function = 2,  // the callee has no function of that name
  timeout = 3,           // the deadline passed
  worker_lost = 4,       // the worker died or was cut off for longer than its lease
  cancelled = 5,         // somebody cancelled it
  remote_error = 6,      // the function threw
  corrupt = 7,           // bytes that do not decode
  overloaded = 8,        // a limit was reached; try again later
  shutdown = 9,          // this worker is shut down
  rref_deleted = 10,     // the reference's object is gone
  unavailable = 11,      // the system said no: port in use, address not ours, no route, no descriptor
  fault_injected = 12,   // Options::faults made this call fail; it was not sent
};

std::string_view name_of(Code code);
// False for numbers that are not a Code (they may come from a peer).
bool is_code(uint8_t number);

struct Failure {
  Code code = Code::invalid_argument;
  std::string message;          // who, what, where, and what to do
  std::string worker = {};      // remote_error, worker_lost: which worker
  std::string type = {};        // remote_error: the C++ type of what was thrown
  bool maybe_executed = false;  // worker_lost: the call may have run
};

class Error : public std::runtime_error {
 public:
  explicit Error(Failure failure) : std::runtime_error(failure.message), failure_(std::move(failure)) {}
  Code code() const { return failure_.code; }
  const Failure& failure() const { return failure_; }

 private:
  Failure failure_;
};

#define HOLDFAST_ERROR_CLASS(Name) \
  class Name : public Error {      \
   public:                         \
    using Error::Error;            \
  }
HOLDFAST_ERROR_CLASS(InvalidArgument);
HOLDFAST_ERROR_CLASS(NoSuchFunction);
HOLDFAST_ERROR_CLASS(Timeout);
HOLDFAST_ERROR_CLASS(Cancelled);
HOLDFAST_ERROR_CLASS(Corrupt);
HOLDFAST_ERROR_CLASS(Overloaded);
HOLDFAST_ERROR_CLASS(Shutdown);
HOLDFAST_ERROR_CLASS(RRefDeleted);
HOLDFAST_ERROR_CLASS(Unavailable);
HOLDFAST_ERROR_CLASS(FaultInjected);
#undef HOLDFAST_ERROR_CLASS

class WorkerLost : public Error {
 public:
  using Error::Error;
  const std::string& worker() const { return failure().worker; }
  // False only when it is certain that the function did not run.
  bool maybe_executed() const { return failure().maybe_executed; }
};

// What a function on another worker threw.
class RemoteError : public Error {
 public:
  using Error::Error;
  const std::string& worker() const { return failure().worker; }
  const std::string& type() const { return failure().type; }
};

// Throws the exception class that belongs to failure.code.
[[noreturn]] void throw_failure(Failure failure);
// Describes the exception that is being handled right now, as a Failure. Call only inside catch.
// A holdfast::Error keeps its code; anything else becomes remote_error with its type and text.
Failure describe_current_exception();

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure failure) : value_(std::in_place_index<1>, std::move(failure)) {}

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(value_); }
  const T& value() const { return std::get<0>(value_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Failure& failure() { return std::get<1>(value_); }
  const Failure& failure() const { return std::get<1>(value_); }
  // For the edge of the API: the value, or the exception.
  T take() {
    if (!ok()) throw_failure(std::move(failure()));
    return std::move(value());
  }

 private:
  std::variant<T, Failure> value_;
};

// Success, or a Failure.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Failure failure) : failure_(std::move(failure)) {}
  bool ok() const { return !failure_.has_value(); }
  Failure& failure() { return *failure_; }
  const Failure& failure() const { return *failure_; }
  void check() {
    if (failure_) throw_failure(std::move(*failure_));
  }

 private:
  std::optional<Failure> failure_;
};

}  // namespace holdfast
