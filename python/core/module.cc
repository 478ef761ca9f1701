// The extension module holdfast._core: Holdfast's C++ API, as far as the Python package needs it.
#include "errors.h"
#include "worker.h"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Holdfast's C++ core. Use the modules of the package holdfast instead.";
  holdfast::python::bind_errors(module);
  holdfast::python::bind_worker(module);
  holdfast::python::bind_refs(module);
  holdfast::python::bind_autograd(module);
  holdfast::python::bind_profiler(module);
  holdfast::python::bind_futures(module);
}
