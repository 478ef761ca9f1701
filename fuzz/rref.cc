// The messages of references, and calls that carry references, from peers that say what they like. When everybody who
// was named is lost and that is settled, nothing may be left.
//
//   input   events: which (1 byte), what it needs
#include <holdfast/base/check.h>
#include <holdfast/rref/rref_test_support.h>

#include "functions.h"
#include "hand_clock.h"
#include "input.h"

namespace holdfast::fuzz {
namespace {

RRef<std::string> held;
void hold(RRef<std::string> text) { held = std::move(text); }

[[maybe_unused]] const std::array kExported = {&Registered<hold>::entry, &Registered<pass_on>::entry,
                                               &RegisteredKept<greet>::entry, &RegisteredKept<pass_on>::entry,
                                               &RegisteredKept<throws_a_number>::entry};
[[maybe_unused]] const std::array kOnObjects = {&RegisteredOnObject<size_of, std::string>::entry,
                                                &RegisteredKeptOnObject<size_of, std::string>::entry};

class Owner {
 public:
  void event(Input& in) {
    switch (in.below(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: {
        const uint32_t rank = 1 + in.below(3);
        (void)worker_.from(rank, in.message());
        return;
      }
      case 5:
      case 6: return worker_.run_work();
      case 7: return worker_.advance(clock_.take(in));
      case 8: return worker_.lose(*test::worker_info(1 + in.below(3)));
      case 9: return worker_.settle();
      case 10: held = {}; return;
      default:
        own_.push_back(
            worker_.references().own(rpc_detail::make_kept<std::string>([] { return std::string("x"); }), "fuzz"));
        return;
    }
  }
  void end() {
    held = {};
    own_.clear();
    worker_.run_work();
    worker_.lose_everybody();
    HOLDFAST_CHECK(worker_.held().empty());
    HOLDFAST_CHECK(worker_.node().calls().served_count() == 0);
  }

 private:
  test::HandWorker worker_;
  HandClock clock_;
  std::vector<ReferencePtr> own_;
};

}  // namespace
}  // namespace holdfast::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  testing::GTEST_FLAG(break_on_failure) = true;  // what the support of the tests expects
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  holdfast::fuzz::Input in(data, size);
  holdfast::fuzz::Owner owner;
  while (!in.empty()) owner.event(in);
  owner.end();
  return 0;
}
