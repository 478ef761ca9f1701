// Reference: one reference of this program to a remote object, whatever the object's type. All copies of an RRef<T>
// share one; when the last goes, so does the reference. Immutable after it was made; any thread.
#pragma once

#include <memory>
#include <mutex>

#include <holdfast/link/worker_info.h>
#include <holdfast/rpc/call_host.h>
#include <holdfast/rref/ids.h>

namespace holdfast {

class References;

class Reference {
 public:
  Reference(std::shared_ptr<Host> host, References& references, const RRefId& rref, const ForkId& fork, WorkerPtr owner)
      : host(std::move(host)), references(references), rref(rref), fork(fork), owner(std::move(owner)) {}
  // Gives the reference up. Never under the driver's lock.
  ~Reference();
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;

  bool is_owner() const { return fork.counter == 0; }

  const std::shared_ptr<Host> host;
  References& references;
  const RRefId rref;
  const ForkId fork;  // counter 0: the object is this worker's own
  const WorkerPtr owner;
  // Guarded by the driver's lock. It has an entry in a table: from the moment at which its creation is sent.
  mutable bool entered = false;

  // Why its creation was not even sent; null if it was. Set before anybody else has the reference.
  const Failure* failure() const { return failure_.get(); }
  void set_failure(Failure failure) const { failure_ = std::make_unique<Failure>(std::move(failure)); }

  // The owner, as one calls it. Found when first needed.
  const std::shared_ptr<const rpc_detail::PeerState>& peer() const {
    std::call_once(peer_found_, [this] { peer_ = host->peer_state(owner); });
    return peer_;
  }
  void set_peer(std::shared_ptr<const rpc_detail::PeerState> peer) const {
    std::call_once(peer_found_, [&] { peer_ = std::move(peer); });
  }

 private:
  mutable std::unique_ptr<Failure> failure_;
  mutable std::once_flag peer_found_;
  mutable std::shared_ptr<const rpc_detail::PeerState> peer_;
};

using ReferencePtr = std::shared_ptr<const Reference>;

}  // namespace holdfast
