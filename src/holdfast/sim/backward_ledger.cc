#include <holdfast/sim/backward_ledger.h>

#include <fmt/format.h>

namespace holdfast::sim {

void BackwardLedger::on_done(size_t index, const Status& status) {
  WatchedPass& pass = passes_[index];
  if (++pass.completions > 1) violation_(fmt::format("pass {} completes again", text_of(pass.id)));
  if (status.ok()) {
    check_success(pass);
  } else if (!has_reason(pass, status.failure())) {
    violation_(fmt::format("pass {} fails without a reason: {}", text_of(pass.id), status.failure().message));
  }
}

bool BackwardLedger::has_reason(const WatchedPass& pass, const Failure& failure) {
  const Expected& expected = pass.expected;
  switch (failure.code) {
    case Code::timeout: return pass.little_time;
    case Code::worker_lost: ++report_.lost; return anybody_lost_;
    case Code::cancelled: ++report_.cancelled; return pass.cancelled || pass.program->ended;
    case Code::invalid_argument:
      ++report_.starved;
      return expected.starved > 0 && expected.throwers.empty() &&
             failure.message.find("never received a gradient: toys; use SMART mode") != std::string::npos;
    case Code::remote_error:
      ++report_.threw;
      return expected.throwers.contains(failure.worker) && failure.message == "a toy breaks" &&
             failure.type == "std::runtime_error";
    default: return false;
  }
}

void BackwardLedger::check_success(const WatchedPass& pass) {
  ++(pass.mode == PassMode::fast ? report_.fast_succeeded : report_.smart_succeeded);
  if (pass.expected.workers.size() > 1) ++report_.remote_succeeded;
  const std::string name = text_of(pass.id);
  if (!pass.expected.throwers.empty()) violation_(fmt::format("pass {} succeeds, though something throws", name));
  if (pass.expected.starved > 0) violation_(fmt::format("pass {} succeeds, though functions starve", name));
  const LeafGradients& leaves = records[pass.id].leaves;
  if (leaves != pass.expected.leaves) {
    violation_(fmt::format("pass {} gave {} leaves a gradient, not as the reference says ({} leaves)", name,
                           leaves.size(), pass.expected.leaves.size()));
  }
}

}  // namespace holdfast::sim
