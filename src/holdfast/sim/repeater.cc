#include <holdfast/sim/repeater.h>

#include <holdfast/rref/messages.h>
#include <holdfast/rref/references.h>

namespace holdfast::sim {

namespace {

constexpr uint64_t kLaterNsMax = 30'000'000;

}  // namespace

Repeater::Repeater(Node& node, Host& host, SimNetwork& network, Repetition& repetition)
    : node_(node), host_(host), network_(network), repetition_(repetition) {
  node_.add_protocol(kRRefForkRequest, kRRefUserDelete, *this);
}

Status Repeater::on_message(Step& step, const WorkerPtr& from, Message message) {
  if (repetition_.chance > 0 && repetition_.random.chance(repetition_.chance)) {
    ++repetition_.count;
    const Time later = network_.now() + Duration(repetition_.random.below(kLaterNsMax));
    network_.schedule(later, [this, from, message = std::make_shared<Message>(message)] {
      host_.step([&](Step& later_step) {
        // Nothing arrives from the lost, nor on a worker that is.
        if (node_.is_lost(from->id()) || node_.member().fenced() || node_.stopped()) return;
        (void)References::of(host_).on_message(later_step, from, std::move(*message));
      });
    });
  }
  return References::of(host_).on_message(step, from, std::move(message));
}

}  // namespace holdfast::sim
