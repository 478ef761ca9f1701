// Futures of torch that fail as torch's own do: whoever waits for several at once learns of the first failure.
// (torch.futures.Future.set_exception makes the exception the value.)
#undef USE_RPC  // or the next header brings torch's own rpc along
#include <torch/csrc/jit/python/pybind_utils.h>

#include "worker.h"

namespace holdfast::python {

namespace {

// A Python exception on its way through C++ code, as often as somebody asks for the result.
class RaisedLater : public std::exception {
 public:
  explicit RaisedLater(const py::object& exception) : exception_(exception), text_(py::str(exception)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  py::object exception() const { return exception_.get(); }

 private:
  Held exception_;
  std::string text_;
};

void fail_future(const std::shared_ptr<torch::jit::PythonFutureWrapper>& future, const py::object& exception) {
  auto error = std::make_exception_ptr(RaisedLater(exception));
  py::gil_scoped_release release;
  future->fut->setError(std::move(error));
}

}  // namespace

void bind_futures(py::module_& module) {
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const RaisedLater& raised) {
      py::object exception = raised.exception();
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    }
  });
  module.def("fail_future", &fail_future);
}

}  // namespace holdfast::python
