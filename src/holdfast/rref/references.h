// References: the reference protocol of one worker. Joins the owner table and the user table with the messages, the
// cargo of calls, losses and the end of the job. docs/rref.md is its description.
//
// The methods under "any thread" take the driver's lock themselves; all others are protocol code, under that lock.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <holdfast/rpc/cargo.h>
#include <holdfast/rpc/node.h>
#include <holdfast/rpc/protocol.h>
#include <holdfast/rref/cargo.h>
#include <holdfast/rref/controls.h>
#include <holdfast/rref/debug_info.h>
#include <holdfast/rref/owner_table.h>
#include <holdfast/rref/user_table.h>

namespace holdfast {

class References final : public Protocol, public CargoUnloader, private ControlPost {
 public:
  References(Node& node, Host& host) : node_(node), host_(host) {}
  static std::unique_ptr<Protocol> make(Node& node, Host& host);
  static References& of(Host& host);

  // ---- any thread

  // An object that is here already.
  ReferencePtr own(KeptValue value, std::string place);
  // A reference to an object that a call, to be sent to `peer`, will create there.
  ReferencePtr new_object(const std::shared_ptr<const rpc_detail::PeerState>& peer);
  void release(const Reference& reference);
  bool confirmed(const Reference& reference);

  // Of an object of this worker: the value, or why there is none. Nothing if that is not known yet: `otherwise` runs
  // when it is, if it is not null. `type` is what the caller takes the object for.
  std::optional<Result<std::shared_ptr<void>>> value(const Reference& reference, const std::type_info& type,
                                                     const std::shared_ptr<Work>& otherwise);

  // `otherwise` need not run any more.
  void stop_waiting(const Reference& reference, const Work& otherwise);

  DebugInfo debug_info();

  // ---- protocol code

  Status on_message(Step& step, const WorkerPtr& from, Message message) override;
  Result<std::shared_ptr<Cargo>> unload(Step& step, const WorkerPtr& from, Kind kind, ByteView bytes) override;
  // The reference goes out inside a message to `to`.
  CargoEntry send(const Reference& reference, const WorkerPtr& to);
  CargoEntry send_created(const Reference& reference);
  void before_send(Step& step, const WorkerPtr& to) override { controls_.before_send(step, to->id()); }
  void on_worker_lost(Step& step, const WorkerInfo& worker, uint64_t loss) override;
  void on_settled(Step& step, uint64_t loss) override;
  void on_time(Step& step) override;
  Time next_wakeup() const override {
    return std::min({controls_.next_wakeup(), owned_.next_wakeup(), look_again_at_});
  }
  std::span<const KindName> kinds() const override { return kRRefKinds; }
  // What is being destroyed may still let go of references, here and elsewhere.
  bool idle() const override { return used_.idle() && controls_.empty() && owned_.destroying_count() == 0; }
  std::string describe() const override;
  std::string leftovers() const override;
  void stop(Step& step) override;
  void ended(Step& step) override { owned_.clear(step); }

  const OwnerTable& owned() const { return owned_; }
  const UserTable& used() const { return used_; }
  const Controls& controls() const { return controls_; }

 private:
  class Creation;
  friend class Creation;

  void send_control(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message) override;
  Status on_remote_call(Step& step, const WorkerPtr& from, Message message);
  Status on_fork_requests(Step& step, const WorkerPtr& from, const Message& message);
  template <class Handle>
  Status on_forks(const WorkerPtr& from, const Message& message, Handle&& handle);
  // What does not fit together in a peer's words; empty: nothing.
  std::string why_not(const WorkerPtr& from, const CargoEntry& entry);
  std::string why_not(const WorkerPtr& from, const ForkRequest& request);
  void create(Step& step, const WorkerPtr& from, const CargoEntry& entry);
  ReferencePtr arrive(Step& step, const WorkerPtr& from, const CargoEntry& entry, const std::shared_ptr<Host>& host);
  // Outside the lock: a value of this worker is destroyed.
  void on_destroyed();
  // Tells the coordinator how far losses are settled here.
  void follow_settled(Step& step);
  bool is_owner(const WorkerId& worker) const { return node_.is_self(worker); }
  DebugInfo collect_debug_info() const;

  Node& node_;
  Host& host_;
  Controls controls_{*this};
  OwnerTable owned_{[this] { on_destroyed(); }};
  UserTable used_{controls_};
  uint64_t last_id_ = 0;  // of objects and forks made here
  // Lost workers whose forks and children may still turn up, with the number of the loss.
  std::unordered_map<WorkerId, uint64_t> quarantine_;
  uint64_t settled_reported_ = 0;
  std::unordered_map<WorkerId, std::string> names_;  // of holders, for people
  Time look_again_at_ = kNever;                      // in shutdown: this worker may have fallen quiet outside any event
  bool stopped_ = false;
};

}  // namespace holdfast
