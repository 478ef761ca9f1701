#include <holdfast/base/error.h>

#include <cxxabi.h>

#include <array>
#include <cstdlib>
#include <typeinfo>

namespace holdfast {

namespace {

constexpr std::array<std::string_view, 13> kNames = {
    "",        "InvalidArgument", "NoSuchFunction", "Timeout",     "WorkerLost",  "Cancelled",    "RemoteError",
    "Corrupt", "Overloaded",      "Shutdown",       "RRefDeleted", "Unavailable", "FaultInjected"};

std::string demangle(const char* mangled) {
  int status = 0;
  char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : mangled;
  std::free(text);
  return result;
}

}  // namespace

std::string_view name_of(Code code) { return kNames.at(static_cast<uint8_t>(code)); }

bool is_code(uint8_t number) { return number >= 1 && number < kNames.size(); }

void throw_failure(Failure failure) {
  switch (failure.code) {
    case Code::invalid_argument: throw InvalidArgument(std::move(failure));
    case Code::no_such_function: throw NoSuchFunction(std::move(failure));
    case Code::timeout: throw Timeout(std::move(failure));
    case Code::worker_lost: throw WorkerLost(std::move(failure));
    case Code::cancelled: throw Cancelled(std::move(failure));
    case Code::remote_error: throw RemoteError(std::move(failure));
    case Code::corrupt: throw Corrupt(std::move(failure));
    case Code::overloaded: throw Overloaded(std::move(failure));
    case Code::shutdown: throw Shutdown(std::move(failure));
    case Code::rref_deleted: throw RRefDeleted(std::move(failure));
    case Code::unavailable: throw Unavailable(std::move(failure));
    case Code::fault_injected: throw FaultInjected(std::move(failure));
  }
  throw Error(std::move(failure));
}

Failure describe_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error.failure();
  } catch (const std::exception& error) {
    return {.code = Code::remote_error, .message = error.what(), .type = demangle(typeid(error).name())};
  } catch (...) {
    const std::type_info* type = abi::__cxa_current_exception_type();
    std::string name = type != nullptr ? demangle(type->name()) : "unknown type";
    return {.code = Code::remote_error, .message = "(an exception without text)", .type = std::move(name)};
  }
}

}  // namespace holdfast
