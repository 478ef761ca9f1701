#include <holdfast/tensor/script_source.h>

#include <set>
#include <string_view>
#include <utility>

#include <ATen/core/class_type.h>
#include <ATen/core/enum_type.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/frontend/lexer.h>
#include <torch/csrc/jit/frontend/parser.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/frontend/script_type_parser.h>
#include <torch/csrc/jit/frontend/sugared_value.h>
#include <torch/csrc/jit/frontend/tree_views.h>
#include <torch/csrc/jit/ir/ir.h>

#include <holdfast/base/error.h>

namespace holdfast {

namespace {

namespace jit = torch::jit;

const char* const kNamespace = "__torch__";
// That a script may raise.
const std::set<std::string_view> kExceptions = {"AssertionError",      "Exception",    "IndexError", "KeyError",
                                                "NotImplementedError", "RuntimeError", "TypeError",  "ValueError"};

// "torch" in a script: its operators, and the dtypes, which are ints.
struct TorchModule final : jit::BuiltinModule {
  TorchModule() : jit::BuiltinModule("aten") {}

  std::shared_ptr<jit::SugaredValue> attr(const jit::SourceRange& place, jit::GraphFunction& method,
                                          const std::string& field) override {
    static const std::map<std::string, at::ScalarType> kDtypes = {
        {"uint8", at::kByte},        {"int8", at::kChar},     {"int16", at::kShort},
        {"short", at::kShort},       {"int32", at::kInt},     {"int", at::kInt},
        {"int64", at::kLong},        {"long", at::kLong},     {"float16", at::kHalf},
        {"half", at::kHalf},         {"float32", at::kFloat}, {"float", at::kFloat},
        {"float64", at::kDouble},    {"double", at::kDouble}, {"complex64", at::kComplexFloat},
        {"bfloat16", at::kBFloat16}, {"bool", at::kBool},     {"complex128", at::kComplexDouble},
    };
    const auto dtype = kDtypes.find(field);
    if (dtype == kDtypes.end()) return jit::BuiltinModule::attr(place, method, field);
    return std::make_shared<jit::SimpleValue>(method.graph()->insertConstant(dtype->second, place));
  }
};

// What a name in the source stands for: what this unit has so far, then what was loaded before.
struct UnitResolver final : jit::Resolver {
  explicit UnitResolver(const ScriptUnit& unit) : unit(unit) {}

  std::shared_ptr<jit::SugaredValue> resolveValue(const std::string& name, jit::GraphFunction&,
                                                  const jit::SourceRange&) override {
    if (name == "torch") return std::make_shared<TorchModule>();
    if (name == "math") return std::make_shared<jit::BuiltinModule>("aten");
    if (kExceptions.count(name) != 0) return std::make_shared<jit::ExceptionValue>(name);
    if (jit::Function* function = find_function(name)) return std::make_shared<jit::FunctionValue>(function);
    const c10::NamedTypePtr type = find_type(name);
    if (!type) return nullptr;
    if (auto class_type = type->cast<c10::ClassType>()) return std::make_shared<jit::ClassValue>(class_type);
    if (auto enum_type = type->cast<c10::EnumType>()) return std::make_shared<jit::SugaredEnumClass>(enum_type);
    return std::make_shared<jit::NamedTupleConstructor>(type->expect<c10::TupleType>());
  }

  c10::TypePtr resolveType(const std::string& name, const jit::SourceRange&) override { return find_type(name); }

  jit::Function* find_function(const std::string& name) const {
    if (auto found = unit.functions.find(name); found != unit.functions.end()) return found->second;
    for (const auto& other : unit.earlier) {
      if (auto found = other->functions.find(name); found != other->functions.end()) return found->second;
    }
    return nullptr;
  }
  c10::NamedTypePtr find_type(const std::string& name) const {
    if (auto found = unit.types.find(name); found != unit.types.end()) return found->second;
    for (const auto& other : unit.earlier) {
      if (auto found = other->types.find(name); found != other->types.end()) return found->second;
    }
    return nullptr;
  }

