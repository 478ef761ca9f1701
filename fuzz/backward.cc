// The messages of contexts and backward passes, from peers that say what they like, to a worker that has contexts,
// takes part in passes and starts its own. Each pass that it starts ends, exactly once; and when every context has
// ended and everybody else is lost, nothing may be left.
//
//   input   events: which (1 byte), what it needs
#include <holdfast/backward/backward_test_support.h>
#include <holdfast/base/check.h>

#include "hand_clock.h"
#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr size_t kPassesMax = 16;
constexpr size_t kContextsMax = 8;

class Participant {
 public:
  Participant() {
    contexts_.push_back(worker_.create());
    for (uint32_t rank : {1, 2}) (void)worker_.enter(rank, 1, rank);
  }
  void event(Input& in) {
    switch (in.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const uint32_t rank = 1 + in.below(3);
        (void)worker_.from(rank, in.message());
        return;
      }
      case 4:
      case 5: return worker_.run();
      case 6: return worker_.advance(clock_.take(in));
      case 7: return start(in);
      case 8: return answer(in);
      case 9: return context(in);
      case 10: return worker_.lose(1 + in.below(3));
      default: (void)worker_.said_to(1 + in.below(3)); return;
    }
  }
  void end() {
    for (const ContextId& context : contexts_) worker_.backwards().end_context(context);
    for (uint32_t rank : {1, 2, 3}) worker_.lose(rank);
    worker_.run();
    HOLDFAST_CHECK(worker_.done.size() == passes_);
    HOLDFAST_CHECK(worker_.backwards().counts() == BackwardCounts{});
    HOLDFAST_CHECK(worker_.script.graphs == 0);
  }

 private:
  void start(Input& in) {
    const ContextId context = contexts_[in.byte() % contexts_.size()];
    const PassMode mode = in.below(2) == 1 ? PassMode::smart : PassMode::fast;
    const Duration timeout = std::chrono::milliseconds(1) * (1 << in.below(16));
    if (passes_ >= kPassesMax) return;
    ++passes_;
    worker_.start(context, mode, timeout);
  }
  // What a graph answers next: sends that it has reached, gradients that leave, or an exception.
  void answer(Input& in) {
    test::Script::Answer answer;
    if (in.below(8) == 7) answer.error = "an exception";
    for (uint32_t n = in.below(3); n > 0; --n) {
      answer.reached.push_back({test::worker_info(in.below(4)), {in.byte()}});
    }
    for (uint32_t n = in.below(3); n > 0; --n) {
      answer.result.gradients.push_back({test::worker_info(in.below(4)), {in.byte()}, test::gradient("g")});
    }
    const uint32_t left = in.below(3);
    answer.result.waiting = left > 0 ? 1 : 0;
    answer.result.held = left > 1;
    if (worker_.script.answers.size() < 64) worker_.script.answers.push_back(std::move(answer));
  }
  void context(Input& in) {
    const uint8_t which = in.byte();
    if (which % 3 == 0 && contexts_.size() < kContextsMax) {
      contexts_.push_back(worker_.create());
    } else if (which % 3 == 1) {
      (void)worker_.enter(1 + in.below(3), in.below(4), 1 + in.below(3));
    } else {
      worker_.backwards().end_context(contexts_[in.byte() % contexts_.size()]);
    }
  }

  test::HandWorker worker_;
  HandClock clock_;
  std::vector<ContextId> contexts_;
  size_t passes_ = 0;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  testing::GTEST_FLAG(break_on_failure) = true;  // what the support of the tests expects
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Participant participant;
  while (!in.empty()) participant.event(in);
  participant.end();
  return 0;
}
