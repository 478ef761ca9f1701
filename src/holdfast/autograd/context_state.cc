#include <holdfast/autograd/context_state.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include <holdfast/autograd/torch_pass.h>
#include <holdfast/base/ambient.h>
#include <holdfast/base/blocking.h>

namespace holdfast::autograd {

namespace {

// A part of a pass that is ready to run; where handlers run, and as they do: hooks and functions of the user's find
// their worker and their context.
class Run final : public Work {
 public:
  Run(std::shared_ptr<ContextState> context, Closure run) : context_(std::move(context)), run_(std::move(run)) {}
  void run() override {
    AmbientScope scope({.worker = context_->host.worker(), .cancelled = {}, .flow = context_});
    const uint64_t blocked_before = blocking_count();
    const Time started = context_->host.now();
    run_();
    history().add(context_->host.now() - started, blocking_count() != blocked_before);
  }
  bool quick() const override { return history().quick(); }

 private:
  RunHistory& history() const { return Backwards::of(context_->host).run_history; }

  const std::shared_ptr<ContextState> context_;
  Closure run_;
};

}  // namespace

MakeContext ContextState::maker(Host& host, const WorkerPtr& creator) {
  return [&host, creator](const ContextId& id) { return std::make_shared<ContextState>(host, id, creator); };
}

std::shared_ptr<ContextState> ContextState::current() { return std::static_pointer_cast<ContextState>(current_flow()); }

std::shared_ptr<PassGraph> ContextState::begin_pass(const PassInfo& pass) {
  return std::make_shared<TorchPass>(shared_from_this(), pass, std::vector<Root>());
}

void ContextState::post(Closure run) {
  auto work = std::make_shared<Run>(shared_from_this(), std::move(run));
  if (runs_.offer(work)) return;
  host.step([&](Step& step) { step.work.push_back(std::move(work)); });
}

ContextState::RunsHere::~RunsHere() {
  if (!entered_) return;
  std::deque<std::shared_ptr<Work>> left = context_.runs_.leave();
  if (left.empty()) return;
  context_.host.step([&](Step& step) { std::ranges::move(left, std::back_inserter(step.work)); });
}

void ContextState::RunsHere::until(FutureStateBase& pass) {
  if (!entered_) return;
  const WorkerPtr next = context_.likely_next();
  context_.runs_.run_until_ready(pass, next ? context_.host.peer_state(next)->helper : nullptr);
}

WorkerPtr ContextState::likely_next() const {
  std::lock_guard lock(mutex_);
  for (size_t i = recvs_.size(); i > 0; --i) {
    if (auto recv = recvs_[i - 1].lock()) return recv->origin.sender;
  }
  return nullptr;
}

void ContextState::will_send(const WorkerPtr& to) {
  {
    std::lock_guard lock(mutex_);
    if (!reached_.insert(to->id()).second) return;
  }
  Backwards::of(host).will_send(id, to);
}

SendNumber ContextState::add_send(std::shared_ptr<SendFunction> send) {
  std::lock_guard lock(mutex_);
  sends_.emplace(++last_send_, std::move(send));
  return {last_send_};
}

std::shared_ptr<SendFunction> ContextState::send(SendNumber number) const {
  std::lock_guard lock(mutex_);
  const auto found = sends_.find(number.value);
  if (found == sends_.end()) {
    throw_failure(
        {.code = Code::invalid_argument,
         .message = fmt::format("context {} has no send function {} on {}", text_of(id), number.value, host.name())});
  }
  return found->second;
}

std::vector<SendNumber> ContextState::all_sends() const {
  std::lock_guard lock(mutex_);
  std::vector<SendNumber> numbers;
  for (const auto& [number, send] : sends_) numbers.push_back({number});
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::shared_ptr<SendFunction>> ContextState::send_functions() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<SendFunction>> functions;
  for (const auto& [number, send] : sends_) functions.push_back(send);
  return functions;
}

void ContextState::add_recv(const std::shared_ptr<RecvFunction>& recv) {
  std::lock_guard lock(mutex_);
  recvs_.push_back(recv);
}

std::vector<std::shared_ptr<RecvFunction>> ContextState::recvs() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<RecvFunction>> alive;
  for (const std::weak_ptr<RecvFunction>& recv : recvs_) {
    if (auto function = recv.lock()) alive.push_back(std::move(function));
  }
  return alive;
}

size_t ContextState::recv_count() const {
  std::lock_guard lock(mutex_);
  return recvs_.size();
}

std::set<uint32_t> ContextState::reached_ranks() const {
  std::lock_guard lock(mutex_);
  std::set<uint32_t> ranks;
  for (const WorkerId& worker : reached_) ranks.insert(worker.rank.value);
  return ranks;
}

size_t ContextState::send_count() const {
  std::lock_guard lock(mutex_);
  return sends_.size();
}

}  // namespace holdfast::autograd
