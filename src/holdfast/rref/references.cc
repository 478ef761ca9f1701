#include <holdfast/rref/references.h>

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/base/check.h>
#include <holdfast/rpc/object_name.h>
#include <holdfast/rpc/peer.h>

namespace holdfast {

namespace {

Failure corrupt(const WorkerPtr& from, std::string_view what) {
  return {.code = Code::corrupt, .message = fmt::format("{} from {}", what, from->name)};
}

}  // namespace

Reference::~Reference() { references.release(*this); }

// The creation of one object, from the arrival of its call to the value: holds the object meanwhile.
class References::Creation final : public Keeper {
 public:
  Creation(References& references, const RRefId& id) : references_(references), id_(id) {}
  ~Creation() override { fail("", {.code = Code::cancelled, .message = "it ended without a result"}); }

  void keep(KeptValue value) override {
    finish([&](Step& step, Owned& object) { references_.owned_.set_value(step, object, std::move(value)); });
  }
  void fail(const std::string& function, Failure failure) override {
    finish([&](Step& step, Owned& object) {
      if (failure.code == Code::no_such_function) {
        failure.message = fmt::format(
            "name it in the program of {} with HOLDFAST_EXPORT, HOLDFAST_EXPORT_METHOD or HOLDFAST_EXPORT_CLASS, or "
            "start the same program there",
            references_.host_.name());
      } else if (function.empty() && failure.code == Code::invalid_argument) {
        failure.message = fmt::format("{} has {}", references_.host_.name(), failure.message);
      }
      failure.message = fmt::format("object {} could not be created: {}{}{}{}", text_of(id_),
                                    function.empty() ? object.origin.text() : function,
                                    failure.code == Code::remote_error ? " threw " + failure.type : std::string(),
                                    failure.message.empty() ? "" : ": ", failure.message);
      failure.worker = references_.host_.name();
      references_.owned_.set_failure(step, object, std::move(failure));
    });
  }

 private:
  template <class F>
  void finish(F&& with_object) {
    if (finished_.exchange(true)) return;
    references_.host_.step([&](Step& step) {
      if (references_.stopped_) return;  // what is not there yet will not be any more
      Owned* object = references_.owned_.find(id_);
      if (object == nullptr) return;
      with_object(step, *object);
      references_.owned_.release(step, *object);
    });
  }

