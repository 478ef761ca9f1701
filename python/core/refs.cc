// Ref: a reference as Python holds it.
#include <tuple>

#include "calls.h"
#include "delivery.h"
#include "worker.h"

namespace holdfast::python {

namespace {

py::object fetch(const Ref& ref, double timeout_s) {
  Packed result;
  {
    py::gil_scoped_release release;
    result = ref.rref.with_timeout(duration_of(timeout_s)).fetch_with<python_fetch>().take();
  }
  return result_from(result);
}

void wait_async(const Ref& ref, double timeout_s, const py::object& future) {
  Delivery delivery(torch_future(future));
  py::gil_scoped_release release;
  deliver_to(ref.rref.with_timeout(duration_of(timeout_s)).fetch_with<python_wait>(), std::move(delivery));
}

// (failed, value)
py::tuple local_value(const Ref& ref) {
  PyValue* value = nullptr;
  {
    py::gil_scoped_release release;
    value = &ref.rref.local_value();
  }
  return py::make_tuple(value->failed, value->object.get());
}

// Why the call that was to make the object was not even sent, as an exception; None if it was.
py::object creation_error(const Ref& ref) {
  const Failure* failure = ref.rref.reference()->failure();
  return failure == nullptr ? py::none() : exception_of(*failure);
}

// (rank, counter from 0) of the object, and of this reference to it.
std::tuple<uint32_t, uint64_t, uint32_t, uint64_t> ids(const Ref& ref) {
  const Reference& reference = *ref.rref.reference();
  return {reference.rref.creator.rank.value, reference.rref.counter - 1, reference.fork.maker.rank.value,
          reference.fork.counter - 1};
}

}  // namespace

void bind_refs(py::module_& module) {
  py::class_<Ref>(module, "Ref")
      .def_property_readonly("is_owner", [](const Ref& ref) { return ref.rref.is_owner(); })
      .def_property_readonly("owner_name", [](const Ref& ref) { return ref.rref.owner().name; })
      .def_property_readonly("owner_rank", [](const Ref& ref) { return ref.rref.owner().rank.value; })
      .def_property_readonly("ids", &ids)
      .def_property_readonly("creation_error", &creation_error)
      .def(
          "confirmed_by_owner", [](const Ref& ref) { return ref.rref.confirmed_by_owner(); },
          py::call_guard<py::gil_scoped_release>())
      .def("fetch", &fetch)
      .def("wait_async", &wait_async)
      .def("local_value", &local_value)
      .def("__eq__", [](const Ref& a, const Ref& b) { return a.rref == b.rref; })
      .def("__hash__", [](const Ref& ref) { return std::hash<RRefId>()(ref.rref.id()); });
}

}  // namespace holdfast::python
