// rpc in TorchScript: rpc_async, rpc_sync and remote in scripted functions, and the methods of RRefs there, are
// operators of libtorch that know torch's own agent only. compat puts these in their place: each leaves TorchScript for
// a Python function of the package (holdfast/script.py).
//
// What crosses over is converted by torch's own rules. An RRef that a script has made is a ScriptRRef, which holds the
// Python one.
#undef USE_RPC  // or the next header brings torch's own rpc along
#include <torch/csrc/jit/python/pybind_utils.h>

#include <ATen/core/rref_interface.h>
#include <torch/csrc/jit/runtime/operator.h>

#include "held.h"

namespace holdfast::python {

namespace {

namespace jit = torch::jit;

// The Python functions behind the operators: call(to, name, args, kwargs, timeout) gives a torch future, remote(...) an
// RRef; get_gradients and backward are those of holdfast.autograd. Never freed.
struct ScriptHandlers {
  Held call, remote, get_gradients, backward;
};
ScriptHandlers& script_handlers() {
  static auto* handlers = new ScriptHandlers;
  return *handlers;
}

// A list or dict that a script has made and that stays here, with an RRef to it: as it is, so that whatever script gets
// it changes the same one. Python gets copies.
struct ScriptValue {
  c10::IValue value;
};

class ScriptRRef final : public c10::RRefInterface {
 public:
  ScriptRRef(const py::object& rref, c10::TypePtr type)
      : rref_(rref),
        type_(std::move(type)),
        owner_(rref.attr("owner")().attr("id").cast<c10::worker_id_t>()),
        owner_name_(rref.attr("owner_name")().cast<std::string>()),
        is_owner_(rref.attr("is_owner")().cast<bool>()) {}

  c10::worker_id_t owner() const override { return owner_; }
  std::string ownerName() const override { return owner_name_; }
  bool isOwner() const override { return is_owner_; }
  bool confirmedByOwner() const override {
    py::gil_scoped_acquire gil;
    return rref_.get().attr("confirmed_by_owner")().cast<bool>();
  }
  const c10::TypePtr type() const override { return type_; }
  py::object python() const { return rref_.get(); }

  c10::IValue to_here(double timeout_s) const {
    if (is_owner_) return local_value();
    py::gil_scoped_acquire gil;
    return jit::toIValue(rref_.get().attr("to_here")(timeout_s), type_);
  }
  c10::IValue local_value() const {
    py::gil_scoped_acquire gil;
    if (!is_owner_) throw std::runtime_error("Can't call RRef.local_value() on a non-owner RRef.");
    const py::object value = rref_.get().attr("_kept_value")();
    if (py::isinstance<ScriptValue>(value)) return value.cast<const ScriptValue&>().value;
    return jit::toIValue(value, type_);
  }

