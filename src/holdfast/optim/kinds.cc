// The table of kinds, and the fields of libtorch's own optimizers.
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <holdfast/base/error.h>
#include <holdfast/optim/fields.h>

namespace holdfast::optim {

namespace {

struct Kinds {
  std::mutex mutex;
  std::map<std::string, Kind> by_name;  // never erased: others hold references
};

// Belongs to the program, like its table of functions: it holds no state of any worker.
Kinds& kinds() {
  static Kinds* const instance = new Kinds;
  return *instance;
}

struct SgdFields {
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "torch::optim::SGD";
  static Options defaults() { return {1e-3}; }
  static void options(auto& field, auto& options) {
    field("lr", options.lr());
    field("momentum", options.momentum());
    field("dampening", options.dampening());
    field("weight_decay", options.weight_decay());
    field("nesterov", options.nesterov());
  }
  static void state(auto& field, auto& state) { field.like_parameter("momentum_buffer", state.momentum_buffer()); }
};

// Adam and AdamW have fields of the same names.
template <class Opt, class OptOptions, class OptState>
struct AnyAdamFields {
  using Optimizer = Opt;
  using Options = OptOptions;
  using State = OptState;
  static Options defaults() { return {}; }
  static void options(auto& field, auto& options) {
    field("lr", options.lr());
    field("betas", options.betas());
    field("eps", options.eps());
    field("weight_decay", options.weight_decay());
    field("amsgrad", options.amsgrad());
  }
  static void state(auto& field, auto& state) {
    field("step", state.step());
    field.like_parameter("exp_avg", state.exp_avg());
    field.like_parameter("exp_avg_sq", state.exp_avg_sq());
    field.like_parameter("max_exp_avg_sq", state.max_exp_avg_sq());
  }
};
struct AdamFields : AnyAdamFields<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* kName = "torch::optim::Adam";
};
struct AdamWFields : AnyAdamFields<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* kName = "torch::optim::AdamW";
};

struct AdagradFields {
  using Optimizer = torch::optim::Adagrad;
  using Options = torch::optim::AdagradOptions;
  using State = torch::optim::AdagradParamState;
  static constexpr const char* kName = "torch::optim::Adagrad";
  static Options defaults() { return {}; }
  static void options(auto& field, auto& options) {
    field("lr", options.lr());
    field("lr_decay", options.lr_decay());
    field("weight_decay", options.weight_decay());
    field("initial_accumulator_value", options.initial_accumulator_value());
    field("eps", options.eps());
  }
  static void state(auto& field, auto& state) {
    field("step", state.step());
    field.like_parameter("sum", state.sum());
  }
};

struct RmspropFields {
  using Optimizer = torch::optim::RMSprop;
  using Options = torch::optim::RMSpropOptions;
  using State = torch::optim::RMSpropParamState;
  static constexpr const char* kName = "torch::optim::RMSprop";
  static Options defaults() { return {}; }
  static void options(auto& field, auto& options) {
    field("lr", options.lr());
    field("alpha", options.alpha());
    field("eps", options.eps());
    field("weight_decay", options.weight_decay());
    field("momentum", options.momentum());
    field("centered", options.centered());
  }
  static void state(auto& field, auto& state) {
    field("step", state.step());
    field.like_parameter("square_avg", state.square_avg());
    field.like_parameter("momentum_buffer", state.momentum_buffer());
    field.like_parameter("grad_avg", state.grad_avg());
  }
};

struct LbfgsFields {
  using Optimizer = torch::optim::LBFGS;
  using Options = torch::optim::LBFGSOptions;
  using State = torch::optim::LBFGSParamState;
  static constexpr const char* kName = "torch::optim::LBFGS";
  static constexpr bool kNeedsClosure = true;
  static Options defaults() { return {}; }
  template <class FieldVisitor>
  static void options(FieldVisitor& field, auto& options) {
    field("lr", options.lr());
    field("max_iter", options.max_iter());
    field("max_eval", options.max_eval());
    field("tolerance_grad", options.tolerance_grad());
    field("tolerance_change", options.tolerance_change());
    field("history_size", options.history_size());
    field("line_search_fn", options.line_search_fn());
    if constexpr (FieldVisitor::kReading) {
      // Its constructor does the same, but these may replace the options of one that exists.
      if (!options.max_eval()) options.max_eval(options.max_iter() * 5 / 4);
    }
  }
  // Kept for the first parameter only; the tensors are as long as all parameters together.
  static void state(auto& field, auto& state) {
    field("func_evals", state.func_evals());
    field("n_iter", state.n_iter());
    field("t", state.t());
    field("prev_loss", state.prev_loss());
    field("d", state.d());
    field("H_diag", state.H_diag());
    field("prev_flat_grad", state.prev_flat_grad());
    field("old_dirs", state.old_dirs());
    field("old_stps", state.old_stps());
    field("ro", state.ro());
    field("al", state.al());
  }
};

}  // namespace

const Kind& add_kind(Kind kind) {
  Kinds& all = kinds();
  std::lock_guard lock(all.mutex);
  const std::string name = kind.name;
  return all.by_name.insert_or_assign(name, std::move(kind)).first->second;
}

const Kind& find_kind(const std::string& name) {
  Kinds& all = kinds();
  std::lock_guard lock(all.mutex);
  const auto found = all.by_name.find(name);
  if (found != all.by_name.end()) return found->second;
  std::string known;
  for (const auto& [other, kind] : all.by_name) known += (known.empty() ? "" : ", ") + other;
  throw_invalid(fmt::format("no optimizer {} in this program; there are: {}", name, known));
}

namespace fields_detail {

void throw_wrong_field(const std::string& kind, const std::string& name, const std::string& problem) {
  throw_invalid(fmt::format("{} of {}: {}", name, kind, problem));
}

void throw_unknown_field(const std::string& kind, const Values& values, const std::set<std::string>& known) {
  std::string unknown;
  for (const auto& [name, value] : values) {
    if (!known.contains(name)) unknown += (unknown.empty() ? "" : ", ") + name;
  }
  std::string names;
  for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
  throw_invalid(fmt::format("{} has no {}; it has {}", kind, unknown, names));
}

void check_shape(const std::string& kind, const std::string& name, const at::Tensor& tensor,
                 const at::Tensor& parameter) {
  if (tensor.sizes().equals(parameter.sizes())) return;
  const auto text = [](const at::Tensor& of) { return fmt::format("[{}]", fmt::join(of.sizes(), ", ")); };
  throw_wrong_field(kind, name, fmt::format("its shape is {}, the parameter's {}", text(tensor), text(parameter)));
}

}  // namespace fields_detail

#define HOLDFAST_OPTIMIZER_(Name, Fields)                                                                             \
  const Kind& Traits<torch::optim::Name>::kind() { return FromFields<Fields>::kind(); }                               \
  Values Traits<torch::optim::Name>::write_options(const Options& o) { return FromFields<Fields>::write_options(o); } \
  torch::optim::Name##Options Traits<torch::optim::Name>::read_options(const Values& values) {                        \
    return FromFields<Fields>::read_options(values);                                                                  \
  }
HOLDFAST_OPTIMIZER_(SGD, SgdFields)
HOLDFAST_OPTIMIZER_(Adam, AdamFields)
HOLDFAST_OPTIMIZER_(AdamW, AdamWFields)
HOLDFAST_OPTIMIZER_(Adagrad, AdagradFields)
HOLDFAST_OPTIMIZER_(RMSprop, RmspropFields)
HOLDFAST_OPTIMIZER_(LBFGS, LbfgsFields)
#undef HOLDFAST_OPTIMIZER_

}  // namespace holdfast::optim
