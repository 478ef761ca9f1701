// Calls, replies and cancellations from a peer that says what it likes: their headers, their sections and their
// arguments. Every call that this worker makes completes, exactly once; and no call that it serves is left when the
// peers are gone.
//
//   input   events: which (1 byte), what it needs
#include <holdfast/base/check.h>
#include <holdfast/rref/rref_test_support.h>

#include "functions.h"
#include "hand_clock.h"
#include "input.h"

namespace holdfast::fuzz {
namespace {

constexpr size_t kCallsMax = 32;

// HOLDFAST_EXPORT would do it in a program.
[[maybe_unused]] const std::array kExported = {&Registered<greet>::entry, &Registered<add>::entry,
                                               &Registered<total>::entry, &Registered<throws_a_number>::entry,
                                               &Registered<nothing>::entry};

void check_parts(const Message& message) {
  for (const Section section : {Section::cargo, Section::tensors, Section::flow}) (void)find_section(message, section);
  HOLDFAST_CHECK(attachments_of_values(message).size() <= message.attachments.size());
  wire::Reader call(message);
  (void)read_call_header(call);
  wire::Reader reply(message);
  const ReplyHeader header = read_reply_header(reply);
  if (header.failure) HOLDFAST_CHECK(is_code(static_cast<uint8_t>(header.failure->code)));
}

class Caller {
 public:
  void event(Input& in) {
    switch (in.below(8)) {
      case 0:
      case 1:
      case 2: {
        const uint32_t rank = 1 + in.below(2);
        Message message = in.message();
        check_parts(message);
        (void)worker_.from(rank, std::move(message));
        return;
      }
      case 3: return worker_.run_work();
      case 4: return worker_.advance(clock_.take(in));
      case 5: return start(in);
      case 6: return worker_.drop_work();
      default: (void)worker_.said_to(1 + in.below(2)); return;
    }
  }
  void end() {
    worker_.lose_everybody();
    HOLDFAST_CHECK(worker_.held().empty());
    HOLDFAST_CHECK(worker_.node().calls().idle());
    HOLDFAST_CHECK(completed_ == started_);
  }

 private:
  void start(Input& in) {
    const WorkerPtr to = worker_.other(1 + in.below(2));
    const Duration timeout = std::chrono::milliseconds(1) * (1 << in.below(17));
    if (started_ >= kCallsMax) return;
    ++started_;
    const Function& function = Registered<add>::entry;
    auto message = std::make_shared<Message>();
    message->kind = kCall;
    wire::Writer writer(*message);
    write_call_header(writer, function.id, function.signature_id);
    writer.integer(1);
    writer.integer(2);
    worker_.locked([&](Step& step) {
      worker_.node().start_call(step, to, function, std::move(message), {step.now, after(step.now, timeout)},
                                [this](Result<Message>) { ++completed_; });
    });
  }

  size_t started_ = 0;
  size_t completed_ = 0;
  test::HandWorker worker_;
  HandClock clock_;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  testing::GTEST_FLAG(break_on_failure) = true;  // what the support of the tests expects
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Caller caller;
  while (!in.empty()) caller.event(in);
  caller.end();
  return 0;
}
