// How an optimizer's options and state become Values and back: its fields are listed once, by hand. For libtorch's own
// that is done in kinds.cc; a program does the same for an optimizer class of its own, on every worker:
//
//   struct MyFields {
//     using Optimizer = MyOptimizer;    // MyOptimizer(std::vector<torch::optim::OptimizerParamGroup>, MyOptions)
//     using Options = MyOptions;
//     using State = MyParamState;
//     static constexpr const char* kName = "MyOptimizer";
//     static Options defaults() { return {}; }
//     static void options(auto& field, auto& options) { field("lr", options.lr()); }
//     static void state(auto& field, auto& state) {
//       field("step", state.step());
//       field.like_parameter("average", state.average());  // a tensor of the parameter's shape
//     }
//   };
//   template <>
//   struct holdfast::optim::Traits<MyOptimizer> : holdfast::optim::FromFields<MyFields> {};
//
// Naming DistributedOptimizer<MyOptimizer> registers it; a program that only serves says
// HOLDFAST_EXPORT_OPTIMIZER(MyOptimizer).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <holdfast/optim/kind.h>

namespace holdfast::optim {

namespace fields_detail {

// The Value of a field of type T. write: none if the field is empty; read: false if the value does not fit.
template <class T>
struct Field {
  using Stored = T;
  static std::optional<Value> write(const T& field) { return Value(field); }
  static bool read(const Stored& value, T& field) { return field = value, true; }
};
template <>
struct Field<at::Tensor> {
  using Stored = at::Tensor;
  static std::optional<Value> write(const at::Tensor& field) {
    return field.defined() ? std::optional<Value>(field.detach().clone()) : std::nullopt;
  }
  static bool read(const at::Tensor& value, at::Tensor& field) {
    if (value.defined()) field = value.detach().clone();
    return value.defined();
  }
};
template <class Sequence>
struct TensorsField {
  using Stored = std::vector<at::Tensor>;
  static std::optional<Value> write(const Sequence& field) {
    Stored copies;
    for (const at::Tensor& tensor : field) copies.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
    return Value(std::move(copies));
  }
  static bool read(const Stored& value, Sequence& field) {
    field.clear();
    for (const at::Tensor& tensor : value) field.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
    return true;
  }
};
template <>
struct Field<std::vector<at::Tensor>> : TensorsField<std::vector<at::Tensor>> {};
template <>
struct Field<std::deque<at::Tensor>> : TensorsField<std::deque<at::Tensor>> {};
template <>
struct Field<std::tuple<double, double>> {
  using Stored = std::vector<double>;
  static std::optional<Value> write(const std::tuple<double, double>& field) {
    return Value(Stored{std::get<0>(field), std::get<1>(field)});
  }
  static bool read(const Stored& value, std::tuple<double, double>& field) {
    if (value.size() == 2) field = {value[0], value[1]};
    return value.size() == 2;
  }
};
// libtorch's optional is its own class in some versions.
template <class Optional>
requires requires(const Optional& field) { field.has_value(); }
struct Field<Optional> {
  using T = typename Optional::value_type;
  using Stored = typename Field<T>::Stored;
  static std::optional<Value> write(const Optional& field) {
    return field.has_value() ? Field<T>::write(*field) : std::nullopt;
  }
  static bool read(const Stored& value, Optional& field) {
    T inner{};
    const bool fits = Field<T>::read(value, inner);
    if (fits) field = std::move(inner);
    return fits;
  }
};

[[noreturn]] void throw_wrong_field(const std::string& kind, const std::string& name, const std::string& problem);
[[noreturn]] void throw_unknown_field(const std::string& kind, const Values& values,
                                      const std::set<std::string>& known);
// Throws InvalidArgument if the tensor has another shape.
void check_shape(const std::string& kind, const std::string& name, const at::Tensor& tensor,
                 const at::Tensor& parameter);

// What F::options and F::state call with each field, to write it:
class Writing {
 public:
  static constexpr bool kReading = false;
  template <class T>
  void operator()(const char* name, const T& field) {
    if (std::optional<Value> value = Field<T>::write(field)) values_.emplace(name, std::move(*value));
  }
  void like_parameter(const char* name, const at::Tensor& field) { (*this)(name, field); }
  Values take() { return std::move(values_); }

