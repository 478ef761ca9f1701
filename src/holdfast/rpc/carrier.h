// Carrier: a worker's TCP transport, with or without a FaultyTransport between it and the worker.
//
// Owned by the Runtime; threads as the transport.
#pragma once

#include <memory>

#include <holdfast/rpc/fault_options.h>
#include <holdfast/transport/faulty.h>
#include <holdfast/transport/tcp.h>

namespace holdfast {

class Carrier {
 public:
  // `plan_of` is asked only if there are faults for frames.
  Carrier(TransportEvents& events, const TcpOptions& options, const FaultOptions& faults, uint64_t seed,
          FaultyTransport::PlanOf plan_of) {
    if (!faults.any_for_frames()) {
      owned_ = std::make_unique<TcpTransport>(events, options);
      tcp_ = static_cast<TcpTransport*>(owned_.get());
      return;
    }
    const FaultPlan whole{.drop = faults.tampers() ? 1.0 : 0.0, .seed = seed};  // `plan_of` has the parts
    auto faulty = std::make_unique<FaultyTransport>(
        events, whole, steady_now,
        [&](TransportEvents& inner_events) {
          auto tcp = std::make_unique<TcpTransport>(inner_events, options);
          tcp_ = tcp.get();
          return tcp;
        },
        std::move(plan_of));
    faulty_ = faulty.get();
    owned_ = std::move(faulty);
  }

  TcpTransport& tcp() { return *tcp_; }
  // Null: no faults.
  FaultyTransport* faulty() { return faulty_; }
  const FaultyTransport* faulty() const { return faulty_; }

 private:
  std::unique_ptr<Transport> owned_;
  FaultyTransport* faulty_ = nullptr;
  TcpTransport* tcp_ = nullptr;
};

}  // namespace holdfast
