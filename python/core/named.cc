// Functions by name and signature, in the wire's own words: Python calls functions of C++ programs, and C++ programs
// call Python functions (Peer::call_named), without pickle. "(str, tensor) -> f64" is what both sides must agree on;
// the values are numbers, text, bytes, tensors, and lists and maps of them.
#include <torch/csrc/autograd/python_variable.h>

#include <map>
#include <mutex>
#include <string>
#include <variant>

#include "calls.h"
#include "errors.h"
#include "worker.h"

namespace holdfast::python {

namespace {

// A value of any type that MessagePack has, or a tensor.
struct Plain;
using PlainList = std::vector<Plain>;
using PlainMap = std::vector<std::pair<Plain, Plain>>;
struct Plain {
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Bytes, at::Tensor, PlainList, PlainMap>
      value;
};

}  // namespace

}  // namespace holdfast::python

template <>
struct holdfast::wire::Codec<holdfast::python::Plain> {
  using Plain = holdfast::python::Plain;
  static constexpr bool kMayBeNil = true;
  static std::string type_name() { return "plain"; }

  static void encode(Writer& writer, const Plain& plain) {
    std::visit([&](const auto& value) { write(writer, value); }, plain.value);
  }

  static void decode(Reader& reader, Plain& out) {
    reader.enter();
    switch (reader.peek()) {
      case Type::nil: reader.nil(); break;
      case Type::boolean: out.value = reader.boolean(); break;
      case Type::integer: out.value = reader.integer(); break;
      case Type::floating: out.value = reader.float64(); break;
      case Type::string: out.value = std::string(reader.string()); break;
      case Type::binary: read(reader, out.value.emplace<Bytes>()); break;
      case Type::array: read_list(reader, out.value.emplace<holdfast::python::PlainList>()); break;
      case Type::map: read_map(reader, out.value.emplace<holdfast::python::PlainMap>()); break;
      default: read(reader, out.value.emplace<at::Tensor>());
    }
    reader.leave();
  }

 private:
  static void write(Writer& writer, std::monostate) { writer.nil(); }
  static void write(Writer& writer, const holdfast::python::PlainList& list) {
    writer.enter();
    writer.array_header(list.size());
    for (const Plain& item : list) encode(writer, item);
    writer.leave();
  }
  static void write(Writer& writer, const holdfast::python::PlainMap& map) {
    writer.enter();
    writer.map_header(map.size());
    for (const auto& [key, value] : map) {
      encode(writer, key);
      encode(writer, value);
    }
    writer.leave();
  }
  template <class T>
  static void write(Writer& writer, const T& value) {
    wire::encode(writer, value);
  }

  template <class T>
  static void read(Reader& reader, T& out) {
    wire::decode(reader, out);
  }
  // The counts are a peer's: no room is made before the items are there.
  static void read_list(Reader& reader, holdfast::python::PlainList& out) {
    const uint32_t count = reader.array_header();
    for (uint32_t i = 0; i < count && reader.ok(); ++i) decode(reader, out.emplace_back());
  }
  static void read_map(Reader& reader, holdfast::python::PlainMap& out) {
    const uint32_t count = reader.map_header();
    for (uint32_t i = 0; i < count && reader.ok(); ++i) {
      auto& [key, value] = out.emplace_back();
      decode(reader, key);
      decode(reader, value);
    }
  }
};

