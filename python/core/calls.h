// Calls of Python functions: how they are packed, and what a worker serves.
//
// A call of a function that goes by its name, with plain arguments, travels as the plain value (module, name, args);
// any other as one pickled value, (function, args, kwargs). The package's handlers run it. The served functions run on
// handler threads, or the network thread, and take the GIL around Python code only.
#pragma once

#include <holdfast/base/future.h>

#include "values.h"

namespace holdfast::python {

// What the package supplies, once. run(bytes, tensors, refs) and run_named(module, name, args) run a call, and give
// (Outcome, value); finish(future) gives the same when the torch future is done that a call ended with.
// pack_call(function, args, kwargs) gives (bytes, tensors, refs); pack(value, failed) these and whether it failed, for
// what cannot be packed becomes an exception; unpack(bytes, tensors, refs) the result of a call, or raises what it
// raised.
struct Handlers {
  Held run, run_named, finish, pack_call, pack, unpack;
};
void set_handlers(Handlers handlers);

enum class Outcome { value = 0, failed = 1, later = 2 };  // later: the value is a torch future

// All with the GIL.
Packed pack_call(const py::object& function, const py::object& args, const py::object& kwargs);
Packed pack_result(const py::object& value, bool failed);
// Throws what the call raised.
py::object result_from(const Packed& packed);

// Of calls of Python functions, since the program began.
struct ServeStats {
  uint64_t suspended = 0;  // whose future is not done
  double gil_wait_us = 0;  // for how long one waits for the GIL, on the average
};
ServeStats serve_stats();

// The functions that Python workers serve.
Future<Packed> python_call(const Packed& call);
Future<PyValue> python_remote(const Packed& call);
Packed python_fetch(const PyValue& value);
void python_wait(const PyValue& value);

}  // namespace holdfast::python
