// Values: any bytes as any type. What is accepted must encode and decode to itself again; what is taken from the heap
// on the way must be in proportion to the bytes; and whatever any type accepts, skip() must accept too.
//
//   input   which type (1 byte), the bytes
#include <holdfast/base/check.h>

#include "allocations.h"
#include "input.h"
#include "value_types.h"

namespace holdfast::fuzz {
namespace {

// An element takes at least one byte on the wire and sizeof(T) here, at each of a few nested containers that all claim
// the same bytes. The rest is for texts of errors, and for what a container reserves before it reads.
constexpr size_t kAllocatedPerByteMax = wire::kDepthMax * sizeof(Anything);
constexpr size_t kAllocatedAlways = 1 << 20;

template <class T>
void check_as(const Bytes& bytes) {
  T value{};
  bool ok = false;
  {
    const Allocations allocations;
    wire::Reader reader{ByteView(bytes)};
    wire::decode(reader, value);
    reader.finish();
    ok = reader.ok();
    HOLDFAST_CHECK(ok == reader.error().empty());
    HOLDFAST_CHECK(allocations.peak_bytes() <= kAllocatedAlways + kAllocatedPerByteMax * bytes.size());
  }
  if (!ok) return;
  wire::Reader skipping{ByteView(bytes)};
  skipping.skip();
  skipping.finish();
  HOLDFAST_CHECK(skipping.ok());
  // By bytes, for a NaN is not equal to itself.
  const Message again = wire::encode_message({}, value);
  Result<T> decoded = wire::decode_message<T>(again);
  HOLDFAST_CHECK(decoded.ok());
  HOLDFAST_CHECK(wire::encode_message({}, *decoded).body == again.body);
}

// One read after the other, of the kinds that the input says; errors stick, and nothing is read twice.
void check_reads(Input in, const Bytes& bytes) {
  wire::Reader reader{ByteView(bytes)};
  while (!in.empty()) {
    const size_t before = reader.remaining();
    const bool was_ok = reader.ok();
    switch (in.below(14)) {
      case 0: reader.nil(); break;
      case 1: reader.boolean(); break;
      case 2: reader.integer(); break;
      case 3: reader.unsigned_integer(); break;
      case 4: reader.float64(); break;
      case 5: reader.float32(); break;
      case 6: reader.string(); break;
      case 7: reader.binary(); break;
      case 8: reader.extension(); break;
      case 9: reader.extension(static_cast<int8_t>(in.byte())); break;
      case 10: HOLDFAST_CHECK(reader.array_header() <= before); break;
      case 11: HOLDFAST_CHECK(reader.map_header() <= before); break;
      case 12: reader.attachment(in.byte()); break;
      default: reader.skip(); break;
    }
    reader.peek();
    HOLDFAST_CHECK(reader.remaining() <= before);
    HOLDFAST_CHECK(was_ok || !reader.ok());
    if (!reader.ok()) HOLDFAST_CHECK(reader.remaining() == 0);
  }
}

void check(ByteView input) {
  Input in(input.data(), input.size());
  const uint8_t which = in.byte();
  const Bytes bytes(in.rest().begin(), in.rest().end());
  switch (which % 8) {
    case 0: return check_as<Everything>(bytes);
    case 1: return check_as<Anything>(bytes);
    case 2: return check_as<Tree>(bytes);
    case 3: return check_as<Numbers>(bytes);
    case 4: return check_as<Lists>(bytes);
    case 5: return check_as<std::string>(bytes);
    case 6: return check_as<std::vector<Bytes>>(bytes);
    default: return check_reads(in, bytes);
  }
}

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::check({data, size});
  return 0;
}
