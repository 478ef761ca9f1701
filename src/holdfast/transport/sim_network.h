// SimNetwork: a network that exists only in memory, with a clock of its own. One seed gives one history: the
// same calls in the same order lead to the same events at the same times, and to the same trace hash.
//
// Owned by a test or by the simulator; everything runs on the one thread that calls step(). It must outlive
// the transports it makes. Frames are encoded when sent and decoded when they arrive, as on a real wire.
//
// Like TCP, a connection delays frames while it cannot deliver them (a partition) and delivers them in order
// once it can; if that takes longer than `dead_after`, both sides see it closed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <holdfast/base/closure.h>
#include <holdfast/base/random.h>
#include <holdfast/transport/transport.h>

namespace holdfast {

struct SimOptions {
  uint64_t seed = 1;
  Duration latency_min = std::chrono::microseconds(50);
  Duration latency_max = std::chrono::microseconds(500);
  // A connection that could not deliver for so long is closed on both sides.
  Duration dead_after = std::chrono::seconds(2);
  uint64_t frame_bytes_max = uint64_t{1} << 30;

  // For each frame. Any of them above zero makes the transports unreliable.
  double loss = 0;
  double duplication = 0;
  double reordering = 0;
  Duration reordering_delay_max = std::chrono::milliseconds(5);
};

class SimTransport;

class SimNetwork {
 public:
  using TraceHook = std::function<void(Time time, const std::string& from, const std::string& to,
                                       const FrameHeader& header, const Message& message)>;

  explicit SimNetwork(SimOptions options = {});
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  // A transport that listens at `address`, which nobody else uses at this time (after take_down() it is free
  // again, for the worker that restarts).
  std::unique_ptr<Transport> make_transport(std::string address, TransportEvents& events);

  // ---- time ----
  Time now() const { return now_; }
  // Runs the next event; false if there is none.
  bool step();
  // Runs everything up to and including `time`, and leaves the clock there.
  void run_until(Time time);
  // For drivers' timers. A time that has passed means now.
  void schedule(Time time, Closure run);
  // kNever if nothing is to happen.
  Time next_event_at() const;

  // ---- mishaps ----
  // Nothing gets through between the two, in either direction, until heal().
  void partition(const std::string& a, const std::string& b);
  void heal();
  // Resets the connections between the two; what is under way on them is lost. New ones can be made.
  void cut(const std::string& a, const std::string& b);
  // Crash: the transport at `address` hears and says nothing any more, nor does what it sent arrive. Its
  // peers see their connections closed after a while, and new ones refused. Its owner may destroy it later.
  void take_down(const std::string& address);
  // From now on no frame is lost, repeated or reordered. (reliable() keeps its answer: links chose by it.)
  void calm_down();

  // ---- delivery by hand ----
  // From now on nothing arrives by itself, and no timer of before runs: whoever drives this picks each arrival.
  // That is how every order can be tried. Call it when no connection is being closed.
  void take_over();
  // What can arrive next: at most one thing for each direction of each connection, in the order of connections.
  struct Arrival {
    enum class What {
      dial,         // `from` wants to connect to `to`
      connected,    // `to` hears that its dial was accepted
      frame,        // ... a frame
      finished,     // ... that `from` has closed the connection
      broken,       // ... that the connection was cut, or was refused
      closed_here,  // ... that its own close() is done
    };
    What what;
    std::string from;
    std::string to;
    uint64_t wire;
    size_t side;                   // of `to`
    ByteView frame;                // as encoded; good until something arrives or is sent
    const Failure* why = nullptr;  // broken, closed_here
  };
  std::vector<Arrival> arrivals() const { return list_arrivals(false); }
  // The same, and behind each what follows it.
  std::vector<Arrival> under_way() const { return list_arrivals(true); }
  void deliver(const Arrival& arrival);
  // A frame is lost, though the network is a reliable one: to see that somebody notices.
  void swallow(const Arrival& arrival);
  // The clock moves; nothing else happens.
  void advance(Duration by) { now_ += by; }

  // ---- watching ----
  // Called for each frame as it arrives, before its receiver sees it.
  void set_trace(TraceHook hook) { trace_ = std::move(hook); }
  struct Counts {
    uint64_t lost = 0;
    uint64_t duplicated = 0;
    uint64_t reordered = 0;
  };
  const Counts& counts() const { return counts_; }
  // Over every frame, connection and end of connection so far, with times.
  uint64_t trace_hash() const { return trace_hash_; }

 private:
  friend class SimTransport;
  enum class State { dialling, open, closed };
  enum class What { connected, frame, finished };
  struct Item {
    What what;
    Bytes bytes;
  };
  using Key = std::pair<Time, uint64_t>;
  // One end of a connection. `incoming` is what is on its way here, by arrival.
  struct Side {
    std::string address;
    SimTransport* transport = nullptr;  // null: gone, or not yet accepted
    ConnectionId id;
    State state = State::closed;
    bool closing = false;  // its user called close(): it hears nothing but on_closed
    bool trusted = false;
    Time last_arrival = Time{};
    std::map<Key, Item> incoming;
    std::optional<Time> stalled_since;
    std::optional<Failure> ending;  // after take_over: what on_closed will say
  };
  // A connection: side 0 dialled, side 1 accepts. Comes with connect(), goes when both sides are closed.
  struct Wire {
    uint64_t number = 0;
    std::array<Side, 2> sides;
    bool dead = false;        // cut: nothing arrives any more
    bool dial_waits = false;  // the dial is on its way to side 1
  };
  using WirePtr = std::shared_ptr<Wire>;

  void connect(SimTransport& from, ConnectionId id, const std::string& address);
  void flush(const WirePtr& wire, size_t side);
  void close(const WirePtr& wire, size_t side, Failure why);
  void leave(SimTransport& transport);

  void arrive_dial(const WirePtr& wire);
  void send_frame(const WirePtr& wire, size_t to, const OutFrame& frame);
  void send(const WirePtr& wire, size_t to, Item item, Duration extra);
  void pump(const WirePtr& wire, size_t side, size_t items_max = SIZE_MAX);
  void stall(const WirePtr& wire, size_t side);
  bool accept_frame(const WirePtr& wire, size_t side, const Bytes& bytes, std::vector<InFrame>& frames);
  void end(const WirePtr& wire, size_t side, const Failure& why);
  void end_later(const WirePtr& wire, size_t side, Duration wait, Failure why);
  void drop_if_over(const WirePtr& wire);
  Duration latency();
  bool separated(const std::string& a, const std::string& b) const;
  std::vector<Arrival> list_arrivals(bool all) const;
  void mix(uint64_t value);
  void mix(const std::string& text);

  SimOptions options_;
  const bool reliable_;
  bool taken_over_ = false;
  Random random_;
  Time now_ = Time{};
  uint64_t next_number_ = 0;
  std::map<Key, Closure> queue_;
  std::map<std::string, SimTransport*> listening_;  // from make_transport to its end or take_down
  std::map<uint64_t, WirePtr> wires_;
  std::set<std::pair<std::string, std::string>> partitions_;  // each pair in order
  TraceHook trace_;
  Counts counts_;
  uint64_t trace_hash_ = 0xcbf29ce484222325;
};

}  // namespace holdfast
