// WireContext: what an upper layer must know while a value is written or read, such as which peer it goes to
// or comes from. References and tensors derive from it; the wire layer only hands it through.
// The caller of encode or decode owns it and keeps it alive meanwhile.
#pragma once

namespace holdfast {

class WireContext {
 public:
  WireContext() = default;
  WireContext(const WireContext&) = delete;
  WireContext& operator=(const WireContext&) = delete;
  virtual ~WireContext() = default;
};

}  // namespace holdfast
