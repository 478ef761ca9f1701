#include <holdfast/sim/program.h>

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>

namespace holdfast::sim {

namespace {

using namespace std::chrono_literals;

constexpr size_t kSlotsMax = 8;
constexpr Duration kEnoughTime = 40s;

enum class Manner : uint32_t { at_once, unlucky };

// ---- what runs on other workers

Thing make_thing(Token token, Serial serial, Refs held, Manner manner) {
  const LifeIndex where = Program::life_of(current_ambient().worker);
  Ledger::current()->ran(token, where);
  if (manner == Manner::unlucky) throw std::runtime_error("bad luck");
  return Program::current()->make(token, serial, std::move(held), where);
}

Future<Thing> make_slowly(Token token, Serial serial, Refs held) {
  Ledger::current()->ran(token, Program::life_of(current_ambient().worker));
  return Program::current()->make_later(token, serial, std::move(held));
}

// On an object.
Thing make_beside(Thing& thing, Token token, Serial serial, Refs held) {
  const LifeIndex where = Program::life_of(current_ambient().worker);
  Ledger::current()->ran(token, where);
  held.insert(held.end(), thing.held.begin(), thing.held.end());
  return Program::current()->make(token, serial, std::move(held), where);
}

Future<Refs> take_refs(Token token, Refs refs, uint32_t hops) {
  Ledger::current()->ran(token, Program::life_of(current_ambient().worker));
  return Program::current()->take(token, std::move(refs), hops);
}

}  // namespace

Program*& Program::current() {
  thread_local Program* program = nullptr;
  return program;
}

LifeIndex Program::life_of(const void* worker) {
  if (current() == nullptr) return kNobody;
  for (const Life& life : current()->lives_) {
    if (life.worker == worker) return life.index;
  }
  return kNobody;
}

Program::Program(World& world, Ledger& ledger, Random random, Story story)
    : world_(world), ledger_(ledger), random_(random), story_(std::move(story)) {
  current() = this;
  for (uint32_t rank = 0; rank < world_.size(); ++rank) begin_life(rank);
}

Program::~Program() {
  cancels_.clear();
  makings_.clear();
  for (Life& life : lives_) life.slots.clear();
  current() = nullptr;
}

// ---- lives

void Program::begin_life(uint32_t rank) {
  SimWorker& worker = world_.worker(rank);
  const auto there = [&worker] { return worker.alive() && !worker.node().member().fenced(); };
  lives_.push_back({&worker, rank, ledger_.add_life(static_cast<Host&>(worker).name(), there), {}});
}

Program::Life& Program::life(uint32_t rank) {
  for (auto at = lives_.rbegin();; ++at) {
    if (at->rank == rank) return *at;
  }
}

void Program::kill(uint32_t rank) {
  Life& gone = life(rank);
  world_.kill(rank);
  gone.slots.clear();
}

void Program::on_lost(const WorkerId& worker) {
  for (const Life& life : lives_) {
    const WorkerPtr& self = life.worker->self();
    if (self && self->id() == worker) ledger_.lose(life.index);
  }
}

bool Program::works(uint32_t rank) {
  SimWorker& worker = world_.worker(rank);
  return worker.alive() && worker.joined() && !worker.node().member().fenced();
}

// ---- choices

Program::Life* Program::pick_life() {
  const auto rank = static_cast<uint32_t>(random_.below(world_.size()));
  return works(rank) ? &life(rank) : nullptr;
}

Ref* Program::pick(Life& life) { return life.slots.empty() ? nullptr : &life.slots[random_.below(life.slots.size())]; }

// Its creation was not refused.
bool Program::can_be_sent(const Ref& ref) const { return ref.rref().reference()->failure() == nullptr; }

Refs Program::pick_some(Life& life, size_t most, Serial below) {
  Refs some;
  for (uint64_t count = random_.below(most + 1); count > 0; --count) {
    const Ref* ref = pick(life);
    if (ref != nullptr && ref->serial() < below && can_be_sent(*ref)) some.push_back(*ref);
  }
  return some;
}

WorkerPtr Program::pick_target(uint32_t& rank) {
  rank = static_cast<uint32_t>(random_.below(world_.size()));
  return world_.worker(rank).self();  // null: not there yet
}

Duration Program::pick_timeout(bool& little_time) {
  little_time = random_.chance(0.06);
  return little_time ? Duration(random_.below(4'000'000)) : kEnoughTime;
}

void Program::keep(LifeIndex index, Ref ref) {
  Life& life = lives_.at(index);
  if (!life.worker->alive()) return;
  if (life.slots.size() >= kSlotsMax) {
    const size_t at = random_.below(life.slots.size());
    const Ref dropped = std::exchange(life.slots[at], std::move(ref));  // it ends last: that may call us
    return;
  }
  life.slots.push_back(std::move(ref));
}

// ---- the story

std::string Program::names(const Refs& refs) const {
  std::string text;
  for (const Ref& ref : refs) text += fmt::format("{}{}", text.empty() ? "" : ", ", ref.serial());
  return text.empty() ? "nothing" : text;
}

template <class... Args>
void Program::tell(const char* format, const Args&... args) {
  if (story_) story_(fmt::format(fmt::runtime(format), args...));
}

// ---- actions

void Program::act() {
  Life* from = pick_life();
  if (from == nullptr) return;
  ++actions_;
  last_actor_ = from->rank;
  const uint64_t choice = random_.below(100);
  if (choice < 18) return create(*from);
  if (choice < 20) return own(*from);
  if (from->slots.empty()) return create(*from);
  if (choice < 26) return create_on(*from);
  if (choice < 54) return share(*from);
  if (choice < 64) return fetch(*from);
  if (choice < 70) return put(*from);
  if (choice < 76) return give(*from);
  drop(*from);
}

template <class T, class F>
void Program::watch(Future<T> future, Token token, F on_value) {
  if (random_.chance(0.04)) cancel_later(token, [future] { future.cancel(); });
  future.then([token, on_value](Future<T> done) {
    Program* program = current();
    if (program == nullptr) return;  // the world is being taken down
    if (done.failed()) {
      const Failure failure = done.failure();
      program->tell("call {} failed: {}: {}", token, name_of(failure.code), failure.message);
      return program->ledger_.completed(token, &failure);
    }
    program->tell("call {} completed", token);
    program->ledger_.completed(token, nullptr);
    if constexpr (std::is_void_v<T>) {
      on_value(*program);
    } else {
      on_value(*program, done.get());  // a copy: a handler may wait for the same result
    }
  });
}

void Program::cancel_later(Token token, std::function<void()> cancel) {
  const uint64_t id = ++last_id_;
  cancels_[id] = std::move(cancel);
  world_.network().schedule(world_.now() + Duration(random_.below(3'000'000)), [id, token] {
    if (current() == nullptr) return;
    auto node = current()->cancels_.extract(id);
    if (node.empty()) return;
    current()->tell("call {} is cancelled, if it is still open", token);
    current()->ledger_.cancelled(token);
    node.mapped()();
  });
}

void Program::create(Life& from) {
  uint32_t rank = 0;
  const WorkerPtr target = pick_target(rank);
  if (!target) return;
  const LifeIndex to = life(rank).index;
  Ledger::Call call{.what = "make", .from = from.index, .to = to, .kept = true};
  const Duration timeout = pick_timeout(call.little_time);
  const bool slow = random_.chance(0.2);
  const Manner manner = !slow && random_.chance(0.05) ? Manner::unlucky : Manner::at_once;
  const Serial serial = ledger_.plan_object(
      {.creator = from.index, .owner = to, .may_fail = call.little_time || manner == Manner::unlucky});
  const Refs held = pick_some(from, 2);
  call.carries = serials_of(held);
  call.deadline = world_.now() + timeout;
  const Token token = ledger_.begin_call(std::move(call));
  tell("{} makes object {} on {}, holding {}: call {}{}", ledger_.name(from.index), serial, ledger_.name(to),
       names(held), token, manner == Manner::unlucky ? ", which will throw" : "");
  const Peer peer = from.worker->peer(target).with_timeout(timeout);
  Ref made(slow ? peer.remote<make_slowly>(token, serial, held) : peer.remote<make_thing>(token, serial, held, manner),
           serial);
  if (!can_be_sent(made)) {
    ledger_.refused(token);
    ledger_.set_may_fail(serial);
  }
  keep(from.index, std::move(made));
}

void Program::create_on(Life& from) {
  const Ref ref = *pick(from);
  if (!can_be_sent(ref)) return;
  const LifeIndex to = ledger_.owner(ref.serial());
  Ledger::Call call{.what = "make beside", .from = from.index, .to = to, .subject = ref.serial(), .kept = true};
  const Duration timeout = pick_timeout(call.little_time);
  const Serial serial =
      ledger_.plan_object({.creator = from.index, .owner = to, .made_on = ref.serial(), .may_fail = call.little_time});
  const Refs held = pick_some(from, 2);
  call.carries = serials_of(held);
  call.deadline = world_.now() + timeout;
  const Token token = ledger_.begin_call(std::move(call));
  tell("{} makes object {} beside object {}, holding {}: call {}", ledger_.name(from.index), serial, ref.serial(),
       names(held), token);
  Ref made(ref.rref().with_timeout(timeout).remote<make_beside>(token, serial, held), serial);
  if (!can_be_sent(made)) {
    ledger_.refused(token);
    ledger_.set_may_fail(serial);
  }
  keep(from.index, std::move(made));
}

void Program::own(Life& from) {
  const Serial serial = ledger_.plan_object({.creator = from.index, .owner = from.index});
  Refs held = pick_some(from, 2);
  tell("{} makes object {} of its own, holding {}", ledger_.name(from.index), serial, names(held));
  KeptValue value{.object = std::make_shared<Thing>(serial, from.index, std::move(held)), .type = &typeid(Thing)};
  ReferencePtr reference = References::of(*from.worker).own(std::move(value), "the program");
  keep(from.index, Ref(RRef<Thing>(std::move(reference), kEnoughTime), serial));
}

Future<Refs> Program::begin_take(Life& from, const WorkerPtr& target, uint32_t to_rank, Refs refs, uint32_t hops) {
  Ledger::Call call{.what = "take",
                    .from = from.index,
                    .to = life(to_rank).index,
                    .carries = serials_of(refs),
                    .may_throw = hops > 0};
  const Duration timeout = pick_timeout(call.little_time);
  if (current_ambient().worker != nullptr) call.little_time = call.cancelled = true;  // it ends with its caller's call
  const Token token = ledger_.begin_call(std::move(call));
  tell("{} sends {} to {}: call {}", ledger_.name(from.index), names(refs), ledger_.name(life(to_rank).index), token);
  Future<Refs> future = from.worker->peer(target).with_timeout(timeout).async<take_refs>(token, refs, hops);
  refs.clear();
  watch(future, token, [index = from.index](Program& program, Refs got) {
    for (Ref& ref : got) {
      if (program.random_.chance(0.5)) program.keep(index, std::move(ref));
    }
  });
  return future;
}

void Program::share(Life& from) {
  uint32_t rank = 0;
  const WorkerPtr target = pick_target(rank);
  if (!target) return;
  Refs refs = pick_some(from, 3);
  if (refs.empty()) return;
  const auto hops = static_cast<uint32_t>(random_.chance(0.5) ? random_.between(1, 2) : 0);
  const std::vector<Serial> sent = serials_of(refs);
  begin_take(from, target, rank, std::move(refs), hops);
  // A reference that is dropped right after it was sent: the protocol must keep it alive by itself.
  if (random_.chance(0.5)) drop_these(from, sent);
}

void Program::begin_fetch(Life& from, const Ref& ref, Duration timeout, bool little_time) {
  const Serial serial = ref.serial();
  const Token token = ledger_.begin_call({.what = "fetch",
                                          .from = from.index,
                                          .to = ledger_.owner(serial),
                                          .carries = {},
                                          .subject = serial,
                                          .silent = true,
                                          .little_time = little_time,
                                          .cancelled = current_ambient().worker != nullptr,
                                          .deadline = world_.now() + timeout});
  tell("{} fetches object {}: call {}", ledger_.name(from.index), serial, token);
  watch(ref.rref().with_timeout(timeout).fetch(), token, [serial, index = from.index](Program& program, Thing got) {
    if (got.serial != serial) {
      program.ledger_.violation(fmt::format("a fetch of object {} returned object {}", serial, got.serial));
    }
    for (Ref& ref : got.held) {
      if (program.random_.chance(0.4)) program.keep(index, std::move(ref));
    }
  });
}

void Program::fetch(Life& from) {
  bool little_time = false;
  const Duration timeout = pick_timeout(little_time);
  const Ref ref = *pick(from);
  if (can_be_sent(ref)) begin_fetch(from, ref, timeout, little_time);
  if (random_.chance(0.3)) drop(from);
}

void Program::put(Life& from) {
  const Ref ref = *pick(from);
  Refs some = pick_some(from, 2, ref.serial());
  if (some.empty() || !can_be_sent(ref)) return;
  Ledger::Call call{.what = "put",
                    .from = from.index,
                    .to = ledger_.owner(ref.serial()),
                    .carries = {some[0].serial()},
                    .subject = ref.serial()};
  const Duration timeout = pick_timeout(call.little_time);
  call.deadline = world_.now() + timeout;
  const Token token = ledger_.begin_call(std::move(call));
  tell("{} puts {} into object {}: call {}", ledger_.name(from.index), some[0].serial(), ref.serial(), token);
  watch(ref.rref().with_timeout(timeout).async<&Thing::put>(token, some[0]), token, [](Program&) {});
}

void Program::give(Life& from) {
  const Ref ref = *pick(from);
  if (!can_be_sent(ref)) return;
  Ledger::Call call{
      .what = "give", .from = from.index, .to = ledger_.owner(ref.serial()), .carries = {}, .subject = ref.serial()};
  const Duration timeout = pick_timeout(call.little_time);
  call.deadline = world_.now() + timeout;
  const Token token = ledger_.begin_call(std::move(call));
  const bool keeps = random_.chance(0.5);
  tell("{} asks for what object {} holds{}: call {}", ledger_.name(from.index), ref.serial(),
       keeps ? "" : ", and takes it away", token);
  watch(ref.rref().with_timeout(timeout).async<&Thing::give>(token, keeps), token,
        [index = from.index](Program& program, Refs got) {
          for (Ref& ref : got) {
            if (program.random_.chance(0.6)) program.keep(index, std::move(ref));
          }
        });
}

void Program::drop(Life& from) {
  if (from.slots.empty()) return;
  if (random_.chance(0.1)) {
    tell("{} drops all that it holds", ledger_.name(from.index));
    const Refs dropped = std::exchange(from.slots, {});
    return;
  }
  const size_t at = random_.below(from.slots.size());
  tell("{} drops object {}", ledger_.name(from.index), from.slots[at].serial());
  const Ref dropped = std::move(from.slots[at]);
  from.slots.erase(from.slots.begin() + static_cast<ptrdiff_t>(at));
}

void Program::drop_these(Life& from, const std::vector<Serial>& serials) {
  Refs dropped;
  for (size_t i = from.slots.size(); i-- > 0;) {
    if (std::find(serials.begin(), serials.end(), from.slots[i].serial()) == serials.end()) continue;
    tell("{} drops object {}", ledger_.name(from.index), from.slots[i].serial());
    dropped.push_back(std::move(from.slots[i]));
    from.slots.erase(from.slots.begin() + static_cast<ptrdiff_t>(i));
  }
}

// ---- the end

void Program::fetch_all() {
  for (uint32_t rank = 0; rank < world_.size(); ++rank) {
    if (!works(rank)) continue;
    const Refs held = life(rank).slots;
    for (const Ref& ref : held) {
      if (ledger_.can_be_used(ref.serial())) begin_fetch(life(rank), ref, kEnoughTime, false);
    }
  }
}

void Program::drop_all() {
  tell("everybody drops everything");
  for (Life& life : lives_) const Refs dropped = std::exchange(life.slots, {});
}

// ---- handlers

Thing Program::make(Token token, Serial serial, Refs held, LifeIndex where) {
  tell("call {} makes object {} on {}", token, serial, ledger_.name(where));
  return {serial, where, std::move(held)};
}

Future<Thing> Program::make_later(Token token, Serial serial, Refs held) {
  const uint64_t id = ++last_id_;
  Promise<Thing> promise;
  Future<Thing> future = promise.future();
  makings_.emplace(id, Making{std::move(promise), token, serial, std::move(held), life_of(current_ambient().worker)});
  world_.network().schedule(world_.now() + Duration(random_.below(5'000'000)), [id] {
    if (current() == nullptr) return;
    auto node = current()->makings_.extract(id);
    if (node.empty()) return;
    Making& making = node.mapped();
    if (!current()->lives_[making.where].worker->alive()) return;
    making.promise.set_value(current()->make(making.token, making.serial, std::move(making.held), making.where));
  });
  return future;
}

Future<Refs> Program::take(Token token, Refs refs, uint32_t hops) {
  const LifeIndex index = life_of(current_ambient().worker);
  Life& here = lives_.at(index);
  tell("call {} runs on {} with {}", token, ledger_.name(index), names(refs));
  Refs result;
  for (const Ref& ref : refs) {
    if (random_.chance(0.3)) result.push_back(ref);
  }
  if (const Ref* other = pick(here); other != nullptr && random_.chance(0.2) && can_be_sent(*other)) {
    result.push_back(*other);
  }
  for (const Ref& ref : refs) {
    if (random_.chance(0.6)) keep(index, ref);
  }
  // Used at once, before its owner has even heard of it.
  if (random_.chance(0.2)) begin_fetch(here, refs[0], kEnoughTime, true);
  uint32_t rank = 0;
  const WorkerPtr target = hops > 0 ? pick_target(rank) : nullptr;
  if (!target) {
    ledger_.replies(token, serials_of(result));
    return make_ready_future(std::move(result));
  }
  if (on_relay_) on_relay_(here.rank, rank, lives_[ledger_.owner(refs[0].serial())].rank);
  // The answer comes when the next worker has answered.
  return begin_take(here, target, rank, std::move(refs), hops - 1).then([token](Future<Refs> done) -> Refs {
    Refs passed_on;
    if (current() == nullptr) return passed_on;
    if (done.failed()) throw std::runtime_error("the next one failed");
    if (Refs got = done.get(); !got.empty()) passed_on.push_back(got.back());
    current()->ledger_.replies(token, serials_of(passed_on));
    return passed_on;
  });
}

}  // namespace holdfast::sim
