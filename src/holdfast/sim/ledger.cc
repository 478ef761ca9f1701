#include <holdfast/sim/ledger.h>

#include <algorithm>

#include <fmt/format.h>

namespace holdfast::sim {

namespace {

// One broken promise leads to more: the first ones are worth reading.
constexpr size_t kViolationsMax = 8;

bool contains(const std::vector<Serial>& list, Serial serial) {
  return std::find(list.begin(), list.end(), serial) != list.end();
}

}  // namespace

Ledger*& Ledger::current() {
  thread_local Ledger* ledger = nullptr;
  return ledger;
}

void Ledger::violation(std::string text) {
  if (closed_ || violations_.size() >= kViolationsMax) return;
  const double now_ms = std::chrono::duration<double, std::milli>(now_().time_since_epoch()).count();
  violations_.push_back(fmt::format("at {:.3f} ms: {}", now_ms, text));
}

// ---- lives

LifeIndex Ledger::add_life(std::string name, std::function<bool()> there) {
  lives_.push_back({std::move(name), std::move(there)});
  return static_cast<LifeIndex>(lives_.size() - 1);
}

// ---- objects

Serial Ledger::plan_object(Plan plan) {
  objects_.push_back({.plan = plan});
  return objects_.size();
}

void Ledger::born(Serial serial, LifeIndex where) {
  Object& born = object(serial);
  if (born.state != Object::State::planned) violation(fmt::format("object {} was made twice", serial));
  if (born.plan.owner != where) {
    violation(fmt::format("object {} was made on {} instead of {}", serial, name(where), name(born.plan.owner)));
  }
  born.state = Object::State::exists;
}

void Ledger::ended(Serial serial, LifeIndex where) {
  Object& ended = object(serial);
  if (ended.state == Object::State::ended) violation(fmt::format("object {} was destroyed twice", serial));
  ended.state = Object::State::ended;
  ended.ended_at = now_();
  if (closed_ || !lives(where)) return;
  // Made, but too late to count as created.
  if (ended.plan.may_fail && !ended.used) return;
  if (std::string needed = who_needs(serial); !needed.empty()) {
    violation(fmt::format("object {} of {} was destroyed although {}", serial, name(where), needed));
  }
}

std::string Ledger::who_needs(Serial serial) const {
  const Object& wanted = objects_.at(serial - 1);
  for (LifeIndex life = 0; life < wanted.holds.size(); ++life) {
    if (wanted.holds[life] > 0 && lives(life)) return fmt::format("{} holds it", name(life));
  }
  for (size_t i = 0; i < calls_.size(); ++i) {
    const CallState& state = calls_[i];
    const Call& call = state.call;
    if (state.completions > 0 || state.refused || !lives(call.from) || !lives(call.to)) continue;
    // A call on an object that is not there fails, and drops what came with it.
    const bool will_run = call.subject == 0 || can_be_used(call.subject);
    const bool on_its_way = state.runs == 0 && now_() < call.deadline && will_run &&
                            ((call.subject == serial && !call.silent) || contains(call.carries, serial));
    if (on_its_way) {
      return fmt::format("{} sends it to {} in call {} ({})", name(call.from), name(call.to), i + 1, call.what);
    }
    if (contains(state.replied, serial)) {
      return fmt::format("{} returns it to {} from call {} ({})", name(call.to), name(call.from), i + 1, call.what);
    }
  }
  return {};
}

bool Ledger::can_be_used(Serial serial) const {
  const Plan& plan = objects_.at(serial - 1).plan;
  return !plan.may_fail && lives(plan.owner) && lives(plan.creator) && (plan.made_on == 0 || can_be_used(plan.made_on));
}

// ---- references

void Ledger::hold(LifeIndex life, Serial serial) {
  std::vector<uint32_t>& holds = object(serial).holds;
  if (holds.size() <= life) holds.resize(life + 1);
  ++holds[life];
}

void Ledger::release(LifeIndex life, Serial serial) { --object(serial).holds.at(life); }

void Ledger::received(LifeIndex life, Serial serial) {
  const Object& arrived = object(serial);
  if (closed_ || !lives(life) || !lives(arrived.plan.owner) || arrived.state != Object::State::ended) return;
  if (arrived.plan.may_fail && !arrived.used) return;
  violation(fmt::format("{} received a reference to object {} of {}, which was destroyed before", name(life), serial,
                        name(arrived.plan.owner)));
}

// ---- calls

Token Ledger::begin_call(Call call) {
  calls_.push_back({.call = std::move(call), .replied = {}});
  return calls_.size();
}

void Ledger::ran(Token token, LifeIndex where) {
  CallState& state = calls_.at(token - 1);
  if (++state.runs > 1) violation(fmt::format("call {} ({}) ran twice", token, state.call.what));
  if (state.call.to != where) {
    violation(
        fmt::format("call {} ({}) ran on {} instead of {}", token, state.call.what, name(where), name(state.call.to)));
  }
  if (state.call.subject != 0) used(state.call.subject);
}

void Ledger::replies(Token token, std::vector<Serial> carries) { calls_.at(token - 1).replied = std::move(carries); }

void Ledger::completed(Token token, const Failure* failure) {
  CallState& state = calls_.at(token - 1);
  if (closed_) return;
  const std::string text =
      fmt::format("call {} ({}) from {} to {}", token, state.call.what, name(state.call.from), name(state.call.to));
  if (++state.completions > 1) violation(text + " completed twice");
  if (failure == nullptr) {
    if (state.call.subject != 0) used(state.call.subject);
    return;
  }
  if (!lives(state.call.from) || excused(state.call, *failure)) return;
  violation(fmt::format("{} failed without a reason: {}: {}", text, name_of(failure->code), failure->message));
}

bool Ledger::excused(const Call& call, const Failure& failure) const {
  const bool on_doubtful = call.subject != 0 && !can_be_used(call.subject);
  switch (failure.code) {
    case Code::worker_lost: return !lives(call.to) || on_doubtful;
    case Code::timeout: return call.little_time || on_doubtful;
    case Code::cancelled: return call.cancelled || on_doubtful;
    case Code::remote_error: return call.may_throw || on_doubtful;
    case Code::overloaded: return may_overload_;
    default: return false;
  }
}

// ---- what is left

std::string Ledger::open_calls() const {
  std::string text;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const CallState& state = calls_[i];
    if (state.call.kept || state.completions > 0 || !lives(state.call.from)) continue;
    text += fmt::format("call {} ({}) from {} to {} has not completed; ", i + 1, state.call.what, name(state.call.from),
                        name(state.call.to));
  }
  return text;
}

std::string Ledger::left_over() const {
  std::string text;
  for (size_t i = 0; i < objects_.size(); ++i) {
    const Object& left = objects_[i];
    if (left.state == Object::State::exists && lives(left.plan.owner)) {
      text += fmt::format("object {} of {} was not destroyed; ", i + 1, name(left.plan.owner));
    }
    for (LifeIndex life = 0; life < left.holds.size(); ++life) {
      if (left.holds[life] > 0 && lives(life)) text += fmt::format("{} holds object {}; ", name(life), i + 1);
    }
  }
  return text;
}

}  // namespace holdfast::sim
