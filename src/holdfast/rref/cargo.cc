#include <holdfast/rref/cargo.h>

#include <holdfast/base/canary.h>
#include <holdfast/rref/references.h>

namespace holdfast {

size_t ReferenceCargo::add(ReferencePtr reference) {
  list_.push_back(std::move(reference));
  return list_.size() - 1;
}

Bytes ReferenceCargo::load(Step&, const WorkerPtr& to) {
  std::vector<CargoEntry> entries;
  entries.reserve(list_.size() + 1);
  for (const ReferencePtr& reference : list_) entries.push_back(references_.send(*reference, to));
  if (created_) entries.push_back(references_.send_created(*created_));
  return std::move(wire::encode_message(kRemoteCall, entries).body);
}

uint64_t ReferenceCargo::bytes_max() const {
  constexpr uint64_t kEntryBytes = 80;  // two ids and the fixed part of a WorkerInfo
  uint64_t total = kEntryBytes;
  for (const ReferencePtr& reference : list_) {
    total += kEntryBytes + reference->owner->name.size() + reference->owner->address.size();
  }
  return total;
}

uint64_t ReferenceCargo::fingerprint() const {
  uint64_t result = 0;
  for (const ReferencePtr& reference : list_) result = result * 31 + std::hash<RRefId>()(reference->rref);
  return result;
}

ArrivedReferences::~ArrivedReferences() {
  if (HOLDFAST_CANARY(undecoded_kept) && !taken) {
    for (const ReferencePtr& reference : list) reference->entered = false;
  }
}

ReferencePtr ArrivedReferences::take(uint64_t index) {
  if (index >= list.size()) return nullptr;
  taken = true;
  return list[index];
}

}  // namespace holdfast
