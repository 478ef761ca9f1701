// The names of message kinds, for traces, fault injection and error messages. Each layer lists its own
// kinds in one table and adds it; the ranges keep them apart:
//   1-15 link, 16-31 cluster, 32-47 rpc, 48-63 rref, 64-79 tensor and autograd, 80-95 optim, 96-111 tests.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <holdfast/wire/message.h>

namespace holdfast {

struct KindName {
  Kind kind;
  std::string_view name;
};

// A table of names that can be asked both ways. Each driver builds one from the layers it has.
class KindNames {
 public:
  void add(std::span<const KindName> names);
  // "CALL", or "KIND 77" for one that nobody named.
  std::string name(Kind kind) const;
  // Nothing for an unknown name.
  const Kind* find(std::string_view name) const;
  // "CALL, REPLY, CANCEL, ..." for error messages.
  std::string all() const;

 private:
  std::vector<KindName> names_;
};

}  // namespace holdfast
