#include <holdfast/rref/debug_info.h>

#include <map>

#include <fmt/format.h>

namespace holdfast {

namespace {

// "worker1, worker2 (3 references)"
std::string holders_text(const std::vector<std::string>& holders) {
  std::map<std::string, size_t> counts;
  for (const std::string& holder : holders) ++counts[holder];
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + name;
    if (count > 1) text += fmt::format(" ({} references)", count);
  }
  return text;
}

}  // namespace

std::string DebugInfo::owned_text() const {
  std::string text;
  for (const OwnedObject& object : owned) {
    text += fmt::format("  object {} {}{}, {}, made by {}", text_of(object.id), object.type,
                        object.type.empty() ? "?" : "", object.state, object.made_by);
    if (!object.holders.empty()) text += ", held by " + holders_text(object.holders);
    if (object.handles > 0) text += fmt::format(", {} held on the owner itself", object.handles);
    if (object.calls_waiting > 0) text += fmt::format(", {} calls wait for it", object.calls_waiting);
    text += '\n';
  }
  return text;
}

std::string DebugInfo::text() const {
  std::string text = fmt::format(
      "{} objects owned, {} forks, {} references used, {} pending children, {} pending users, {} calls made, {} "
      "served\n",
      owned.size(), forks, used.size(), pending_children, pending_users, calls_made, calls_served);
  text += owned_text();
  for (const UsedReference& reference : used) {
    text +=
        fmt::format("  reference to {} of {}: {}, {} held here, {} pending children\n", text_of(reference.id),
                    reference.owner, reference.dead ? "dead" : (reference.confirmed ? "confirmed" : "not confirmed"),
                    reference.handles, reference.pending_children);
  }
  return text;
}

}  // namespace holdfast
