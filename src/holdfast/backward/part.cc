#include <holdfast/backward/part.h>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/base/check.h>
#include <holdfast/wire/codecs.h>
#include <holdfast/wire/frame.h>

namespace holdfast {

namespace {

Failure corrupt(const char* what, SendNumber send) {
  return {.code = Code::corrupt, .message = fmt::format("{} {}", what, send.value)};
}

LeavingMessage pack(const PassHeader& header, LeavingGradient leaving, bool settled) {
  if (leaving.gradient.attachments.size() > kAttachmentsMax) {
    throw_failure({.code = Code::invalid_argument,
                   .message = fmt::format("a gradient of {} parts, over the limit of {}",
                                          leaving.gradient.attachments.size(), kAttachmentsMax)});
  }
  auto message = std::make_shared<Message>(wire::encode_message(
      kGradient,
      GradientBody{
          .header = header, .send = leaving.send, .body = std::move(leaving.gradient.body), .settled = settled}));
  message->attachments = std::move(leaving.gradient.attachments);
  return {.to = std::move(leaving.to), .send = leaving.send, .message = std::move(message)};
}

}  // namespace

Part::Part(PassInfo pass, std::shared_ptr<std::atomic<bool>> ended_flag, std::shared_ptr<ContextData> data, Begin begin)
    : pass_(std::move(pass)),
      ended_(std::move(ended_flag)),
      data_(std::move(data)),
      roots_run_(!begin),
      begin_(std::move(begin)) {}

PassHeader Part::header() const {
  return {.pass = pass_.id, .root = *pass_.root, .mode = pass_.mode, .options = pass_.options};
}

std::optional<Failure> Part::mark(const std::vector<SendNumber>& sends) {
  for (const SendNumber send : sends) {
    if (pass_.mode != PassMode::smart || send.value == 0) return corrupt("a MARK that cannot be, for send", send);
    if (!marked_.insert(send).second) return corrupt("a second MARK for send", send);
  }
  inbox.marks.insert(inbox.marks.end(), sends.begin(), sends.end());
  return std::nullopt;
}

std::optional<Failure> Part::arrive(ArrivedGradient gradient) {
  const SendNumber send = gradient.send;
  if (send.value == 0) return corrupt("a gradient for send", send);
  if (pass_.mode == PassMode::smart && marked_.insert(send).second) inbox.marks.push_back(send);
  if (!arrived_.insert(send).second) return corrupt("a second gradient for send", send);
  inbox.gradients.push_back(std::move(gradient));
  return std::nullopt;
}

PartWork Part::take_work() {
  PartWork work = std::exchange(inbox, {});
  work.settled = settled;
  return work;
}

PartOutcome Part::perform(PartWork work, const Leave& leave) {
  PartOutcome outcome;
  try {
    if (!graph_) {
      graph_ = begin_ ? begin_(pass_) : data_->begin_pass(pass_);
      begin_.reset();
      HOLDFAST_CHECK(graph_ != nullptr);
    }
    const bool fast = pass_.mode == PassMode::fast;
    for (const ArrivedGradient& gradient : work.gradients) {
      if (fast) outcome.processed.push_back(gradient.send);
    }
    if (fast && !walked_all_) {
      walked_all_ = true;
      graph_->walk({.roots = work.walk_roots, .all_sends = true, .sends = {}});
    } else if (!fast && work.walks()) {
      outcome.walked = true;
      outcome.reached = graph_->walk({.roots = work.walk_roots, .all_sends = false, .sends = work.marks});
      outcome.processed = std::move(work.marks);
    }
    if (work.walk_roots) outcome.processed.push_back(kRootStart);
    // A walk may have let go what was held.
    if (work.runs() || held_) {
      outcome.ran = true;
      const bool settled = fast || work.settled || HOLDFAST_CANARY(run_before_settled);
      const PassHeader header = this->header();
      const auto add = [&](LeavingGradient leaving) -> LeavingMessage& {
        return outcome.leaving.emplace_back(pack(header, std::move(leaving), work.settled));
      };
      RunResult result = graph_->run(work.run_roots, std::move(work.gradients), settled,
                                     [&](LeavingGradient leaving) { leave(add(std::move(leaving))); });
      for (LeavingGradient& leaving : result.gradients) add(std::move(leaving));
      outcome.held = held_ = result.held;
      outcome.waiting = result.waiting;
      outcome.waiting_names = std::move(result.waiting_names);
    }
  } catch (...) {
    outcome.failure = describe_current_exception();
  }
  return outcome;
}

}  // namespace holdfast