 private:
  const Held rref_;
  const c10::TypePtr type_;
  const c10::worker_id_t owner_;
  const std::string owner_name_;
  const bool is_owner_;
};

c10::intrusive_ptr<ScriptRRef> pop_rref(jit::Stack& stack) {
  auto rref = c10::dynamic_intrusive_pointer_cast<ScriptRRef>(jit::pop(stack).toRRef());
  if (!rref) throw std::runtime_error("this RRef is not Holdfast's");
  return rref;
}

// What the two languages give each other, with our RRefs. Both with the GIL.
py::object to_python(c10::IValue value) {
  if (value.isRRef()) {
    auto rref = c10::dynamic_intrusive_pointer_cast<ScriptRRef>(value.toRRef());
    if (rref) return rref->python();
  }
  if (value.isTuple() && !value.type()->cast<c10::TupleType>()->schema()) {
    const auto& elements = value.toTupleRef().elements();
    py::tuple tuple(elements.size());
    for (size_t i = 0; i < elements.size(); ++i) tuple[i] = to_python(elements[i]);
    return tuple;
  }
  return jit::toPyObject(std::move(value));
}

c10::IValue to_script(py::handle object, const c10::TypePtr& type) {
  if (auto rref = type->cast<c10::RRefType>()) {
    return c10::intrusive_ptr<c10::RRefInterface>(
        c10::make_intrusive<ScriptRRef>(py::reinterpret_borrow<py::object>(object), rref->getElementType()));
  }
  return jit::toIValue(object, type);
}

// A call, as it stands on the stack: the worker, the function's name, then as much as the script has given of args,
// kwargs and timeout.
struct ScriptCall {
  std::string name;
  py::tuple python;
};

// With the GIL.
ScriptCall pop_call(jit::Stack& stack, size_t count) {
  auto inputs = jit::pop(stack, count);
  ScriptCall call{.name = inputs.at(1).toStringRef(), .python = py::tuple(5)};
  const py::object absent[] = {py::none(), py::none(), py::tuple(), py::dict(), py::float_(-1.0)};
  for (size_t i = 0; i < 5; ++i) {
    call.python[i] = i < inputs.size() ? to_python(std::move(inputs[i])) : absent[i];
  }
  return call;
}

c10::TypePtr result_type(const std::string& name) {
  jit::Function* function = jit::get_python_cu()->find_function(c10::QualifiedName(name));
  if (function == nullptr) throw std::runtime_error("there is no TorchScript function " + name);
  return function->getSchema().returns().at(0).type();
}

c10::intrusive_ptr<c10::ivalue::Future> start_call(jit::Stack& stack, size_t count) {
  py::gil_scoped_acquire gil;
  ScriptCall call = pop_call(stack, count);
  auto result = c10::make_intrusive<c10::ivalue::Future>(result_type(call.name));
  py::object future = script_handlers().call.get()(*call.python);
  future.attr("add_done_callback")(py::cpp_function([result](const py::object& done) {
    try {
      c10::IValue value = jit::toIValue(done.attr("value")(), result->elementType());
      py::gil_scoped_release release;
      result->markCompleted(std::move(value));
    } catch (py::error_already_set& error) {
      auto problem = std::make_exception_ptr(std::runtime_error(error.what()));
      py::gil_scoped_release release;
      result->setError(problem);
    } catch (const std::exception& error) {
      auto problem = std::make_exception_ptr(std::runtime_error(error.what()));
      py::gil_scoped_release release;
      result->setError(problem);
    }
  }));
  return result;
}

// Python's errors as those of a script.
template <class F>
auto with_script_errors(F&& run) {
  try {
    return run();
  } catch (py::error_already_set& error) {
    py::gil_scoped_acquire gil;
    throw std::runtime_error(error.what());
  }
}

jit::Operation call_async(const jit::Node* node) {
  return [count = node->inputs().size()](jit::Stack& stack) {
    with_script_errors([&] { jit::push(stack, start_call(stack, count)); });
  };
}

jit::Operation call_sync(const jit::Node* node) {
  return [count = node->inputs().size()](jit::Stack& stack) {
    auto future = with_script_errors([&] { return start_call(stack, count); });
    future->wait();
    if (future->hasError()) std::rethrow_exception(future->exception_ptr());
    jit::push(stack, future->value());
  };
}

jit::Operation call_remote(const jit::Node* node) {
  return [count = node->inputs().size()](jit::Stack& stack) {
    with_script_errors([&] {
      py::gil_scoped_acquire gil;
      ScriptCall call = pop_call(stack, count);
      py::object rref = script_handlers().remote.get()(*call.python);
      jit::push(stack, c10::IValue(c10::intrusive_ptr<c10::RRefInterface>(
                           c10::make_intrusive<ScriptRRef>(rref, result_type(call.name)))));
    });
  };
}

// A TorchScript function of this program, some of whose arguments are our RRefs, or whose result stays here (`keep`).
py::object run_script_function(const std::string& name, const py::tuple& args, const py::dict& kwargs, bool keep) {
  jit::Function* function = jit::get_python_cu()->find_function(c10::QualifiedName(name));
  if (function == nullptr) throw std::runtime_error("attempted to get undefined function " + name);
  const auto& parameters = function->getSchema().arguments();
  jit::Stack stack;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i < args.size()) {
      stack.push_back(to_script(args[i], parameters[i].type()));
    } else if (kwargs.contains(parameters[i].name().c_str())) {
      stack.push_back(to_script(kwargs[parameters[i].name().c_str()], parameters[i].type()));
    } else if (parameters[i].default_value()) {
      stack.push_back(*parameters[i].default_value());
    } else {
      throw std::runtime_error(name + "() is missing value for argument '" + parameters[i].name() + "'");
    }
  }
  c10::IValue result;
  {
    py::gil_scoped_release release;
    result = (*function)(std::move(stack));
  }
  if (keep && (result.isList() || result.isGenericDict())) return py::cast(ScriptValue{std::move(result)});
  return to_python(std::move(result));
}

