#include "values.h"

namespace holdfast::python {

Pickled pickled_from(const py::tuple& parts) {
  if (parts.size() != 3) throw py::value_error("a pickled value has three parts");
  Pickled pickled;
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(parts[0].ptr(), &data, &size) != 0) throw py::error_already_set();
  pickled.bytes.append(reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(size));
  for (py::handle tensor : parts[1]) pickled.tensors.push_back(tensor.cast<at::Tensor>());
  for (py::handle ref : parts[2]) pickled.rrefs.push_back(ref.cast<const Ref&>().rref);
  return pickled;
}

py::tuple to_python(Pickled pickled) {
  py::list tensors(pickled.tensors.size());
  for (size_t i = 0; i < pickled.tensors.size(); ++i) tensors[i] = py::cast(std::move(pickled.tensors[i]));
  py::list rrefs(pickled.rrefs.size());
  for (size_t i = 0; i < pickled.rrefs.size(); ++i) rrefs[i] = py::cast(Ref{std::move(pickled.rrefs[i])});
  return py::make_tuple(py::bytes(reinterpret_cast<const char*>(pickled.bytes.data()), pickled.bytes.size()),
                        std::move(tensors), std::move(rrefs));
}

}  // namespace holdfast::python
