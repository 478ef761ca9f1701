// Tensors that workers of the same host are shown instead of sent.
#include <holdfast/tensor/lendable.h>

#include "errors.h"

namespace holdfast::python {

void bind_lending(py::module_& module) {
  const py::call_guard<py::gil_scoped_release> without_gil;
  module.def("lendable", &lendable, py::arg("tensor"), without_gil,
             "A contiguous copy of `tensor` whose memory can be lent: calls to workers of this host pass it without a "
             "copy, however large it is. Write to it only while `loans(tensor)` is 0.");
  module.def("loans", &loans, py::arg("tensor"), without_gil,
             "How many tensors at other workers show the memory of `tensor` just now.");
}

}  // namespace holdfast::python
