// Function: what can be called on a worker. The table of functions belongs to the program, like its code: it
// is filled before main() by the functions that are named in calls or exported, and only ever grows.
// (It holds no state of any worker, so any number of workers in one process share it.)
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <typeinfo>
#include <vector>

#include <holdfast/rpc/run_history.h>

namespace holdfast {

class ServedCall;

struct Function {
  std::string name;       // "ns::scale"
  std::string signature;  // "(f64, list<i64>) -> str", in the wire's own words
  uint64_t id = 0;        // of the name
  uint64_t signature_id = 0;
  // Decodes the arguments, runs the function and responds, now or later. Null for a function that this
  // program only calls.
  void (*invoke)(const std::shared_ptr<ServedCall>&) = nullptr;
  mutable RunHistory history;

  std::string text() const { return name + signature; }
};

// 64-bit FNV-1a: how names and signatures become ids, in every language.
constexpr uint64_t text_id(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Adds a function to the program's table. The same name, signature and code again: the entry that is there.
// The same name with another signature is an overload. The same name and signature with other code (two
// functions in unnamed namespaces, say) is kept but ambiguous: calling it is an error that says so.
const Function& add_function(std::string name, std::string signature,
                             void (*invoke)(const std::shared_ptr<ServedCall>&));
// A function that may exist only elsewhere: for calls by name.
const Function& name_function(const std::string& name, const std::string& signature);

struct FunctionLookup {
  const Function* function = nullptr;  // the one to run
  std::string known_as;                // if there is none to run, or more than one: what there is under this name
  bool ambiguous = false;
};
FunctionLookup find_function(uint64_t id, uint64_t signature_id);

// "ns::scale" from the demangled name of a tag type that has the function as its template argument.
std::string function_name_from_tag(const std::type_info& tag);

}  // namespace holdfast
