#include "values.h"

#include <torch/csrc/autograd/python_variable.h>

#include <utility>

namespace holdfast::python {

namespace {

bool plain_allowed = true;  // guarded by the GIL

bool is_without_gaps(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && tensor.is_contiguous(); }

std::optional<c10::IValue> text_value(PyObject* text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data != nullptr) return c10::IValue(std::string(data, static_cast<size_t>(size)));
  PyErr_Clear();  // it has surrogates
  return std::nullopt;
}

std::optional<c10::IValue> tuple_value(PyObject* tuple) {
  constexpr Py_ssize_t kItemsMax = 64;  // a long one is pickled faster
  const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
  if (size > kItemsMax) return std::nullopt;
  std::vector<c10::IValue> items;
  items.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i) {
    std::optional<c10::IValue> item = plain_value(PyTuple_GET_ITEM(tuple, i));
    if (!item) return std::nullopt;
    items.push_back(std::move(*item));
  }
  return c10::ivalue::Tuple::create(std::move(items));
}

}  // namespace

void allow_plain(bool allowed) { plain_allowed = allowed; }

std::optional<c10::IValue> simple_value(py::handle object) {
  if (object.is_none()) return c10::IValue();
  if (THPVariable_CheckExact(object.ptr())) return c10::IValue(THPVariable_Unpack(object.ptr()));
  if (PyBool_Check(object.ptr())) return c10::IValue(object.ptr() == Py_True);
  if (PyLong_CheckExact(object.ptr())) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (overflow != 0) return std::nullopt;
    return c10::IValue(static_cast<int64_t>(number));
  }
  if (PyFloat_CheckExact(object.ptr())) return c10::IValue(PyFloat_AS_DOUBLE(object.ptr()));
  return std::nullopt;
}

std::optional<c10::IValue> plain_value(py::handle object) {
  if (!plain_allowed) return std::nullopt;
  if (PyUnicode_CheckExact(object.ptr())) return text_value(object.ptr());
  if (PyTuple_CheckExact(object.ptr())) return tuple_value(object.ptr());
  if (!THPVariable_Check(object.ptr())) return simple_value(object);
  if (reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())) != THPVariableClass) return std::nullopt;  // a Parameter, say
  const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
  if (!is_without_gaps(tensor)) return std::nullopt;
  return c10::IValue(tensor);
}

py::object object_of(const c10::IValue& value) {
  if (value.isTensor()) return py::cast(value.toTensor());
  if (value.isBool()) return py::bool_(value.toBool());
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isTuple()) {
    const auto& elements = value.toTupleRef().elements();
    py::tuple tuple(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) tuple[i] = object_of(elements[i]);
    return tuple;
  }
  if (value.isList()) {
    py::list list;
    for (const c10::IValue& item : value.toListRef()) list.append(object_of(item));
    return list;
  }
  if (value.isNone()) return py::none();
  if (value.isString()) return py::str(value.toStringRef());
  throw_failure({.code = Code::invalid_argument,
                 .message = "a call gave a " + value.tagKind() + ", which Python does not get from one"});
}

Packed packed_from(const py::tuple& parts) {
  if (parts.size() != 3 && parts.size() != 4) throw py::value_error("a pickled value has three parts, or four");
  Packed packed;
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(parts[0].ptr(), &data, &size) != 0) throw py::error_already_set();
  packed.bytes.append(reinterpret_cast<const uint8_t*>(data), static_cast<size_t>(size));
  for (py::handle tensor : parts[1]) packed.tensors.push_back(tensor.cast<at::Tensor>());
  for (py::handle ref : parts[2]) packed.rrefs.push_back(ref.cast<const Ref&>().rref);
  packed.failed = parts.size() == 4 && parts[3].cast<bool>();
  return packed;
}

py::tuple parts_of(const Packed& packed) {
  py::list tensors(packed.tensors.size());
  for (size_t i = 0; i < packed.tensors.size(); ++i) tensors[i] = py::cast(packed.tensors[i]);
  py::list rrefs(packed.rrefs.size());
  for (size_t i = 0; i < packed.rrefs.size(); ++i) rrefs[i] = py::cast(Ref{packed.rrefs[i]});
  return py::make_tuple(py::bytes(reinterpret_cast<const char*>(packed.bytes.data()), packed.bytes.size()),
                        std::move(tensors), std::move(rrefs));
}

}  // namespace holdfast::python