// Takes the place of the operators of that name.
void replace(jit::Operator&& with) {
  const c10::Symbol symbol = c10::Symbol::fromQualString(with.schema().name());
  for (const auto& known : jit::getAllOperatorsFor(symbol)) {
    if (known->schema().arguments().size() == with.schema().arguments().size()) {
      jit::deregisterOperator(known->schema());
    }
  }
  jit::registerOperator(std::move(with));
}

void install_script_operators(py::object call, py::object remote, py::object get_gradients, py::object backward) {
  script_handlers() = {.call = Held(std::move(call)),
                       .remote = Held(std::move(remote)),
                       .get_gradients = Held(std::move(get_gradients)),
                       .backward = Held(std::move(backward))};
  const auto special = c10::AliasAnalysisKind::INTERNAL_SPECIAL_CASE;
  const auto schema = c10::AliasAnalysisKind::FROM_SCHEMA;
  replace(jit::Operator(c10::prim::rpc_async, call_async, special));
  replace(jit::Operator(c10::prim::rpc_sync, call_sync, special));
  replace(jit::Operator(c10::prim::rpc_remote, call_remote, special));
  replace(jit::Operator(
      "aten::to_here(RRef(t) self, float timeout=-1.0) -> t(*)",
      [](jit::Stack& stack) {
        const double timeout_s = jit::pop(stack).toDouble();
        auto rref = pop_rref(stack);
        with_script_errors([&] { jit::push(stack, rref->to_here(timeout_s)); });
      },
      schema));
  replace(jit::Operator(
      "aten::local_value(RRef(t) self) -> t(*)",
      [](jit::Stack& stack) {
        auto rref = pop_rref(stack);
        with_script_errors([&] { jit::push(stack, rref->local_value()); });
      },
      schema));
  replace(jit::Operator(
      "aten::confirmed_by_owner(RRef(t) self) -> bool",
      [](jit::Stack& stack) { jit::push(stack, pop_rref(stack)->confirmedByOwner()); }, schema));
  replace(jit::Operator(
      "aten::get_gradients(int context_id) -> Dict(Tensor, Tensor)",
      [](jit::Stack& stack) {
        const int64_t context = jit::pop(stack).toInt();
        with_script_errors([&] {
          py::gil_scoped_acquire gil;
          jit::push(stack, jit::toIValue(script_handlers().get_gradients.get()(context),
                                         c10::DictType::create(c10::TensorType::get(), c10::TensorType::get())));
        });
      },
      c10::AliasAnalysisKind::CONSERVATIVE));
  replace(jit::Operator(
      "aten::dist_backward(int context_id, Tensor[] roots, bool retain_graph=False) -> ()",
      [](jit::Stack& stack) {
        const bool retain_graph = jit::pop(stack).toBool();
        const std::vector<at::Tensor> roots = jit::pop(stack).toTensorVector();
        const int64_t context = jit::pop(stack).toInt();
        with_script_errors([&] {
          py::gil_scoped_acquire gil;
          script_handlers().backward.get()(context, roots, retain_graph);
        });
      },
      c10::AliasAnalysisKind::CONSERVATIVE));
}

}  // namespace

void bind_script_ops(py::module_& module) {
  py::class_<ScriptValue>(module, "ScriptValue").def("python", [](const ScriptValue& self) {
    return jit::toPyObject(self.value);
  });
  module.def("install_script_operators", &install_script_operators);
  module.def("run_script_function", &run_script_function);
}

}  // namespace holdfast::python
