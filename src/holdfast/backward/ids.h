// The names of contexts (one distributed forward and backward each), of what they record, and of passes. Unique in the
// job for ever, like those of references (rref/ids.h).
#pragma once

#include <string>

#include <holdfast/base/ids.h>
#include <holdfast/rref/ids.h>

namespace holdfast {

struct ContextId {
  WorkerId creator;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const ContextId&, const ContextId&) = default;
};

// One message that carried tensors which require grad, counted from 1 within its context by the worker that sent it:
// the sender records a send function under it, the receiver a recv function.
using SendNumber = Id<struct SendTag, uint64_t>;

// One backward pass in a context, counted from 1 within it by the worker that started it.
struct PassId {
  ContextId context;
  WorkerId root;
  uint64_t counter = 0;
  friend constexpr auto operator<=>(const PassId&, const PassId&) = default;
};

// "0.1.42": rank, incarnation, counter.
std::string text_of(const ContextId& id);
// "0.1.42/1.2.1": the context, then the root and its counter.
std::string text_of(const PassId& id);

namespace wire {

template <>
struct Codec<ContextId> : CountedIdCodec<ContextId, &ContextId::creator> {};

// [context, rank, incarnation, counter]
template <>
struct Codec<PassId> {
  static void encode(Writer& writer, const PassId& id) {
    writer.array_header(4);
    wire::encode(writer, id.context);
    wire::encode(writer, id.root.rank);
    wire::encode(writer, id.root.incarnation);
    writer.unsigned_integer(id.counter);
  }
  static void decode(Reader& reader, PassId& id) {
    if (!reader.array_header_of(4, "the id of a pass")) return;
    wire::decode(reader, id.context);
    wire::decode(reader, id.root.rank);
    wire::decode(reader, id.root.incarnation);
    id.counter = reader.unsigned_integer();
  }
  static std::string type_name() { return "pass"; }
};

}  // namespace wire
}  // namespace holdfast

template <>
struct std::hash<holdfast::ContextId> {
  size_t operator()(const holdfast::ContextId& id) const noexcept {
    return std::hash<holdfast::WorkerId>()(id.creator) * 0x9e3779b97f4a7c15 + id.counter;
  }
};
