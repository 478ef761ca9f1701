#include <holdfast/transport/sim_network.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include <holdfast/base/check.h>
#include <holdfast/transport/common.h>

namespace holdfast {

namespace {

using transport_detail::corrupt;
using transport_detail::kCollectBytes;
using transport_detail::unavailable;

std::pair<std::string, std::string> in_order(const std::string& a, const std::string& b) {
  return a < b ? std::pair(a, b) : std::pair(b, a);
}

}  // namespace

class SimTransport final : public Transport {
 public:
  SimTransport(SimNetwork& network, std::string address, TransportEvents& events)
      : network_(&network), address_(std::move(address)), events_(events) {}
  ~SimTransport() override {
    if (network_ != nullptr) network_->leave(*this);
  }

  void connect(ConnectionId connection, const std::string& address) override {
    HOLDFAST_CHECK(connection.value % 2 == 0);
    if (network_ != nullptr) network_->connect(*this, connection, address);
  }
  void flush(ConnectionId connection) override {
    if (const auto found = places_.find(connection); found != places_.end()) {
      const Place place = found->second;
      network_->flush(place.wire, place.side);
    }
  }
  void close(ConnectionId connection, Failure why) override {
    if (const auto found = places_.find(connection); found != places_.end()) {
      const Place place = found->second;
      network_->close(place.wire, place.side, std::move(why));
    }
  }
  void trust(ConnectionId connection) override {
    if (const auto found = places_.find(connection); found != places_.end()) {
      found->second.wire->sides[found->second.side].trusted = true;
    }
  }
  bool reliable() const override { return network_ == nullptr || network_->reliable_; }

