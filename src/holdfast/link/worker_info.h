// WorkerInfo: one life of one worker, as others know it.
#pragma once

#include <memory>
#include <string>

#include <holdfast/base/ids.h>
#include <holdfast/wire/codec_ids.h>
#include <holdfast/wire/fields.h>

namespace holdfast {

struct WorkerInfo {
  std::string name;
  Rank rank;
  Incarnation incarnation;
  std::string address;  // where its transport listens

  WorkerId id() const { return {rank, incarnation}; }
  friend bool operator==(const WorkerInfo&, const WorkerInfo&) = default;
  HOLDFAST_FIELDS(WorkerInfo, name, rank, incarnation, address)
};

// Shared by whatever has to do with that worker; never changed.
using WorkerPtr = std::shared_ptr<const WorkerInfo>;

}  // namespace holdfast
