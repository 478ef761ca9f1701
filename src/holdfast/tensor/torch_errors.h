// What libtorch throws, as a RemoteError with its words alone: c10::Error's own text has a page of C++ frames below.
// Private to this layer; any thread.
#pragma once

#include <c10/util/Exception.h>

#include <holdfast/base/error.h>

namespace holdfast {

template <class F>
auto with_torch_errors(F&& run) {
  try {
    return run();
  } catch (const c10::Error& error) {
    throw_failure({.code = Code::remote_error, .message = error.what_without_backtrace(), .type = "c10::Error"});
  }
}

}  // namespace holdfast