  // Where each of our connections is; from connect or accept to just before on_closed.
  struct Place {
    SimNetwork::WirePtr wire;
    size_t side;
  };
  SimNetwork* network_;  // null after take_down
  const std::string address_;
  TransportEvents& events_;
  std::map<ConnectionId, Place> places_;
  uint64_t next_accepted_ = 1;
};

SimNetwork::SimNetwork(SimOptions options)
    : options_(options),
      reliable_(options.loss == 0 && options.duplication == 0 && options.reordering == 0),
      random_(options.seed) {
  HOLDFAST_CHECK(options_.latency_min >= Duration::zero() && options_.latency_min <= options_.latency_max);
}

SimNetwork::~SimNetwork() {
  for (const auto& [address, transport] : listening_) {
    transport->places_.clear();
    transport->network_ = nullptr;
  }
}

std::unique_ptr<Transport> SimNetwork::make_transport(std::string address, TransportEvents& events) {
  auto transport = std::make_unique<SimTransport>(*this, address, events);
  const bool fresh = listening_.emplace(std::move(address), transport.get()).second;
  HOLDFAST_CHECK(fresh);
  return transport;
}

// ---- time ----

void SimNetwork::schedule(Time time, Closure run) {
  queue_.emplace(Key(std::max(time, now_), next_number_++), std::move(run));
}

Time SimNetwork::next_event_at() const { return queue_.empty() ? kNever : queue_.begin()->first.first; }

bool SimNetwork::step() {
  if (queue_.empty()) return false;
  auto node = queue_.extract(queue_.begin());
  now_ = node.key().first;
  node.mapped()();
  return true;
}

void SimNetwork::run_until(Time time) {
  while (next_event_at() <= time && step()) {
  }
  now_ = std::max(now_, time);
}

Duration SimNetwork::latency() {
  return Duration(static_cast<Duration::rep>(random_.between(static_cast<uint64_t>(options_.latency_min.count()),
                                                             static_cast<uint64_t>(options_.latency_max.count()))));
}

// ---- what transports ask for ----

void SimNetwork::connect(SimTransport& from, ConnectionId id, const std::string& address) {
  auto wire = std::make_shared<Wire>();
  wire->number = next_number_++;
  wire->sides[0] = {.address = from.address_, .transport = &from, .id = id, .state = State::dialling};
  wire->sides[1].address = address;
  wires_.emplace(wire->number, wire);
  const bool fresh = from.places_.emplace(id, SimTransport::Place{wire, 0}).second;
  HOLDFAST_CHECK(fresh);
  wire->dial_waits = true;
  if (!taken_over_) schedule(now_ + latency(), [this, wire] { arrive_dial(wire); });
}

void SimNetwork::arrive_dial(const WirePtr& wire) {
  Side& dialler = wire->sides[0];
  Side& acceptor = wire->sides[1];
  wire->dial_waits = false;
  if (dialler.state == State::closed || dialler.closing || wire->dead) return;
  if (separated(dialler.address, acceptor.address)) {
    end_later(wire, 0, options_.dead_after,
              unavailable(fmt::format("cannot connect to {}: timed out", acceptor.address)));
    return;
  }
  const auto found = listening_.find(acceptor.address);
  if (found == listening_.end()) {
    end_later(wire, 0, latency(),
              unavailable(fmt::format("cannot connect to {}: connection refused", acceptor.address)));
    return;
  }
  SimTransport& transport = *found->second;
  acceptor.transport = &transport;
  acceptor.id = ConnectionId{transport.next_accepted_};
  acceptor.state = State::open;
  transport.next_accepted_ += 2;
  transport.places_.emplace(acceptor.id, SimTransport::Place{wire, 1});
  send(wire, 0, {.what = What::connected, .bytes = {}}, Duration::zero());
  mix("accepted");
  mix(dialler.address);
  mix(acceptor.address);
  transport.events_.on_accepted(acceptor.id);
}

void SimNetwork::flush(const WirePtr& wire, size_t side) {
  const Side& from = wire->sides[side];
  std::vector<OutFrame> frames;
  while (from.state == State::open && !from.closing) {
    frames.clear();
    from.transport->events_.collect(from.id, kCollectBytes, frames);
    if (frames.empty()) return;
    for (const OutFrame& frame : frames) send_frame(wire, 1 - side, frame);
  }
}

void SimNetwork::send_frame(const WirePtr& wire, size_t to, const OutFrame& frame) {
  if (random_.chance(options_.loss)) {
    ++counts_.lost;
    return;
  }
  const int copies = random_.chance(options_.duplication) ? 2 : 1;
  if (copies == 2) ++counts_.duplicated;
  for (int i = 0; i < copies; ++i) {
    Duration extra = Duration::zero();
    if (random_.chance(options_.reordering)) {
      ++counts_.reordered;
      extra = Duration(
          static_cast<Duration::rep>(random_.between(1, static_cast<uint64_t>(options_.reordering_delay_max.count()))));
    }
    send(wire, to, {.what = What::frame, .bytes = encode_frame(frame)}, extra);
  }
}

// `extra`: late, and overtaken by what follows. Otherwise things arrive in the order they were sent.
void SimNetwork::send(const WirePtr& wire, size_t to, Item item, Duration extra) {
  Side& target = wire->sides[to];
  if (target.state == State::closed || wire->dead) return;
  if (taken_over_) {
    target.incoming.emplace(Key(now_, next_number_++), std::move(item));
    return;
  }
  Time arrival = std::max(target.last_arrival, now_ + latency());
  if (item.what == What::finished && !target.incoming.empty()) {
    arrival = std::max(arrival, target.incoming.rbegin()->first.first);
  }
  if (extra == Duration::zero()) target.last_arrival = arrival;
  arrival += extra;
  target.incoming.emplace(Key(arrival, next_number_++), std::move(item));
  schedule(arrival, [this, wire, to] { pump(wire, to); });
}

void SimNetwork::close(const WirePtr& wire, size_t side, Failure why) {
  Side& mine = wire->sides[side];
  if (mine.state == State::closed || mine.closing) return;
  mine.closing = true;
  mine.incoming.clear();
  send(wire, 1 - side, {.what = What::finished, .bytes = {}}, Duration::zero());
  end_later(wire, side, Duration::zero(), std::move(why));
}

// The transport is being destroyed: its peers see an orderly end, it sees nothing.
void SimNetwork::leave(SimTransport& transport) {
  listening_.erase(transport.address_);
  const auto places = std::exchange(transport.places_, {});
  for (const auto& [id, place] : places) {
    Side& mine = place.wire->sides[place.side];
    mine.state = State::closed;
    mine.transport = nullptr;
    mine.incoming.clear();
    if (!mine.closing) send(place.wire, 1 - place.side, {.what = What::finished, .bytes = {}}, Duration::zero());
    drop_if_over(place.wire);
  }
}

// ---- arrival ----

void SimNetwork::pump(const WirePtr& wire, size_t side, size_t items_max) {
  Side& mine = wire->sides[side];
  const std::string& peer = wire->sides[1 - side].address;
  std::vector<InFrame> frames;
  const auto deliver = [&] {
    if (!frames.empty() && mine.state != State::closed && !mine.closing) {
      mine.transport->events_.on_frames(mine.id, frames);
    }
    frames.clear();
  };
  for (; items_max > 0 && mine.state != State::closed && !mine.closing && !wire->dead; --items_max) {
    if (mine.incoming.empty() || mine.incoming.begin()->first.first > now_) break;
    if (separated(mine.address, peer)) {
      stall(wire, side);
      break;
    }
    mine.stalled_since.reset();
    const Item item = std::move(mine.incoming.extract(mine.incoming.begin()).mapped());
    if (item.what == What::frame) {
      if (!accept_frame(wire, side, item.bytes, frames)) return;
      // One at a time until the peer has proved itself: see Transport::trust.
      if (!mine.trusted) deliver();
      continue;
    }
    deliver();
    if (mine.state == State::closed || mine.closing) return;
    if (item.what == What::connected) {
      mine.state = State::open;
      mix("connected");
      mine.transport->events_.on_connected(mine.id);
      flush(wire, side);
    } else {
      end(wire, side, unavailable(fmt::format("the connection with {} broke: the peer closed it", peer)));
      return;
    }
  }
  deliver();
}

// Decodes and checks; false if the connection has ended because of it.
bool SimNetwork::accept_frame(const WirePtr& wire, size_t side, const Bytes& bytes, std::vector<InFrame>& frames) {
  Side& mine = wire->sides[side];
  const std::string& peer = wire->sides[1 - side].address;
  auto frame = decode_frame(bytes);
  std::optional<Failure> wrong;
  if (!frame) {
    wrong = corrupt(fmt::format("{} bytes that are not a frame from {}", bytes.size(), peer));
  } else {
    const uint64_t limit =
        mine.trusted ? options_.frame_bytes_max : std::min<uint64_t>(options_.frame_bytes_max, kUntrustedFrameBytesMax);
    const uint64_t total = frame->message.total_bytes();
    if (total > limit) {
      wrong = corrupt(fmt::format("a frame of {} bytes (kind {}) from {}: the limit is {}", total,
                                  frame->header.kind.value, peer, limit));
    } else if (!mine.trusted && !frame->message.attachments.empty()) {
      wrong = corrupt(fmt::format("a frame with attachments from {}, which has not proved who it is", peer));
    }
  }
  if (wrong) {
    // What came before it is delivered first, as a stream would.
    if (!frames.empty()) mine.transport->events_.on_frames(mine.id, frames);
    if (mine.state == State::closed || mine.closing) return false;
    send(wire, 1 - side, {.what = What::finished, .bytes = {}}, Duration::zero());
    end(wire, side, *wrong);
    return false;
  }
  mix(peer);
  mix(mine.address);
  mix(frame->header.kind.value);
  mix(frame->header.sequence);
  mix(frame->header.acknowledged);
  mix(frame->header.credit_bytes);
  mix(bytes.size());
  // Eight bytes at a time: large frames should not make the simulator slow.
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min<size_t>(8, bytes.size() - at));
    trace_hash_ = (trace_hash_ ^ word) * 0x100000001b3;
    trace_hash_ ^= trace_hash_ >> 29;
  }
  if (trace_) trace_(now_, peer, mine.address, frame->header, frame->message);
  frames.push_back(std::move(*frame));
  return true;
}

