// The types that value.cc decodes, for it and for make_corpus.cc: a user's structs, one that contains itself, one that
// is anything, and one of everything.
#pragma once

#include <deque>
#include <list>

#include <holdfast/wire/codecs.h>

namespace holdfast::fuzz {

struct Tree {
  int64_t value = 0;
  std::string name;
  std::vector<Tree> children;
  HOLDFAST_FIELDS(Tree, value, name, children)
};

struct Anything {
  std::variant<std::monostate, bool, int64_t, double, std::string, Bytes, std::vector<Anything>,
               std::map<std::string, Anything>>
      value;
  HOLDFAST_FIELDS(Anything, value)
};

enum class Mode : uint8_t { a, b };

struct Everything {
  bool flag = true;
  int8_t small = -100;
  uint64_t big = UINT64_MAX;
  float f = 0.5F;
  double d = 0.1;
  char c = 'c';
  Mode mode = Mode::b;
  std::string text = "some text that is longer than thirty-two bytes";
  Bytes bytes = {1, 2, 3};
  std::optional<int> none;
  std::optional<std::string> some = "some";
  std::variant<int, std::string> either = "or";
  std::tuple<int, double, std::string> tuple = {-5, 1.5, "t"};
  std::array<int16_t, 3> array = {-300, 0, 300};
  std::vector<int> numbers = {1, 1000, -1000, 100000, -100000};
  std::vector<bool> flags = {true, false};
  std::deque<std::string> names = {"a", "b"};
  std::list<double> list = {1, 2};
  std::set<int> set = {1, 2, 3};
  std::unordered_set<std::string> hashed = {"x"};
  std::map<std::string, std::vector<int>> map = {{"k", {1, 2}}, {"l", {}}};
  std::unordered_map<int, int> table = {{1, 2}};
  std::chrono::milliseconds wait{1500};
  Tree tree = {1, "root", {{2, "leaf", {}}}};
  HOLDFAST_FIELDS(Everything, flag, small, big, f, d, c, mode, text, bytes, none, some, either, tuple, array, numbers,
                  flags, names, list, set, hashed, map, table, wait, tree)
};

using Numbers = std::vector<std::optional<std::pair<double, bool>>>;
using Lists = std::map<int64_t, std::vector<std::string>>;

}  // namespace holdfast::fuzz
