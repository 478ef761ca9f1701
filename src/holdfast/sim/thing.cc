#include <holdfast/sim/thing.h>

#include <utility>

#include <holdfast/sim/program.h>

namespace holdfast::sim {

// ---- references

Ref::Ref(RRef<Thing> rref, Serial serial)
    : rref_(std::move(rref)), serial_(serial), life_(Program::life_of(rref_.reference()->host->worker())) {
  Ledger::current()->hold(life_, serial_);
}

Ref::Ref(const Ref& other) : rref_(other.rref_), serial_(other.serial_), life_(other.life_) {
  if (serial_ != 0) Ledger::current()->hold(life_, serial_);
}

Ref::Ref(Ref&& other) noexcept
    : rref_(std::move(other.rref_)), serial_(std::exchange(other.serial_, 0)), life_(other.life_) {}

Ref& Ref::operator=(Ref other) noexcept {
  std::swap(rref_, other.rref_);
  std::swap(serial_, other.serial_);
  std::swap(life_, other.life_);
  return *this;
}

Ref::~Ref() {
  // First the ledger: from here on the object may go.
  if (serial_ != 0) Ledger::current()->release(life_, serial_);
}

std::vector<Serial> serials_of(const Refs& refs) {
  std::vector<Serial> serials;
  serials.reserve(refs.size());
  for (const Ref& ref : refs) serials.push_back(ref.serial());
  return serials;
}

// ---- objects

Thing::Thing() = default;

Thing::Thing(Serial serial, LifeIndex owner, Refs held) : serial(serial), held(std::move(held)), owner_(owner) {
  Ledger::current()->born(serial, owner);
}

Thing::Thing(const Thing& other) : serial(other.serial), held(other.held) {}

Thing::Thing(Thing&& other) noexcept
    : serial(other.serial), held(std::move(other.held)), owner_(std::exchange(other.owner_, kNobody)) {}

Thing::~Thing() {
  if (owner_ != kNobody) Ledger::current()->ended(serial, owner_);
}

void Thing::put(Token token, Ref ref) {
  Ledger::current()->ran(token, owner_);
  held.push_back(std::move(ref));
}

Refs Thing::give(Token token, bool keep) {
  Ledger::current()->ran(token, owner_);
  Refs given = keep ? held : std::exchange(held, {});
  Ledger::current()->replies(token, serials_of(given));
  return given;
}

}  // namespace holdfast::sim

namespace holdfast::wire {

void Codec<sim::Ref>::encode(Writer& writer, const sim::Ref& ref) {
  writer.array_header(2);
  writer.unsigned_integer(ref.serial());
  wire::encode(writer, ref.rref());
}

void Codec<sim::Ref>::decode(Reader& reader, sim::Ref& out) {
  out = {};
  if (!reader.array_header_of(2, "a Ref")) return;
  const uint64_t serial = reader.unsigned_integer();
  RRef<sim::Thing> rref;
  wire::decode(reader, rref);
  if (!reader.ok() || !rref) return;
  out = sim::Ref(std::move(rref), serial);
  sim::Ledger::current()->received(out.life(), serial);
}

}  // namespace holdfast::wire
