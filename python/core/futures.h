// Futures of torch, as C++ completes them.
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <functional>

#include "held.h"

namespace holdfast::python {

using TorchFuture = c10::intrusive_ptr<c10::ivalue::Future>;

// All with the GIL.
TorchFuture torch_future(const py::object& future);
// The object, for a future.
c10::IValue value_of_object(py::object object);
// The exception, for a future: raised as it is, as often as somebody asks for the result.
std::exception_ptr raised_later(const py::object& exception);

// Without the GIL: an object that `make` makes, with the GIL, when somebody asks for it.
c10::IValue late_object(std::function<py::object()> make);

}  // namespace holdfast::python