  const ScriptUnit& unit;
};

[[noreturn]] void refuse(const jit::SourceRange& place, const std::string& problem) {
  throw jit::ErrorReport(place) << problem;
}

// Does a name stand anywhere in that piece of source?
bool mentions(const jit::TreeRef& tree, const std::string& name) {
  if (tree->kind() == jit::TK_STRINGLITERAL) return false;
  if (tree->isAtom()) return tree->kind() == jit::TK_STRING && tree->stringValue() == name;
  for (const jit::TreeRef& part : tree->trees()) {
    if (mentions(part, name)) return true;
  }
  return false;
}

class SourceCompiler {
 public:
  explicit SourceCompiler(const std::shared_ptr<ScriptUnit>& unit)
      : unit_(*unit), code_(unit, &unit->code), resolver_(std::make_shared<UnitResolver>(*unit)) {}

  void compile(const std::string& source, const std::string& file) {
    jit::Parser parser(std::make_shared<jit::Source>(source, file, 1));
    std::vector<jit::Def> functions;  // that follow each other, and are compiled together
    while (parser.lexer().cur().kind != jit::TK_EOF) {
      if (parser.lexer().cur().kind == jit::TK_CLASS_DEF) {
        define_functions(std::exchange(functions, {}));
        define_class(jit::ClassDef(parser.parseClass()));
      } else {
        functions.emplace_back(parser.parseFunction(/*is_method=*/false));
      }
    }
    define_functions(functions);
  }

 private:
  static c10::QualifiedName qualified(const std::string& name) {
    return c10::QualifiedName(c10::QualifiedName(kNamespace), name);
  }

  void define_functions(const std::vector<jit::Def>& definitions) {
    if (definitions.empty()) return;
    const std::vector<jit::ResolverPtr> resolvers(definitions.size(), resolver_);
    for (jit::Function* function :
         code_->define(c10::QualifiedName(kNamespace), {}, {}, definitions, resolvers, /*self=*/nullptr)) {
      unit_.functions.emplace(function->name(), function);
    }
  }

  void define_class(const jit::ClassDef& definition) {
    const std::string base = definition.superclass().present() ? base_of(definition) : "";
    if (base == "NamedTuple") return define_named_tuple(definition);
    if (base == "Enum") return define_enum(definition);
    if (!base.empty() && base != "object") refuse(definition.range(), "a class cannot be derived from " + base);
    define_plain_class(definition);
  }

  static std::string base_of(const jit::ClassDef& definition) {
    const jit::Expr base = definition.superclass().get();
    if (base.kind() != jit::TK_VAR) refuse(base.range(), "the base of a class is a name");
    return jit::Var(base).name().name();
  }

  // The "name: type = value" of a statement in a class.
  struct Field {
    std::string name;
    c10::TypePtr type;  // null: none is given
    jit::Maybe<jit::Expr> value;
  };
  Field read_field(const jit::Stmt& statement) const {
    if (statement.kind() != jit::TK_ASSIGN) refuse(statement.range(), "only fields can stand here");
    const jit::Assign assign(statement);
    if (assign.lhs_list().size() != 1 || assign.lhs().kind() != jit::TK_VAR) {
      refuse(statement.range(), "a field is a name");
    }
    c10::TypePtr type;
    if (assign.type().present()) {
      type = jit::ScriptTypeParser(resolver_).parseTypeFromExpr(assign.type().get());
    }
    return {jit::Var(assign.lhs()).name().name(), type, assign.rhs()};
  }

  void define_named_tuple(const jit::ClassDef& definition) {
    std::vector<std::string> names;
    std::vector<c10::TypePtr> types;
    for (const jit::Stmt& statement : definition.body()) {
      const Field field = read_field(statement);
      if (!field.type || field.value.present()) refuse(statement.range(), "a field here is a name and a type");
      names.push_back(field.name);
      types.push_back(field.type);
    }
    add_type(definition, c10::TupleType::createNamed(qualified(definition.name().name()), names, types));
  }

