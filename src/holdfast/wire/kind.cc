#include <holdfast/wire/kind.h>

namespace holdfast {

void KindNames::add(std::span<const KindName> names) { names_.insert(names_.end(), names.begin(), names.end()); }

std::string KindNames::name(Kind kind) const {
  for (const KindName& entry : names_) {
    if (entry.kind == kind) return std::string(entry.name);
  }
  return "KIND " + std::to_string(kind.value);
}

const Kind* KindNames::find(std::string_view name) const {
  for (const KindName& entry : names_) {
    if (entry.name == name) return &entry.kind;
  }
  return nullptr;
}

std::string KindNames::all() const {
  std::string text;
  for (const KindName& entry : names_) {
    if (!text.empty()) text += ", ";
    text += entry.name;
  }
  return text;
}

}  // namespace holdfast
