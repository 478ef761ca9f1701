// Futures of torch that fail as torch's own do: whoever waits for several at once learns of the first failure.
// (torch.futures.Future.set_exception makes the exception the value.)
#undef USE_RPC  // or the next header brings torch's own rpc along
#include <torch/csrc/jit/python/pybind_utils.h>

#include "futures.h"

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

// A value that becomes a Python object when the first one asks for it.
class LateObject final : public c10::ivalue::PyObjectHolder {
 private:
  template <class F>
  auto with_object(F&& f) {
    py::gil_scoped_acquire gil;
    const c10::IValue value = value_of_object(py::reinterpret_borrow<py::object>(getPyObject()));
    return f(*value.toPyObjectHolder());
  }

 public:
  explicit LateObject(std::function<py::object()> make) : make_(std::move(make)) {}

  // With the GIL, which guards both members. What is made may let go of it meanwhile, and be made twice.
  PyObject* getPyObject() override {
    if (!object_) {
      py::object made = std::function(make_)();
      if (!object_) object_ = Held(std::move(made));
      make_ = nullptr;
    }
    return object_.get().ptr();
  }
  c10::InferredType tryToInferType() override {
    return with_object([](auto& holder) { return holder.tryToInferType(); });
  }
  c10::IValue toIValue(const c10::TypePtr& type, c10::optional<int32_t> count) override {
    return with_object([&](auto& holder) { return holder.toIValue(type, count); });
  }
  std::string toStr() override {
    return with_object([](auto& holder) { return holder.toStr(); });
  }
  std::vector<at::Tensor> extractTensors() override {
    return with_object([](auto& holder) { return holder.extractTensors(); });
  }

 private:
  std::function<py::object()> make_;
  Held object_;
};

void fail_future(const py::object& future, const py::object& exception) {
  const TorchFuture torchs = torch_future(future);
  auto error = raised_later(exception);
  py::gil_scoped_release release;
  torchs->setError(std::move(error));
}

}  // namespace

TorchFuture torch_future(const py::object& future) {
  return future.cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
}

c10::IValue value_of_object(py::object object) {
  return torch::jit::toIValue(std::move(object), c10::PyObjectType::get());
}

c10::IValue late_object(std::function<py::object()> make) {
  return c10::intrusive_ptr<c10::ivalue::PyObjectHolder>(c10::make_intrusive<LateObject>(std::move(make)));
}

std::exception_ptr raised_later(const py::object& exception) { return std::make_exception_ptr(RaisedLater(exception)); }

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