  void define_enum(const jit::ClassDef& definition) {
    std::vector<c10::EnumNameValue> values;
    for (const jit::Stmt& statement : definition.body()) {
      const Field field = read_field(statement);
      if (!field.value.present()) refuse(statement.range(), "an enumerator needs a value");
      values.emplace_back(field.name, constant(field.value.get()));
    }
    if (values.empty()) refuse(definition.range(), "an enum without enumerators");
    const c10::TypePtr type = values[0].second.type();
    for (const auto& [name, value] : values) {
      if (*value.type() != *type) refuse(definition.range(), "the values of an enum are all of one type");
    }
    add_type(definition, c10::EnumType::create(qualified(definition.name().name()), type, values, code_));
  }

  static c10::IValue constant(const jit::Expr& expression) {
    if (expression.kind() == jit::TK_STRINGLITERAL) return jit::StringLiteral(expression).text();
    if (expression.kind() == jit::TK_CONST) {
      const jit::Const number(expression);
      if (number.isIntegral()) return number.asIntegral();
      if (number.isFloatingPoint()) return number.asFloatingPoint();
    }
    refuse(expression.range(), "the value of an enumerator is a number or a string");
  }

  // Its attributes are those that it declares, and those that __init__ sets.
  void define_plain_class(const jit::ClassDef& definition) {
    const std::string name = definition.name().name();
    const auto type = c10::ClassType::create(qualified(name), code_);
    add_type(definition, type);
    std::vector<jit::Def> methods;
    for (const jit::Stmt& statement : definition.body()) {
      const bool is_method = statement.kind() == jit::TK_DEF;
      // libtorch's compiler runs out of stack on an attribute whose type has the class in it.
      if ((!is_method || jit::Def(statement).name().name() == "__init__") && mentions(statement.tree(), name)) {
        refuse(statement.range(), "an object cannot hold another of its own class in TorchScript");
      }
      if (is_method) {
        methods.emplace_back(jit::Def(statement));
        continue;
      }
      const Field field = read_field(statement);
      if (!field.type || field.value.present()) {
        refuse(statement.range(), "an attribute here is a name and a type; it gets its value in __init__");
      }
      type->addAttribute(field.name, field.type);
    }
    const jit::SimpleSelf self(type);
    const std::vector<jit::ResolverPtr> resolvers(methods.size(), resolver_);
    for (jit::Function* method : code_->define(qualified(name), {}, {}, methods, resolvers, &self)) {
      unit_.functions.emplace(name + "." + method->name(), method);
    }
  }

  void add_type(const jit::ClassDef& definition, const c10::NamedTypePtr& type) {
    if (!unit_.types.emplace(definition.name().name(), type).second) {
      refuse(definition.range(), definition.name().name() + " is defined twice");
    }
    code_->register_type(type);
  }

  ScriptUnit& unit_;
  const std::shared_ptr<jit::CompilationUnit> code_;  // of the unit, which it keeps
  const jit::ResolverPtr resolver_;
};

[[noreturn]] void does_not_compile(const std::string& file, const char* why) {
  throw_failure({.code = Code::invalid_argument, .message = file + " does not compile: " + why});
}

}  // namespace

std::shared_ptr<const ScriptUnit> compile_source(const std::string& source, const std::string& file,
                                                 std::vector<std::shared_ptr<const ScriptUnit>> earlier) {
  auto unit = std::make_shared<ScriptUnit>();
  unit->earlier = std::move(earlier);
  try {
    SourceCompiler(unit).compile(source, file);
  } catch (const c10::Error& error) {
    does_not_compile(file, error.what_without_backtrace());
  } catch (const std::exception& error) {  // of many kinds
    does_not_compile(file, error.what());
  }
  return unit;
}

}  // namespace holdfast
