#include <holdfast/optim/state.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include <ATen/core/Dict.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <holdfast/base/error.h>

namespace holdfast::optim {

namespace {

constexpr const char* kMark = "holdfast_optimizer_state";  // its value is the version of the format
constexpr int64_t kVersion = 1;

using Dict = c10::impl::GenericDict;
using List = c10::impl::GenericList;

Dict new_dict() { return Dict(c10::StringType::get(), c10::AnyType::get()); }
List new_list() { return List(c10::AnyType::get()); }

Dict to_dict(const Values& values) {
  Dict dict = new_dict();
  for (const auto& [name, value] : values) {
    dict.insert(name, std::visit([](const auto& held) { return c10::IValue(held); }, value));
  }
  return dict;
}

[[noreturn]] void throw_not_a_state(const std::string& what) {
  throw_failure({.code = Code::invalid_argument, .message = what});
}

Dict dict_of(const c10::IValue& value) {
  if (!value.isGenericDict()) throw_not_a_state("expected a dictionary, found " + value.tagKind());
  return value.toGenericDict();
}

std::string string_of(const c10::IValue& value) {
  if (!value.isString()) throw_not_a_state("expected a string, found " + value.tagKind());
  return value.toStringRef();
}

c10::IValue entry(const Dict& dict, const char* name) {
  if (!dict.contains(name)) throw_not_a_state(fmt::format("it has no '{}'", name));
  return dict.at(name);
}

Value to_value(const c10::IValue& value) {
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isTensor()) return value.toTensor();
  if (value.isDoubleList()) return value.toDoubleVector();
  if (value.isTensorList()) return value.toTensorVector();
  throw_not_a_state("a value of type " + value.tagKind());
}

Values to_values(const c10::IValue& value) {
  Values values;
  for (const auto& item : dict_of(value)) values.emplace(string_of(item.key()), to_value(item.value()));
  return values;
}

List list_of(const c10::IValue& value) {
  if (!value.isList()) throw_not_a_state("expected a list, found " + value.tagKind());
  return value.toList();
}

c10::IValue to_ivalue(const State& state) {
  List groups = new_list();
  for (const GroupState& group : state.groups) {
    Dict owners = new_dict();
    for (const auto& [owner, options] : group.owner_options) owners.insert(owner, to_dict(options));
    List parameters = new_list();
    for (const Values& parameter : group.parameters) parameters.push_back(to_dict(parameter));
    Dict dict = new_dict();
    dict.insert("options", to_dict(group.options));
    dict.insert("owner_options", owners);
    dict.insert("parameters", parameters);
    groups.push_back(dict);
  }
  Dict all = new_dict();
  all.insert(kMark, kVersion);
  all.insert("kind", state.kind);
  all.insert("groups", groups);
  return all;
}

State to_state(const c10::IValue& value) {
  const Dict all = dict_of(value);
  if (!all.contains(kMark)) throw_not_a_state(fmt::format("it has no '{}'", kMark));
  const c10::IValue version = all.at(kMark);
  if (!version.isInt() || version.toInt() != kVersion) throw_not_a_state("it has another version of the format");
  State state{.kind = string_of(entry(all, "kind")), .groups = {}};
  for (const c10::IValue& item : list_of(entry(all, "groups"))) {
    const Dict dict = dict_of(item);
    GroupState& group = state.groups.emplace_back();
    group.options = to_values(entry(dict, "options"));
    for (const auto& owner : dict_of(entry(dict, "owner_options"))) {
      group.owner_options.emplace(string_of(owner.key()), to_values(owner.value()));
    }
    for (const c10::IValue& parameter : list_of(entry(dict, "parameters"))) {
      group.parameters.push_back(to_values(parameter));
    }
  }
  return state;
}

[[noreturn]] void throw_unavailable(const std::string& what, const std::string& path) {
  throw_failure({.code = Code::unavailable, .message = fmt::format("cannot {} {}: {}", what, path, strerror(errno))});
}

}  // namespace

void write_state(const State& state, const std::string& path) {
  const std::vector<char> bytes = torch::jit::pickle_save(to_ivalue(state));
  const std::string unfinished = path + ".unfinished";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw_unavailable("write", unfinished);
  }
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) throw_unavailable("replace", path);
}

State read_state(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw_unavailable("read", path);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto refuse = [&](const std::string& why) {
    throw_not_a_state(fmt::format("{} is not the state of an optimizer: {}", path, why));
  };
  try {
    return to_state(torch::jit::pickle_load(bytes));
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  } catch (const std::exception& error) {
    refuse(error.what());
  }
  return {};
}

}  // namespace holdfast::optim