void SimNetwork::stall(const WirePtr& wire, size_t side) {
  Side& mine = wire->sides[side];
  if (mine.stalled_since) return;
  mine.stalled_since = now_;
  schedule(now_ + options_.dead_after, [this, wire, side, since = now_] {
    if (wire->sides[side].stalled_since != since) return;
    for (const size_t each : {side, 1 - side}) {
      end(wire, each,
          unavailable(fmt::format("the connection with {} broke: timed out", wire->sides[1 - each].address)));
    }
  });
}

void SimNetwork::end(const WirePtr& wire, size_t side, const Failure& why) {
  Side& mine = wire->sides[side];
  if (mine.state == State::closed) return;
  mine.state = State::closed;
  mine.incoming.clear();
  mine.stalled_since.reset();
  SimTransport* transport = std::exchange(mine.transport, nullptr);
  transport->places_.erase(mine.id);
  mix("closed");
  mix(mine.address);
  mix(static_cast<uint64_t>(why.code));
  drop_if_over(wire);
  transport->events_.on_closed(mine.id, why);
}

void SimNetwork::end_later(const WirePtr& wire, size_t side, Duration wait, Failure why) {
  if (taken_over_) {
    wire->sides[side].ending = std::move(why);
    return;
  }
  schedule(now_ + wait, [this, wire, side, why = std::move(why)] { end(wire, side, why); });
}

