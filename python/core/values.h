// How Python values travel, and how they rest. Packed is the form on the wire: the value itself if it is plain
// (numbers, text, tensors, tuples of them), which C++ reads and writes without the GIL; else what the package's pickler
// made of it, with its tensors and references beside it, so that both are sent as those of C++ are: tensors by the
// tensor layer (autograd records them), references by the reference protocol. PyValue is the form at rest: an object
// that lives here and that others refer to.
//
// Nothing here decodes a pickle: that is the package's work (holdfast/rpc/serve.py), if the worker allows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <holdfast/base/bytes.h>
#include <holdfast/rref/rref.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/tensor/ivalue_codec.h>
#include <holdfast/wire/codecs.h>

#include "held.h"

namespace holdfast::python {

struct PyValue {
  Held object;
  bool failed = false;  // the object is the exception that its creation ended with
};

using PyRRef = RRef<PyValue>;

struct Packed {
  c10::IValue plain;  // if there are no bytes
  Bytes bytes;
  std::vector<at::Tensor> tensors;
  std::vector<PyRRef> rrefs;
  bool failed = false;  // it is the exception that a call ended with
  HOLDFAST_FIELDS(Packed, plain, bytes, tensors, rrefs, failed)

  bool is_plain() const { return bytes.empty(); }
};

// A reference, as Python code holds it: its own class (holdfast.rpc.RRef) has one of these inside.
struct Ref {
  PyRRef rref;
};

// All with the GIL.

// None, a bool, a number that fits, or a tensor; else nothing.
std::optional<c10::IValue> simple_value(py::handle object);
// The same, text, and tuples of all these: what arrives is equal, and of the same class. Not views with gaps.
std::optional<c10::IValue> plain_value(py::handle object);
py::object object_of(const c10::IValue& value);
// False: everything is pickled from now on, for somebody has other ideas of how values are pickled.
void allow_plain(bool allowed);

Packed packed_from(const py::tuple& parts);  // (bytes, [tensor], [Ref]), or these and whether it failed
py::tuple parts_of(const Packed& packed);

}  // namespace holdfast::python
