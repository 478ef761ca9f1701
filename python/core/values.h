// How Python values travel. Pickled is the form on the wire: what the package's pickler made of a value, with its
// tensors and references beside it, so that both are sent as those of C++ are: tensors by the tensor layer (autograd
// records them), references by the reference protocol. PyValue is the form at rest: an object that lives here and that
// others refer to.
//
// Nothing here decodes a pickle: that is the package's work (holdfast/rpc/serve.py), if the worker allows it.
#pragma once

#include <string>
#include <vector>

#include <holdfast/base/bytes.h>
#include <holdfast/rref/rref.h>
#include <holdfast/tensor/codec.h>
#include <holdfast/wire/codecs.h>

#include "held.h"

namespace holdfast::python {

struct PyValue {
  Held object;
  bool failed = false;  // the object is the exception that its creation ended with
};

using PyRRef = RRef<PyValue>;

struct Pickled {
  Bytes bytes;
  std::vector<at::Tensor> tensors;
  std::vector<PyRRef> rrefs;
  HOLDFAST_FIELDS(Pickled, bytes, tensors, rrefs)
};

// A reference, as Python code holds it: its own class (holdfast.rpc.RRef) has one of these inside.
struct Ref {
  PyRRef rref;
};

// All with the GIL.
Pickled pickled_from(const py::tuple& parts);  // (bytes, [tensor], [Ref])
py::tuple to_python(Pickled pickled);

}  // namespace holdfast::python
