// Thing: the objects of a simulated program, and Ref: a reference to one. Both tell the ledger what becomes of them,
// so that it knows exactly what each worker's program holds.
//
// A Thing holds references only to Things with smaller serials: cycles are not for reference counting.
#pragma once

#include <vector>

#include <holdfast/rref/rref.h>
#include <holdfast/sim/ledger.h>

namespace holdfast::sim {

class Ref;
using Refs = std::vector<Ref>;

}  // namespace holdfast::sim

// [serial, reference]. Here, before Thing: what holds a Ref asks for it.
template <>
struct holdfast::wire::Codec<holdfast::sim::Ref> {
  static void encode(Writer& writer, const sim::Ref& ref);
  static void decode(Reader& reader, sim::Ref& out);
  static std::string type_name() { return "Ref"; }
};

namespace holdfast::sim {

// Before Ref: clang asks whether it can be sent when it first sees an RRef of it.
struct Thing {
  // A copy of one, as a fetch returns it: the ledger does not care for it.
  Thing();
  // The object itself, on its owner.
  Thing(Serial serial, LifeIndex owner, Refs held);
  Thing(const Thing& other);
  Thing(Thing&& other) noexcept;
  Thing& operator=(const Thing&) = delete;
  ~Thing();

  // Calls on it.
  void put(Token token, Ref ref);
  Refs give(Token token, bool keep);

  Serial serial = 0;
  Refs held;
  HOLDFAST_FIELDS(Thing, serial, held)

 private:
  LifeIndex owner_ = kNobody;  // nobody's: a copy
};

// Belongs to the worker whose RRef it holds: counts there from its making, or its arrival, to its end.
class Ref {
 public:
  Ref() = default;
  Ref(RRef<Thing> rref, Serial serial);
  Ref(const Ref& other);
  Ref(Ref&& other) noexcept;
  Ref& operator=(Ref other) noexcept;
  ~Ref();

  Serial serial() const { return serial_; }
  const RRef<Thing>& rref() const { return rref_; }
  LifeIndex life() const { return life_; }

 private:
  RRef<Thing> rref_;
  Serial serial_ = 0;  // 0: of nothing
  LifeIndex life_ = kNobody;
};

std::vector<Serial> serials_of(const Refs& refs);

}  // namespace holdfast::sim
