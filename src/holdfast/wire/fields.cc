#include <holdfast/wire/fields.h>

namespace holdfast::wire {

std::string describe_struct(std::string_view type, std::string_view fields, const std::string* types) {
  std::string text(type);
  text += '{';
  while (!fields.empty()) {
    const size_t comma = fields.find(',');
    const std::string_view field = fields.substr(0, comma);
    text += field.substr(0, field.find_last_not_of(' ') + 1);
    text += ':';
    text += *types++;
    if (comma == std::string_view::npos) break;
    text += ',';
    // The preprocessor keeps one space wherever there was any.
    fields.remove_prefix(fields.find_first_not_of(' ', comma + 1));
  }
  return text += '}';
}

}  // namespace holdfast::wire