void SimNetwork::drop_if_over(const WirePtr& wire) {
  if (wire->sides[0].state == State::closed && wire->sides[1].state == State::closed) wires_.erase(wire->number);
}

// ---- mishaps ----

bool SimNetwork::separated(const std::string& a, const std::string& b) const {
  return !partitions_.empty() && partitions_.contains(in_order(a, b));
}

void SimNetwork::partition(const std::string& a, const std::string& b) { partitions_.insert(in_order(a, b)); }

void SimNetwork::heal() {
  partitions_.clear();
  for (const auto& [number, wire] : wires_) {
    for (const size_t side : {0, 1}) {
      Side& mine = wire->sides[side];
      if (!mine.stalled_since) continue;
      mine.stalled_since.reset();
      // What was held up is sent again, in the same order, and what follows does not overtake it.
      Time arrival = now_ + latency();
      const auto held = std::exchange(mine.incoming, {});
      for (const auto& [key, item] : held) {
        arrival = std::max(arrival, key.first);
        mine.incoming.emplace(Key(arrival, next_number_++), item);
        schedule(arrival, [this, wire = wire, side] { pump(wire, side); });
      }
      mine.last_arrival = std::max(mine.last_arrival, arrival);
    }
  }
}

void SimNetwork::cut(const std::string& a, const std::string& b) {
  for (const auto& [number, wire] : wires_) {
    if (in_order(wire->sides[0].address, wire->sides[1].address) != in_order(a, b)) continue;
    wire->dead = true;
    for (const size_t side : {0, 1}) {
      wire->sides[side].incoming.clear();
      end_later(
          wire, side, latency(),
          unavailable(fmt::format("the connection with {} broke: connection reset", wire->sides[1 - side].address)));
    }
  }
}

