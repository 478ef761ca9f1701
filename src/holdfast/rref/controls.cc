#include <holdfast/rref/controls.h>

#include <algorithm>

#include <holdfast/base/canary.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

namespace {

// How long words to a peer wait for company, and how many go out without waiting.
constexpr Duration kCompanyWait = std::chrono::milliseconds(1);
constexpr size_t kTogether = 64;

}  // namespace

Controls::PeerControls& Controls::gather(Step& step, const WorkerPtr& peer) {
  PeerControls& controls = peers_[peer->id()];
  if (!controls.worker) controls.worker = peer;
  if (!controls.waiting) {
    controls.waiting = true;
    if (waiting_.empty()) send_at_ = after(step.now, kCompanyWait);
    waiting_.push_back(peer->id());
  }
  return controls;
}

// When a list has become long, it goes.
void Controls::count(Step& step, PeerControls& peer, size_t length) {
  if (length >= kTogether) send(step, peer);
}

void Controls::request(Step& step, const WorkerPtr& owner, const ForkRequest& request) {
  if (HOLDFAST_CANARY(request_not_sent)) return;
  PeerControls& peer = gather(step, owner);
  peer.requests.push_back(request);
  ++requests_waiting_;
  count(step, peer, peer.requests.size());
}

void Controls::accept(Step& step, const WorkerPtr& user, const ForkId& fork) {
  if (HOLDFAST_CANARY(accept_not_sent)) return;
  PeerControls& peer = gather(step, user);
  peer.accepts.push_back(fork);
  count(step, peer, peer.accepts.size());
}

void Controls::child_accept(Step& step, const WorkerPtr& parent, const ForkId& fork) {
  if (HOLDFAST_CANARY(child_accept_not_sent)) return;
  PeerControls& peer = gather(step, parent);
  peer.child_accepts.push_back(fork);
  count(step, peer, peer.child_accepts.size());
}

void Controls::user_delete(Step& step, const WorkerPtr& owner, const ForkId& fork) {
  if (HOLDFAST_CANARY(delete_not_sent)) return;
  PeerControls& peer = gather(step, owner);
  peer.deletes.push_back(fork);
  count(step, peer, peer.deletes.size());
}

void Controls::before_send(Step& step, const WorkerId& to) {
  if (requests_waiting_ == 0 || HOLDFAST_CANARY(request_overtaken)) return;
  if (auto found = peers_.find(to); found != peers_.end()) send_requests(step, found->second);
}

void Controls::send_requests(Step& step, PeerControls& peer) {
  if (peer.requests.empty()) return;
  requests_waiting_ -= peer.requests.size();
  ForkRequests message{.number = ++peer.last_sent, .requests = {}};
  message.requests.swap(peer.requests);
  ++messages_sent_;
  post_.send_control(step, peer.worker, std::make_shared<Message>(wire::encode_message(kRRefForkRequest, message)));
}

void Controls::send_forks(Step& step, PeerControls& peer, Kind kind, std::vector<ForkId>& forks) {
  if (forks.empty()) return;
  Forks message{.number = ++peer.last_sent, .forks = {}};
  message.forks.swap(forks);
  ++messages_sent_;
  post_.send_control(step, peer.worker, std::make_shared<Message>(wire::encode_message(kind, message)));
}

void Controls::send(Step& step, PeerControls& peer) {
  if (peer.waiting) {
    peer.waiting = false;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), peer.worker->id()));
  }
  send_requests(step, peer);
  send_forks(step, peer, kRRefAccept, peer.accepts);
  send_forks(step, peer, kRRefChildAccept, peer.child_accepts);
  send_forks(step, peer, kRRefUserDelete, peer.deletes);
}

void Controls::on_time(Step& step) {
  if (waiting_.empty() || step.now < send_at_) return;
  while (!waiting_.empty()) send(step, peers_.at(waiting_.front()));
}

void Controls::forget(const WorkerId& peer) {
  auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  requests_waiting_ -= found->second.requests.size();
  if (found->second.waiting) waiting_.erase(std::find(waiting_.begin(), waiting_.end(), peer));
  peers_.erase(found);
}

bool Controls::is_new(const WorkerId& from, uint64_t number) {
  uint64_t& last = peers_[from].last_received;
  if (number <= last && !HOLDFAST_CANARY(repetition_counted)) return false;
  last = number;
  return true;
}

}  // namespace holdfast