namespace holdfast::python {

namespace {

// ---- Python's values

Plain plain_from(py::handle object) {
  if (object.is_none()) return {};
  if (py::isinstance<py::bool_>(object)) return {object.cast<bool>()};
  if (py::isinstance<py::int_>(object)) return {object.cast<int64_t>()};
  if (py::isinstance<py::float_>(object)) return {object.cast<double>()};
  if (py::isinstance<py::str>(object)) return {object.cast<std::string>()};
  if (py::isinstance<py::bytes>(object)) {
    const auto text = object.cast<std::string>();
    return {Bytes(text.begin(), text.end())};
  }
  if (THPVariable_Check(object.ptr())) return {object.cast<at::Tensor>()};
  if (py::isinstance<py::dict>(object)) {
    PlainMap map;
    for (const auto& [key, value] : object.cast<py::dict>()) map.emplace_back(plain_from(key), plain_from(value));
    return {std::move(map)};
  }
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    PlainList list;
    for (py::handle item : object) list.push_back(plain_from(item));
    return {std::move(list)};
  }
  throw py::type_error("a " + py::str(py::type::of(object)).cast<std::string>() +
                       " cannot be sent to a function by name: numbers, text, bytes, tensors, lists and dicts can");
}

py::object to_object(const Plain& plain);

struct ToObject {
  py::object operator()(std::monostate) const { return py::none(); }
  py::object operator()(const Bytes& bytes) const {
    return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  py::object operator()(const PlainList& list) const {
    py::list result;
    for (const Plain& item : list) result.append(to_object(item));
    return result;
  }
  py::object operator()(const PlainMap& map) const {
    py::dict result;
    for (const auto& [key, value] : map) result[to_object(key)] = to_object(value);
    return result;
  }
  template <class T>
  py::object operator()(const T& value) const {
    return py::cast(value);
  }
};

py::object to_object(const Plain& plain) { return std::visit(ToObject(), plain.value); }

// ---- calls

py::object call_named(const WorkerHandle& handle, int rank, const std::string& name, const std::string& signature,
                      const py::args& args, double timeout_s) {
  PlainList values;
  for (py::handle arg : args) values.push_back(plain_from(arg));
  Plain result;
  {
    py::gil_scoped_release release;
    const Peer peer = handle.peer(rank, timeout_s);
    const auto state = handle.worker().host().peer_state(std::make_shared<const WorkerInfo>(peer.info()));
    const Function& function = name_function(name, signature);
    std::shared_ptr<Message> message = rpc_detail::begin_call(kCall, function);
    SendContext context(*state->host, state->worker, kCall);
    wire::Writer writer(*message, &context);
    for (const Plain& value : values) wire::encode(writer, value);
    context.finish(*message);
    result = rpc_detail::finish_call<Plain>(*state, function, std::move(message), duration_of(timeout_s)).take();
  }
  return to_object(result);
}

// The Python functions that others call by name; by the text of their entry in the program's table. Only grows.
class Exports {
 public:
  static Exports& instance() {
    static auto* exports = new Exports;
    return *exports;
  }
  void add(const std::string& text, Held function) {
    std::lock_guard lock(mutex_);
    functions_[text] = std::move(function);
  }
  Held find(const std::string& text) {
    std::lock_guard lock(mutex_);
    return functions_.at(text);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Held> functions_;
};

Plain run_exported(const std::string& text, const PlainList& values) {
  py::gil_scoped_acquire gil;
  try {
    py::tuple args(values.size());
    for (size_t i = 0; i < values.size(); ++i) args[i] = to_object(values[i]);
    return plain_from(Exports::instance().find(text).get()(*args));
  } catch (py::error_already_set& error) {
    const auto type = py::str(error.type().attr("__name__")).cast<std::string>();
    throw_failure({.code = Code::remote_error, .message = error.what(), .worker = {}, .type = type});
  }
}

void serve_exported(const std::shared_ptr<ServedCall>& call) {
  ReceiveContext context(call->host, call->caller, call->message);
  wire::Reader reader(call->arguments(), call->message.attachments, &context);
  PlainList values;
  while (reader.ok() && reader.remaining() > 0) wire::decode(reader, values.emplace_back());
  if (!reader.ok()) {
    return call->respond(Failure{.code = Code::corrupt, .message = "the arguments do not decode: " + reader.error()});
  }
  rpc_detail::respond_with<Plain>(*call, [&] { return run_exported(call->function.text(), values); });
}

void export_function(const std::string& name, const std::string& signature, py::object function) {
  Exports::instance().add(name + signature, Held(std::move(function)));
  add_function(name, signature, &serve_exported);
}

}  // namespace

void bind_named(py::module_& module) {
  module.def("call_named", [](const WorkerHandle& handle, int rank, const std::string& name,
                              const std::string& signature, double timeout_s, const py::args& args) {
    return call_named(handle, rank, name, signature, args, timeout_s);
  });
  module.def("export_function", &export_function);
}

}  // namespace holdfast::python
