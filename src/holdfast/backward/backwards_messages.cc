// The messages of Backwards: what a peer says is checked here, before anything is done. docs/autograd.md, "Messages",
// says what happens to each that is late, repeated or unknown.
#include <holdfast/backward/backwards.h>

#include <fmt/format.h>

#include <holdfast/base/canary.h>
#include <holdfast/wire/codecs.h>

namespace holdfast {

namespace {

constexpr size_t kErrorBytesMax = 16384;

Failure corrupt_pass(const WorkerPtr& from, std::string_view what) {
  return {.code = Code::corrupt, .message = fmt::format("{} from {}", what, from->name)};
}

bool sound(const PassHeader& header) {
  return header.root.id() == header.pass.root && header.pass.counter > 0 && header.mode <= PassMode::smart;
}

}  // namespace

void Backwards::send_to(Step& step, const WorkerPtr& to, Message message) {
  send_to(step, to, std::make_shared<Message>(std::move(message)));
}

void Backwards::send_to(Step& step, const WorkerPtr& to, std::shared_ptr<Message> message) {
  if (to->id() != node_.self()->id()) ++messages_sent_;
  node_.send(step, to, std::move(message), false);
}

void Backwards::send_error(Step& step, const WorkerPtr& root, const PassId& pass, const Failure& failure) {
  send_to(step, root,
          wire::encode_message(kPassError, PassError{.pass = pass,
                                                     .code = static_cast<uint8_t>(failure.code),
                                                     .message = failure.message.substr(0, kErrorBytesMax),
                                                     .worker = failure.worker,
                                                     .type = failure.type}));
}

Status Backwards::on_message(Step& step, const WorkerPtr& from, Message message) {
  if (stopped_) {
    step.garbage.push_back(std::make_shared<Message>(std::move(message)));
    return {};
  }
  const Kind kind = message.kind;
  if (kind == kGradient) return on_gradient(step, from, message);
  if (kind == kMark) return on_mark(step, from, message);
  if (kind == kReport) return on_report(step, from, message);
  if (kind == kMarked) return on_marked(step, from, message);
  if (kind == kPassError) return on_error(step, from, message);
  if (kind == kPassEnd) return on_end(step, from, message);
  if (kind == kCleanupContext) return on_cleanup(step, from, message);
  Result<ContextReached> reached = wire::decode_message<ContextReached>(message);
  if (!reached) return std::move(reached.failure());
  return contexts_.on_reached(step, from, node_.self()->id(), *reached);
}

Status Backwards::on_cleanup(Step& step, const WorkerPtr& from, const Message& message) {
  Result<CleanupContext> cleanup = wire::decode_message<CleanupContext>(message);
  if (!cleanup) return std::move(cleanup.failure());
  if (cleanup->context.creator != from->id()) return corrupt_pass(from, "the end of a context that is not its own,");
  drop(step, contexts_.on_cleanup(*cleanup),
       {.code = Code::cancelled, .message = fmt::format("context {} has ended", text_of(cleanup->context))});
  return {};
}

// ---- to a part

Backwards::PartPtr Backwards::part_for(Step& step, const PassHeader& header) {
  const PassId& id = header.pass;
  if (auto found = parts_.find(id); found != parts_.end()) {
    return found->second->failed ? nullptr : found->second;
  }
  // Its root is not here any more, or has ended it.
  if (node_.is_self(id.root) || node_.is_lost(id.root) || node_.is_lost(id.context.creator)) return nullptr;
  auto root = std::make_shared<const WorkerInfo>(header.root);
  Context* context = contexts_.find(id.context);
  if (context == nullptr) {
    if (contexts_.has_ended(id.context, node_.self()->id())) return nullptr;
    send_error(step, root, id,
               {.code = Code::invalid_argument,
                .message = fmt::format("context {} is not known on {}", text_of(id.context), node_.self()->name),
                .worker = node_.self()->name});
    return nullptr;
  }
  auto ended = context->ended_passes.find(id.root);
  if (ended != context->ended_passes.end() && ended->second.contains(id.counter)) return nullptr;
  auto flag = std::make_shared<std::atomic<bool>>(false);
  auto part = std::make_shared<Part>(
      PassInfo{.id = id, .root = std::move(root), .mode = header.mode, .options = header.options, .ended = flag}, flag,
      context->data, nullptr);
  parts_[id] = part;
  return part;
}

Status Backwards::on_mark(Step& step, const WorkerPtr& from, const Message& message) {
  Result<Mark> mark = wire::decode_message<Mark>(message);
  if (!mark) return std::move(mark.failure());
  if (!sound(mark->header)) return corrupt_pass(from, "a MARK of an impossible pass");
  const PartPtr part = part_for(step, mark->header);
  if (!part) return {};
  if (std::optional<Failure> failure = part->mark(mark->sends)) {
    fail_part(step, *part, std::move(*failure));
  } else {
    schedule(step, part);
  }
  return {};
}

Status Backwards::on_gradient(Step& step, const WorkerPtr& from, Message& message) {
  Result<GradientBody> body = wire::decode_message<GradientBody>(message);
  if (!body) return std::move(body.failure());
  if (!sound(body->header)) return corrupt_pass(from, "a gradient of an impossible pass");
  auto attachments = std::make_shared<std::vector<Attachment>>(std::move(message.attachments));
  step.garbage.push_back(attachments);  // if it is not taken
  const PartPtr part = part_for(step, body->header);
  if (!part) return {};
  if (body->settled) part->settled = true;
  std::optional<Failure> failure =
      part->arrive({.from = from,
                    .send = body->send,
                    .gradient = {.body = std::move(body->body), .attachments = std::move(*attachments)}});
  if (failure) {
    fail_part(step, *part, std::move(*failure));
  } else {
    schedule(step, part);
  }
  return {};
}

Status Backwards::on_marked(Step& step, const WorkerPtr& from, const Message& message) {
  Result<PassOnly> marked = wire::decode_message<PassOnly>(message);
  if (!marked) return std::move(marked.failure());
  if (marked->pass.root != from->id())
    return corrupt_pass(from, "the end of the marking of a pass that is not its own,");
  const auto found = parts_.find(marked->pass);
  if (found == parts_.end() || found->second->failed) return {};
  const PartPtr& part = found->second;
  part->settled = true;
  if (part->status == PartStatus::held) resume(step, part);
  return {};
}

Status Backwards::on_end(Step& step, const WorkerPtr& from, const Message& message) {
  Result<PassOnly> end = wire::decode_message<PassOnly>(message);
  if (!end) return std::move(end.failure());
  const PassId& id = end->pass;
  if (id.root != from->id() || id.counter == 0) return corrupt_pass(from, "the end of a pass that is not its own,");
  Context* context = contexts_.find(id.context);
  if (context == nullptr) return {};  // and so there is no part
  if (!HOLDFAST_CANARY(pass_comes_back)) context->ended_passes[id.root].insert(id.counter);
  end_part(step, id);
  return {};
}

// ---- to the root

RootPass* Backwards::root_for(Step& step, const WorkerPtr& from, const PassId& pass) {
  auto found = roots_.find(pass);
  if (found != roots_.end()) return found->second.get();
  if (!HOLDFAST_CANARY(late_report_not_answered)) {
    send_to(step, from, wire::encode_message(kPassEnd, PassOnly{pass}));
  }
  return nullptr;
}

Status Backwards::on_report(Step& step, const WorkerPtr& from, const Message& message) {
  Result<Report> report = wire::decode_message<Report>(message);
  if (!report) return std::move(report.failure());
  if (!node_.is_self(report->pass.root)) return corrupt_pass(from, "a report of a pass that was not started here,");
  if (report->status > PartStatus::done) return corrupt_pass(from, "a report of an unknown status");
  if (RootPass* root = root_for(step, from, report->pass)) receive_report(step, *root, from, *report);
  return {};
}

Status Backwards::on_error(Step& step, const WorkerPtr& from, const Message& message) {
  Result<PassError> error = wire::decode_message<PassError>(message);
  if (!error) return std::move(error.failure());
  if (!node_.is_self(error->pass.root)) return corrupt_pass(from, "an error of a pass that was not started here,");
  if (!is_code(error->code)) return corrupt_pass(from, "an error of an unknown kind");
  RootPass* root = root_for(step, from, error->pass);
  if (root == nullptr) return {};
  root->add_reporter(from);  // it waits for the end
  end_pass(step, root->id(),
           Failure{.code = static_cast<Code>(error->code),
                   .message = std::move(error->message),
                   .worker = std::move(error->worker),
                   .type = std::move(error->type)});
  return {};
}

}  // namespace holdfast
