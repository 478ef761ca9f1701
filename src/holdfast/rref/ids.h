// The names of remote objects and of references to them. Unique in the job for ever: they are counted by whoever makes
// them, under an incarnation that is never given twice.
#pragma once

#include <string>

#include <holdfast/base/ids.h>
#include <holdfast/wire/codec_ids.h>

namespace holdfast {

// One object.
struct RRefId {
  WorkerId creator;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const RRefId&, const RRefId&) = default;
};

// One user's reference to an object.
struct ForkId {
  WorkerId maker;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const ForkId&, const ForkId&) = default;
};

// "0.1.42": rank, incarnation, counter.
std::string text_of(const RRefId& id);
std::string text_of(const ForkId& id);

namespace wire {

// [rank, incarnation, counter]
template <class T, WorkerId T::*kWorker>
struct CountedIdCodec {
  static void encode(Writer& writer, const T& id) {
    writer.array_header(3);
    writer.unsigned_integer((id.*kWorker).rank.value);
    writer.unsigned_integer((id.*kWorker).incarnation.value);
    writer.unsigned_integer(id.counter);
  }
  static void decode(Reader& reader, T& id) {
    if (!reader.array_header_of(3, "an id")) return;
    wire::decode(reader, (id.*kWorker).rank);
    wire::decode(reader, (id.*kWorker).incarnation);
    id.counter = reader.unsigned_integer();
  }
  static std::string type_name() { return "id"; }
};
template <>
struct Codec<RRefId> : CountedIdCodec<RRefId, &RRefId::creator> {};
template <>
struct Codec<ForkId> : CountedIdCodec<ForkId, &ForkId::maker> {};

}  // namespace wire
}  // namespace holdfast

template <>
struct std::hash<holdfast::RRefId> {
  size_t operator()(const holdfast::RRefId& id) const noexcept {
    return std::hash<holdfast::WorkerId>()(id.creator) * 0x9e3779b97f4a7c15 + id.counter;
  }
};
template <>
struct std::hash<holdfast::ForkId> {
  size_t operator()(const holdfast::ForkId& id) const noexcept {
    return std::hash<holdfast::WorkerId>()(id.maker) * 0x9e3779b97f4a7c15 + id.counter;
  }
};
