// Holdfast's errors as Python exceptions, and the other way round.
#pragma once

#include <holdfast/base/error.h>

#include "held.h"

namespace holdfast::python {

// Makes the exception classes and lets C++ functions throw them.
void bind_errors(py::module_& module);
// With the GIL. The exception object for a failure.
py::object exception_of(const Failure& failure);

}  // namespace holdfast::python
