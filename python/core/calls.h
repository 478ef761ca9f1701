// Calls of Python functions: what a worker serves.
//
// A call carries one pickled value, (function, args, kwargs), which the package's handlers decode, run and answer. The
// functions below run on handler threads and take the GIL around Python code only.
#pragma once

#include <holdfast/base/future.h>

#include "values.h"

namespace holdfast::python {

// What the package supplies, once. run(bytes, tensors, refs) -> (bytes, tensors, refs), or a torch future if it takes
// longer; keep(...) -> (failed, value), or such a future; finish_run and finish_keep make of that future, when it is
// done, what run and keep would have returned. pack(value, failed) -> (bytes, tensors, refs).
struct Handlers {
  Held run, keep, finish_run, finish_keep, pack;
};
void set_handlers(Handlers handlers);

// Of calls of Python functions, since the program began.
struct ServeStats {
  uint64_t suspended = 0;  // whose future is not done
  double gil_wait_us = 0;  // for how long one waits for the GIL, on the average
};
ServeStats serve_stats();

// The functions that Python workers serve.
Future<Pickled> python_call(const Pickled& call);
Future<PyValue> python_remote(const Pickled& call);
Pickled python_fetch(const PyValue& value);
void python_wait(const PyValue& value);

}  // namespace holdfast::python