void SimNetwork::take_down(const std::string& address) {
  const auto found = listening_.find(address);
  if (found == listening_.end()) return;
  SimTransport& transport = *found->second;
  listening_.erase(found);
  transport.network_ = nullptr;
  mix("down");
  mix(address);
  const auto places = std::exchange(transport.places_, {});
  for (const auto& [id, place] : places) {
    Wire& wire = *place.wire;
    Side& mine = wire.sides[place.side];
    Side& peer = wire.sides[1 - place.side];
    wire.dead = true;
    mine.state = State::closed;
    mine.transport = nullptr;
    mine.incoming.clear();
    peer.incoming.clear();
    const uint64_t wait = random_.between(static_cast<uint64_t>(options_.latency_min.count()),
                                          static_cast<uint64_t>(options_.dead_after.count()));
    end_later(place.wire, 1 - place.side, Duration(static_cast<Duration::rep>(wait)),
              unavailable(fmt::format("the connection with {} broke: no answer any more", address)));
    drop_if_over(place.wire);
  }
}

void SimNetwork::calm_down() { options_.loss = options_.duplication = options_.reordering = 0; }

// ---- delivery by hand ----

void SimNetwork::take_over() {
  taken_over_ = true;
  queue_.clear();
}

std::vector<SimNetwork::Arrival> SimNetwork::list_arrivals(bool all) const {
  std::vector<Arrival> list;
  for (const auto& [number, wire] : wires_) {
    for (const size_t side : {0, 1}) {
      const Side& mine = wire->sides[side];
      const Side& peer = wire->sides[1 - side];
      // The number by name: clang 14 lets no lambda capture a structured binding.
      const auto add = [&, wire_number = wire->number](Arrival::What what) -> Arrival& {
        return list.emplace_back(Arrival{what, peer.address, mine.address, wire_number, side, {}, nullptr});
      };
      if (side == 1 && wire->dial_waits && !wire->dead && peer.state != State::closed && !peer.closing) {
        add(Arrival::What::dial);
      }
      if (mine.state == State::closed) continue;
      if (mine.ending) add(mine.closing ? Arrival::What::closed_here : Arrival::What::broken).why = &*mine.ending;
      if (mine.ending || mine.closing || wire->dead) continue;
      for (const auto& [key, item] : mine.incoming) {
        if (item.what == What::frame) {
          add(Arrival::What::frame).frame = item.bytes;
        } else {
          add(item.what == What::connected ? Arrival::What::connected : Arrival::What::finished);
        }
        if (!all) break;
      }
    }
  }
  return list;
}

void SimNetwork::deliver(const Arrival& arrival) {
  const WirePtr wire = wires_.at(arrival.wire);
  Side& mine = wire->sides[arrival.side];
  switch (arrival.what) {
    case Arrival::What::dial: return arrive_dial(wire);
    case Arrival::What::broken:
    case Arrival::What::closed_here: return end(wire, arrival.side, *std::exchange(mine.ending, std::nullopt));
    case Arrival::What::connected:
    case Arrival::What::frame:
    case Arrival::What::finished: break;
  }
  now_ = std::max(now_, mine.incoming.begin()->first.first);
  pump(wire, arrival.side, 1);
}

void SimNetwork::swallow(const Arrival& arrival) {
  HOLDFAST_CHECK(arrival.what == Arrival::What::frame);
  auto& incoming = wires_.at(arrival.wire)->sides[arrival.side].incoming;
  incoming.erase(incoming.begin());
}

// ---- the trace ----

void SimNetwork::mix(uint64_t value) {
  for (const uint64_t part : {value, static_cast<uint64_t>(now_.time_since_epoch().count())}) {
    trace_hash_ = (trace_hash_ ^ part) * 0x100000001b3;
    trace_hash_ ^= trace_hash_ >> 29;
  }
}

void SimNetwork::mix(const std::string& text) {
  for (const char letter : text) trace_hash_ = (trace_hash_ ^ static_cast<uint8_t>(letter)) * 0x100000001b3;
  mix(text.size());
}

}  // namespace holdfast
