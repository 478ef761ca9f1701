// Held: a Python object that C++ code keeps. Copied and dropped on any thread, with or without the GIL: the last one
// takes the GIL to let the object go. When the interpreter is ending the object is left alone.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <utility>

namespace holdfast::python {

namespace py = pybind11;

inline bool interpreter_runs() { return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0; }

class Held {
 public:
  Held() = default;
  // With the GIL.
  explicit Held(py::object object) : object_(object.release().ptr(), drop) {}

  explicit operator bool() const { return object_ != nullptr; }
  // With the GIL.
  py::object get() const { return py::reinterpret_borrow<py::object>(object_.get()); }

 private:
  static void drop(PyObject* object) {
    if (object == nullptr || !interpreter_runs()) return;
    py::gil_scoped_acquire gil;
    Py_DECREF(object);
  }

  std::shared_ptr<PyObject> object_;
};

}  // namespace holdfast::python
