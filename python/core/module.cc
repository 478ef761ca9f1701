// The extension module holdfast._core: Holdfast's C++ API, as far as the Python package needs it.
#include "errors.h"

namespace holdfast::python {
void bind_autograd(py::module_& module);
void bind_futures(py::module_& module);
void bind_lending(py::module_& module);
void bind_named(py::module_& module);
void bind_ops(py::module_& module);
void bind_profiler(py::module_& module);
void bind_refs(py::module_& module);
void bind_script_ops(py::module_& module);
void bind_worker(py::module_& module);
}  // namespace holdfast::python

PYBIND11_MODULE(_core, module) {
  module.doc() = "Holdfast's C++ core. Use the modules of the package holdfast instead.";
  holdfast::python::bind_errors(module);
  holdfast::python::bind_worker(module);
  holdfast::python::bind_refs(module);
  holdfast::python::bind_autograd(module);
  holdfast::python::bind_profiler(module);
  holdfast::python::bind_futures(module);
  holdfast::python::bind_lending(module);
  holdfast::python::bind_named(module);
  holdfast::python::bind_ops(module);
  holdfast::python::bind_script_ops(module);
}