 private:
  Values values_;
};
// and to read it. A field that is not given stays as it is.
class Reading {
 public:
  static constexpr bool kReading = true;
  Reading(const char* kind, const Values& values, const at::Tensor* parameter = nullptr)
      : kind_(kind), values_(values), parameter_(parameter) {}

  template <class T>
  void operator()(const char* name, T& field) {
    known_.insert(name);
    const auto found = values_.find(name);
    if (found == values_.end()) return;
    const auto* value = std::get_if<typename Field<T>::Stored>(&found->second);
    if (value == nullptr || !Field<T>::read(on_device(*value), field)) {
      throw_wrong_field(kind_, name, "it has another type");
    }
  }
  void like_parameter(const char* name, at::Tensor& field) {
    (*this)(name, field);
    if (field.defined()) check_shape(kind_, name, field, *parameter_);
  }
  // At the end: whatever was given is one of the fields.
  void finish() const {
    for (const auto& [name, value] : values_) {
      if (!known_.contains(name)) throw_unknown_field(kind_, values_, known_);
    }
  }

 private:
  template <class T>
  const T& on_device(const T& value) const {
    return value;
  }
  at::Tensor on_device(const at::Tensor& value) const {
    return value.defined() && parameter_ != nullptr ? value.to(parameter_->device()) : value;
  }
  std::vector<at::Tensor> on_device(std::vector<at::Tensor> value) const {
    for (at::Tensor& tensor : value) tensor = on_device(static_cast<const at::Tensor&>(tensor));
    return value;
  }

  const char* const kind_;
  const Values& values_;
  const at::Tensor* const parameter_;
  std::set<std::string> known_;
};

}  // namespace fields_detail

// Makes Traits, and the Kind, out of the lists of fields.
template <class F>
struct FromFields {
  using Options = typename F::Options;
  using State = typename F::State;

  static const Kind& kind() { return entry; }

  static Values write_options(const Options& options) {
    fields_detail::Writing writing;
    F::options(writing, options);
    return writing.take();
  }
  static Options read_options(const Values& values) {
    Options options = F::defaults();
    fields_detail::Reading reading(F::kName, values);
    F::options(reading, options);
    reading.finish();
    return options;
  }

  static Kind make_kind() {
    Kind kind;
    kind.name = F::kName;
    kind.needs_closure = requires { requires F::kNeedsClosure; };
    kind.make = [](std::vector<at::Tensor> parameters,
                   const Values& options) -> std::unique_ptr<torch::optim::Optimizer> {
      std::vector<torch::optim::OptimizerParamGroup> groups;
      groups.emplace_back(std::move(parameters));
      return std::make_unique<typename F::Optimizer>(std::move(groups), read_options(options));
    };
    kind.read_options = [](const Values& values, torch::optim::OptimizerOptions& out) {
      static_cast<Options&>(out) = read_options(values);
    };
    kind.write_state = [](const torch::optim::OptimizerParamState& state) {
      fields_detail::Writing writing;
      F::state(writing, static_cast<const State&>(state));
      return writing.take();
    };
    kind.read_state = [](const Values& values,
                         const at::Tensor& parameter) -> std::unique_ptr<torch::optim::OptimizerParamState> {
      auto state = std::make_unique<State>();
      fields_detail::Reading reading(F::kName, values, &parameter);
      F::state(reading, *state);
      reading.finish();
      return state;
    };
    return kind;
  }
  static inline const Kind& entry = add_kind(make_kind());
};

}  // namespace holdfast::optim

// In a program that only serves.
#define HOLDFAST_EXPORT_OPTIMIZER(Optimizer) HOLDFAST_EXPORT_OPTIMIZER_2_(Optimizer, __COUNTER__)
#define HOLDFAST_EXPORT_OPTIMIZER_2_(Optimizer, number) HOLDFAST_EXPORT_OPTIMIZER_3_(Optimizer, number)
#define HOLDFAST_EXPORT_OPTIMIZER_3_(Optimizer, number) \
  [[maybe_unused]] static const auto& holdfast_export_optimizer_##number = ::holdfast::optim::Traits<Optimizer>::entry
