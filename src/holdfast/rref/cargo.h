// References as the cargo of a message: see rpc/cargo.h. The bytes are a list of entries, one for each reference:
//
//   [role, rref, fork, owner]     where the role says how the reference is shared; what a role does not need is nil
//
// Made by codecs on any one thread; loaded and unloaded by References under the driver's lock.
#pragma once

#include <optional>
#include <vector>

#include <holdfast/rpc/cargo.h>
#include <holdfast/rpc/served_call.h>
#include <holdfast/rref/reference.h>

namespace holdfast {

enum class CargoRole : uint8_t {
  created = 0,     // to the owner: the object that this call is to make; the last entry, if any
  to_owner = 1,    // a user gives it to the owner: no fork
  from_owner = 2,  // the owner gives it to a user
  shared = 3,      // from user to user
  to_self = 4,     // in a call to oneself: no fork
};

struct CargoEntry {
  CargoRole role = CargoRole::created;
  RRefId rref;
  std::optional<ForkId> fork;
  std::optional<WorkerInfo> owner;
  HOLDFAST_FIELDS(CargoEntry, role, rref, fork, owner)
};

class ReferenceCargo final : public OutgoingCargo {
 public:
  explicit ReferenceCargo(References& references) : references_(references) {}
  // Returns the index that the value on the wire is.
  size_t add(ReferencePtr reference);
  // What the call is to create. It has no index.
  void set_created(ReferencePtr reference) { created_ = std::move(reference); }
  Bytes load(Step& step, const WorkerPtr& to) override;
  uint64_t bytes_max() const override;
  uint64_t fingerprint() const override;

 private:
  References& references_;
  std::vector<ReferencePtr> list_;
  ReferencePtr created_;
};

// What has arrived. The references live as long as this or what was decoded from it.
class ArrivedReferences final : public Cargo {
 public:
  ~ArrivedReferences() override;
  // Null: there is no such index.
  ReferencePtr take(uint64_t index);

  std::vector<ReferencePtr> list;    // without what is to be created
  std::shared_ptr<Keeper> creation;  // null: the call creates nothing
  RRefId created;
  bool taken = false;  // at least one was
};

}  // namespace holdfast
