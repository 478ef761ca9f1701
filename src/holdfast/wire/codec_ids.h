// Strong ids travel as their number.
#pragma once

#include <holdfast/base/ids.h>
#include <holdfast/wire/codecs.h>

namespace holdfast::wire {

template <class Tag, class Rep>
struct Codec<Id<Tag, Rep>> {
  static void encode(Writer& writer, const Id<Tag, Rep>& id) { Codec<Rep>::encode(writer, id.value); }
  static void decode(Reader& reader, Id<Tag, Rep>& id) { Codec<Rep>::decode(reader, id.value); }
  static std::string type_name() { return Codec<Rep>::type_name(); }
};

}  // namespace holdfast::wire
