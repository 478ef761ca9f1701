#include <holdfast/backward/root_pass.h>

#include <fmt/format.h>

#include <holdfast/backward/part.h>
#include <holdfast/base/canary.h>

namespace holdfast {

namespace {

Failure unfit(const WorkerPtr& from, std::string_view what) {
  return {.code = Code::corrupt, .message = fmt::format("{} {}", from->name, what), .worker = from->name};
}

}  // namespace

RootPass::RootPass(const PassId& id, PassMode mode, Time deadline, Done done)
    : id_(id), mode_(mode), deadline_(deadline), done_(std::move(done)) {
  spawn({id.root, kRootStart});
}

bool RootPass::spawn(const SendOf& send) {
  involved_.insert(send.first);
  if (!spawned_.insert(send).second) return false;
  if (processed_.contains(send)) ++matched_;
  return true;
}

bool RootPass::process(const SendOf& send) {
  if (!processed_.insert(send).second) return false;
  if (spawned_.contains(send)) ++matched_;
  return true;
}

bool RootPass::even() const {
  if (HOLDFAST_CANARY(counters_for_sets)) return spawned_.size() == processed_.size();
  return matched_ == spawned_.size() && matched_ == processed_.size();
}

void RootPass::add_reporter(const WorkerPtr& from) {
  reporters_[from->id()].worker = from;
  involved_.insert(from->id());
}

std::optional<Failure> RootPass::on_report(const WorkerPtr& from, const Report& report) {
  if (settled_ && (!report.processed.empty() || !report.spawned.empty())) {
    return unfit(from, "has marked sends after the marking was over");
  }
  if (mode_ == PassMode::fast && report.status != PartStatus::working) {
    return unfit(from, "says that it is done when it cannot be");
  }
  add_reporter(from);
  Reporter& reporter = reporters_.at(from->id());
  if (reporter.status == PartStatus::done) --done_count_;
  if (report.status == PartStatus::done) ++done_count_;
  reporter.status = report.status;
  reporter.waiting = report.waiting;
  reporter.waiting_names = report.waiting_names;
  for (const SendNumber send : report.processed) {
    if (send == kRootStart && from->id() != id_.root) return unfit(from, "says that it has done the root's work");
    if (!process({from->id(), send})) return unfit(from, fmt::format("has processed send {} twice", send.value));
  }
  for (const SpawnedSend& send : report.spawned) {
    if (!spawn({send.worker(), send.send})) {
      return unfit(from, fmt::format("has reached send {} of rank {} a second time", send.send.value, send.rank.value));
    }
  }
  return std::nullopt;
}

bool RootPass::settle() {
  if (mode_ == PassMode::fast || settled_ || !even()) return false;
  settled_ = true;
  return true;
}

bool RootPass::complete() const {
  if (mode_ == PassMode::fast) return even();
  return settled_ && (done_count_ == reporters_.size() || (HOLDFAST_CANARY(first_done_ends) && done_count_ > 0));
}

std::optional<Failure> RootPass::starved() const {
  std::string text;
  for (const auto& [id, reporter] : reporters_) {
    if (reporter.waiting == 0) continue;
    text += fmt::format("{} function{} on {} never received a gradient{}{}; ", reporter.waiting,
                        reporter.waiting == 1 ? "" : "s", reporter.worker->name,
                        reporter.waiting_names.empty() ? "" : ": ", reporter.waiting_names);
  }
  if (text.empty() || HOLDFAST_CANARY(starved_ignored)) return std::nullopt;
  return Failure{.code = Code::invalid_argument, .message = text + "use SMART mode"};
}

}  // namespace holdfast