  References& references_;
  const RRefId id_;
  std::atomic<bool> finished_{false};
};

std::unique_ptr<Protocol> References::make(Node& node, Host& host) {
  auto references = std::make_unique<References>(node, host);
  node.add_protocol(kRemoteCall, kRRefFetch, *references);
  node.set_cargo_unloader(*references);
  return references;
}

References& References::of(Host& host) {
  return static_cast<References&>(host.protocol(RegisteredProtocol<References>::index()));
}

// ---- any thread

ReferencePtr References::own(KeptValue value, std::string place) {
  ReferencePtr reference;
  host_.step([&](Step& step) {
    if (stopped_) return step.garbage.push_back(std::move(value.object));
    const RRefId id{node_.self()->id(), ++last_id_};
    Owned& object = owned_.at(id);
    object.handles = 1;
    owned_.begin(object, kNever, {.place = std::move(place)});
    owned_.set_value(step, object, std::move(value));
    reference = std::make_shared<Reference>(host_.share(), *this, id, ForkId(), node_.self());
    reference->entered = true;
  });
  if (!reference) {
    throw_failure(
        {.code = Code::shutdown, .message = fmt::format("{} is shut down: it owns nothing any more", host_.name())});
  }
  return reference;
}

ReferencePtr References::new_object(const std::shared_ptr<const rpc_detail::PeerState>& peer) {
  const WorkerPtr& owner = peer->worker;
  ReferencePtr reference;
  host_.step([&](Step&) {
    const WorkerId self = node_.self()->id();
    const RRefId id{self, ++last_id_};
    const ForkId fork = is_owner(owner->id()) ? ForkId() : ForkId{self, ++last_id_};
    reference = std::make_shared<Reference>(host_.share(), *this, id, fork, owner);
  });
  reference->set_peer(peer);
  return reference;
}

void References::release(const Reference& reference) {
  host_.step([&](Step& step) {
    if (stopped_ || !reference.entered) return;
    if (reference.is_owner()) {
      if (Owned* object = owned_.find(reference.rref)) owned_.release(step, *object);
    } else if (Used* used = used_.find(reference.fork)) {
      used_.release(step, *used);
    }
    follow_settled(step);
  });
}

bool References::confirmed(const Reference& reference) {
  bool result = false;
  host_.step([&](Step&) {
    const Used* used = reference.is_owner() ? nullptr : used_.find(reference.fork);
    result = reference.is_owner() || (used != nullptr && used->state == Used::State::confirmed);
  });
  return result;
}

std::optional<Result<std::shared_ptr<void>>> References::value(const Reference& reference, const std::type_info& type,
                                                               const std::shared_ptr<Work>& otherwise) {
  if (const Failure* failure = reference.failure()) return Result<std::shared_ptr<void>>(*failure);
  std::optional<Result<std::shared_ptr<void>>> result;
  host_.step([&](Step&) {
    Owned* object = owned_.find(reference.rref);
    if (object == nullptr) {
      result = Failure{.code = Code::shutdown, .message = fmt::format("{} is shut down", host_.name())};
    } else if (!object->settled() && stopped_) {
      result = Failure{.code = Code::shutdown, .message = fmt::format("{} is shut down", host_.name())};
    } else if (!object->settled()) {
      if (otherwise) object->waiting.push_back(otherwise);
    } else if (object->state == Owned::State::failed) {
      result = *object->failure;
    } else if (*object->value.type != type) {
      result = Failure{.code = Code::invalid_argument,
                       .message = fmt::format("object {} is a {}, not a {}", text_of(reference.rref),
                                              cpp_type_name(*object->value.type), cpp_type_name(type)),
                       .worker = host_.name()};
    } else {
      result = object->value.object;
    }
  });
  return result;
}

void References::stop_waiting(const Reference& reference, const Work& otherwise) {
  host_.step([&](Step& step) {
    Owned* object = owned_.find(reference.rref);
    if (object == nullptr) return;
    std::vector<std::shared_ptr<Work>>& waiting = object->waiting;
    auto found =
        std::find_if(waiting.begin(), waiting.end(), [&](const auto& work) { return work.get() == &otherwise; });
    if (found == waiting.end()) return;  // it runs already
    step.garbage.push_back(std::move(*found));
    waiting.erase(found);
  });
}

// ---- references inside messages

CargoEntry References::send_created(const Reference& reference) {
  reference.entered = true;
  CargoEntry entry{.role = CargoRole::created, .rref = reference.rref, .fork = std::nullopt, .owner = std::nullopt};
  if (reference.is_owner()) {
    owned_.at(reference.rref).handles = 1;
  } else {
    used_.add_created(reference.fork, reference.rref, reference.owner);
    entry.fork = reference.fork;
  }
  return entry;
}

CargoEntry References::send(const Reference& reference, const WorkerPtr& to) {
  CargoEntry entry{.role = CargoRole::to_self, .rref = reference.rref, .fork = std::nullopt, .owner = std::nullopt};
  if (is_owner(to->id())) {
    if (!reference.is_owner()) entry.fork = reference.fork;
    return entry;
  }
  if (reference.owner->id() == to->id()) {
    entry.role = CargoRole::to_owner;
    return entry;
  }
  entry.fork = ForkId{node_.self()->id(), ++last_id_};
  if (reference.is_owner()) {
    entry.role = CargoRole::from_owner;
    if (!HOLDFAST_CANARY(sent_fork_not_counted)) owned_.add_fork(owned_.at(reference.rref), *entry.fork, to->id());
    names_.try_emplace(to->id(), to->name);
  } else {
    entry.role = CargoRole::shared;
    entry.owner = *reference.owner;
    if (Used* used = used_.find(reference.fork)) used_.add_child(*used, *entry.fork, to->id());
  }
  return entry;
}

// Bytes from a peer: what does not fit together is refused before anything is entered.
std::string References::why_not(const WorkerPtr& from, const CargoEntry& entry) {
  const bool from_self = is_owner(from->id());
  if (entry.fork && entry.role != CargoRole::to_self && (entry.fork->counter == 0 || entry.fork->maker != from->id())) {
    return "a fork that it did not make";
  }
  if (entry.owner.has_value() != (entry.role == CargoRole::shared)) return "a reference with an owner, or without";
  switch (entry.role) {
    case CargoRole::created: {
      if (entry.rref.creator != from->id() || entry.fork.has_value() == from_self) return "a malformed creation";
      const Owned* object = owned_.find(entry.rref);
      if (object != nullptr && object->state != Owned::State::expected) return "a second creation of one object";
      if (entry.fork && owned_.forks().contains(*entry.fork)) return "a fork that is there already";
      return {};
    }
    case CargoRole::to_owner:
      if (entry.fork) return "a fork that is none";
      if (owned_.find(entry.rref) == nullptr) return "a reference to an object that is not here";
      return {};
    case CargoRole::from_owner:
    case CargoRole::shared:
      if (!entry.fork || used_.find(*entry.fork) != nullptr) return "a fork that is none, or is there already";
      if (entry.role == CargoRole::from_owner) return {};
      if (is_owner(entry.owner->id()) || entry.owner->id() == from->id()) return "a share of its own";
      return {};
    case CargoRole::to_self:
      if (!from_self) return "a reference to itself";
      if (entry.fork ? used_.find(*entry.fork) == nullptr : owned_.find(entry.rref) == nullptr) return "an unknown one";
      return {};
  }
  return "a reference of an unknown role";
}

std::string References::why_not(const WorkerPtr& from, const ForkRequest& request) {
  // The owner's own forks, and those that go with a creation, need no request.
  const ForkId& fork = request.fork;
  if (fork.counter == 0 || is_owner(fork.maker) || fork.maker == from->id()) return "a request for a wrong fork";
  // One's own objects are known from the start; if this one is not, it must not get into the way of one to come.
  if (is_owner(request.rref.creator) && owned_.find(request.rref) == nullptr) {
    return "a request for an object that is not here";
  }
  return {};
}

Result<std::shared_ptr<Cargo>> References::unload(Step& step, const WorkerPtr& from, Kind kind, ByteView bytes) {
  wire::Reader reader(bytes);
  std::vector<CargoEntry> entries;
  wire::decode(reader, entries);
  reader.finish();
  if (!reader.ok()) return corrupt(from, "references that do not decode: " + reader.error());
  const bool creates = !entries.empty() && entries.back().role == CargoRole::created;
  if (creates != (kind == kRemoteCall))
    return corrupt(from, creates ? "a creation in a call" : "a creation of nothing");
  std::unordered_set<ForkId> forks;
  for (size_t i = 0; i < entries.size(); ++i) {
    std::string problem = why_not(from, entries[i]);
    if (problem.empty() && i + 1 < entries.size() && entries[i].role == CargoRole::created) {
      problem = "a creation in the wrong place";
    }
    if (problem.empty() && entries.size() > 1 && entries[i].fork && entries[i].role != CargoRole::to_self &&
        !forks.insert(*entries[i].fork).second) {
      problem = "the same fork twice";
    }
    if (!problem.empty()) return corrupt(from, problem);
  }
  auto arrived = std::make_shared<ArrivedReferences>();
  arrived->list.reserve(entries.size() - (creates ? 1 : 0));
  const std::shared_ptr<Host> host = host_.share();
  for (const CargoEntry& entry : entries) {
    if (entry.role == CargoRole::created) {
      create(step, from, entry);
      arrived->creation = std::make_shared<Creation>(*this, entry.rref);
      arrived->created = entry.rref;
    } else {
      arrived->list.push_back(arrive(step, from, entry, host));
    }
  }
  return std::shared_ptr<Cargo>(std::move(arrived));
}

void References::create(Step& step, const WorkerPtr& from, const CargoEntry& entry) {
  Owned& object = owned_.at(entry.rref);
  ++object.handles;  // the Creation's
  if (!entry.fork) return;
  owned_.add_fork(object, *entry.fork, from->id());
  names_.try_emplace(from->id(), from->name);
  controls_.accept(step, from, *entry.fork);
}

// The entry is sound: enters it, and makes a handle for it.
ReferencePtr References::arrive(Step& step, const WorkerPtr& from, const CargoEntry& entry,
                                const std::shared_ptr<Host>& host) {
  const auto handle = [&](const ForkId& fork, const WorkerPtr& owner) {
    auto reference = std::make_shared<Reference>(host, *this, entry.rref, fork, owner);
    reference->entered = true;
    return reference;
  };
  switch (entry.role) {
    case CargoRole::to_owner: {
      ReferencePtr reference = handle(ForkId(), node_.self());
      if (HOLDFAST_CANARY(argument_not_held)) {
        reference->entered = false;
      } else {
        ++owned_.at(entry.rref).handles;
      }
      return reference;
    }
    case CargoRole::from_owner: used_.add_from_owner(*entry.fork, entry.rref, from); return handle(*entry.fork, from);
    case CargoRole::shared: {
      auto owner = std::make_shared<const WorkerInfo>(*entry.owner);
      used_.add_from_user(step, *entry.fork, entry.rref, owner, from, node_.is_lost(owner->id()));
      return handle(*entry.fork, owner);
    }
    case CargoRole::created:
    case CargoRole::to_self: break;
  }
  if (!entry.fork) {
    ++owned_.at(entry.rref).handles;
    return handle(ForkId(), node_.self());
  }
  Used& used = *used_.find(*entry.fork);
  ++used.handles;
  return handle(*entry.fork, used.owner);
}

// ---- messages

void References::send_control(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message) {
  node_.send(step, to, std::move(message), false);
}

Status References::on_message(Step& step, const WorkerPtr& from, Message message) {
  const Kind kind = message.kind;
  if (kind == kRemoteCall) return on_remote_call(step, from, std::move(message));
  if (kind == kRRefFetch) {
    if (Status status = node_.unload(step, from, message); !status.ok()) return status;
    return node_.receive_call(step, from, std::move(message), nullptr);
  }
  Status status;
  if (kind == kRRefForkRequest) {
    status = on_fork_requests(step, from, message);
  } else if (kind == kRRefAccept) {
    status = on_forks(from, message, [&](const ForkId& fork) { used_.on_accept(step, fork, from->id()); });
  } else if (kind == kRRefChildAccept) {
    status = on_forks(from, message, [&](const ForkId& fork) { used_.on_child_accept(step, fork, from->id()); });
  } else {
    status = on_forks(from, message, [&](const ForkId& fork) { owned_.remove_fork(step, fork, from->id()); });
  }
  follow_settled(step);
  return status;
}

Status References::on_remote_call(Step& step, const WorkerPtr& from, Message message) {
  wire::Reader reader(message);
  const CallHeader header = read_call_header(reader);
  if (!reader.ok()) return corrupt(from, "a creation that does not decode");
  if (Status status = node_.unload(step, from, message); !status.ok()) return status;
  if (!message.cargo) return corrupt(from, "a creation of nothing");
  auto* arrived = static_cast<ArrivedReferences*>(message.cargo.get());
  const Time deadline = header.timeout_us == 0 || header.timeout_us > INT64_MAX / 1000
                            ? kNever
                            : after(step.now, std::chrono::microseconds(header.timeout_us));
  Owned& object = owned_.at(arrived->created);
  owned_.begin(object, deadline,
               {.place = {}, .function = header.function, .signature = header.signature, .caller = from});
  return node_.receive_call(step, from, std::move(message), arrived->creation);
}

Status References::on_fork_requests(Step& step, const WorkerPtr& from, const Message& message) {
  Result<ForkRequests> requests = wire::decode_message<ForkRequests>(message);
  if (!requests) return std::move(requests.failure());
  if (!controls_.is_new(from->id(), requests->number)) return {};
  for (const ForkRequest& request : requests->requests) {
    if (const std::string problem = why_not(from, request); !problem.empty()) return corrupt(from, problem);
  }
  names_.try_emplace(from->id(), from->name);
  for (const ForkRequest& request : requests->requests) {
    if (owned_.forks().contains(request.fork)) continue;
    Owned& object = owned_.at(request.rref);
    // It may have come before the creation, over another link; unless whoever was to send that is lost.
    if (object.state == Owned::State::expected && node_.is_lost(request.rref.creator)) {
      owned_.on_creator_lost(step, object, "its creator");
    }
    owned_.add_fork(object, request.fork, from->id());
    controls_.accept(step, from, request.fork);
  }
  return {};
}

template <class Handle>
Status References::on_forks(const WorkerPtr& from, const Message& message, Handle&& handle) {
  Result<Forks> forks = wire::decode_message<Forks>(message);
  if (!forks) return std::move(forks.failure());
  if (!controls_.is_new(from->id(), forks->number)) return {};
  for (const ForkId& fork : forks->forks) handle(fork);
  return {};
}

// ---- losses, time and the end

void References::on_worker_lost(Step& step, const WorkerInfo& worker, uint64_t loss) {
  controls_.forget(worker.id());
  quarantine_.emplace(worker.id(), loss);
  owned_.on_creator_lost(step, worker.id(), worker.name);
  used_.on_worker_lost(step, worker.id());
  used_.on_loss(loss);
  if (HOLDFAST_CANARY(child_forgotten_with_worker)) used_.remove_children_of(step, {worker.id()});
  if (HOLDFAST_CANARY(no_quarantine)) owned_.remove_forks_of(step, {worker.id()});
  follow_settled(step);
}

void References::follow_settled(Step& step) {
  if (used_.settled() <= settled_reported_) return;
  settled_reported_ = used_.settled();
  node_.report_settled(step, settled_reported_);
}

void References::on_settled(Step& step, uint64_t loss) {
  std::unordered_set<WorkerId> gone;
  for (const auto& [worker, number] : quarantine_) {
    if (number <= loss) gone.insert(worker);
  }
  for (const WorkerId& worker : gone) quarantine_.erase(worker);
  owned_.remove_forks_of(step, gone);
  used_.remove_children_of(step, gone);
  for (const WorkerId& worker : gone) names_.erase(worker);
}

void References::on_destroyed() {
  host_.step([this](Step& step) {
    if (idle() && node_.owes_quiet()) look_again_at_ = step.now;
  });
}

void References::on_time(Step& step) {
  look_again_at_ = kNever;
  if (stopped_) return;
  controls_.on_time(step);
  owned_.on_time(step);
}

void References::stop(Step& step) {
  stopped_ = true;
  owned_.stop_waiting(step);  // the values stay: handlers may still use them
  used_.clear();
}

std::string References::describe() const {
  if (idle()) return {};
  return fmt::format(
      "{} references that their owners have not confirmed, {} references sent on, {} objects being destroyed",
      used_.unconfirmed_count(), used_.child_count(), owned_.destroying_count());
}

std::string References::leftovers() const { return collect_debug_info().owned_text(); }

DebugInfo References::debug_info() {
  DebugInfo info;
  host_.step([&](Step&) { info = collect_debug_info(); });
  return info;
}

DebugInfo References::collect_debug_info() const {
  DebugInfo info;
  std::unordered_map<const Owned*, size_t> places;
  for (const auto& [id, object] : owned_.objects()) {
    constexpr const char* kStates[] = {"expected", "pending", "ready", "failed"};
    places[&object] = info.owned.size();
    info.owned.push_back({.id = id,
                          .type = object.value.type != nullptr ? cpp_type_name(*object.value.type) : "",
                          .state = kStates[static_cast<size_t>(object.state)],
                          .made_by = object.origin.text(),
                          .handles = object.handles,
                          .holders = {},
                          .calls_waiting = object.waiting.size()});
  }
  for (const auto& [id, fork] : owned_.forks()) {
    auto name = names_.find(fork.holder);
    info.owned[places.at(fork.object)].holders.push_back(
        name != names_.end() ? name->second : fmt::format("rank {}", fork.holder.rank.value));
  }
  for (DebugInfo::OwnedObject& object : info.owned) std::sort(object.holders.begin(), object.holders.end());
  for (const auto& [id, used] : used_.references()) {
    info.used.push_back({.id = used.rref,
                         .fork = id,
                         .owner = used.owner->name,
                         .confirmed = used.state == Used::State::confirmed,
                         .dead = used.state == Used::State::dead,
                         .handles = used.handles,
                         .pending_children = used.children});
  }
  std::sort(info.owned.begin(), info.owned.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::sort(info.used.begin(), info.used.end(), [](const auto& a, const auto& b) { return a.fork < b.fork; });
  info.forks = owned_.forks().size();
  info.pending_children = used_.child_count();
  info.pending_users = used_.unconfirmed_count();
  info.quarantined = quarantine_.size();
  info.control_messages = controls_.messages_sent();
  info.calls_made = node_.calls().made_count();
  info.calls_served = node_.calls().served_count();
  return info;
}

}  // namespace holdfast
