// Other workers that do not keep to the protocol: cargo and control messages that make no sense must end the connection
// with Corrupt, or be answered with an error, and must leave nothing behind that the loss of their sender does not
// remove. The worker is a whole one, driven by hand.
#include <functional>

#include <holdfast/base/random.h>
#include <holdfast/base/sanitizer_test_support.h>
#include <holdfast/rref/rref_test_support.h>

namespace holdfast {
namespace {

using test::HandWorker;
using test::worker_info;
using namespace std::chrono_literals;

std::string greet(const std::string& name) { return "hello " + name; }
int64_t length(RRef<std::string> text) { return static_cast<int64_t>(text.local_value().size()); }
int64_t size_of(const std::string& text) { return static_cast<int64_t>(text.size()); }
RRef<std::string> held;
void hold(RRef<std::string> text) { held = std::move(text); }
int64_t throws_a_number(int64_t n) { throw n; }

const Function& kept_greet() { return RegisteredKept<greet>::entry; }
const Function& replied_greet() { return Registered<greet>::entry; }
const Function& on_string() { return RegisteredOnObject<size_of, std::string>::entry; }
const Function& kept_on_string() { return RegisteredKeptOnObject<size_of, std::string>::entry; }

using Entries = std::vector<CargoEntry>;
using Arguments = std::function<void(wire::Writer&)>;

Arguments text(const std::string& value) {
  return [value](wire::Writer& writer) { wire::encode(writer, value); };
}
Arguments index(uint32_t value, int8_t type = 2) {
  return [=](wire::Writer& writer) {
    const std::array<uint8_t, 4> bytes = {static_cast<uint8_t>(value >> 24), static_cast<uint8_t>(value >> 16),
                                          static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value)};
    writer.extension(type, bytes);
  };
}
void no_arguments(wire::Writer&) {}

Bytes bytes_of(const Entries& entries) { return std::move(wire::encode_message(kRemoteCall, entries).body); }

class HostileTest : public testing::Test {
 protected:
  static constexpr uint32_t kPeer = 1;

  RRefId object(uint64_t counter, uint32_t creator = kPeer) { return {worker_info(creator)->id(), counter}; }
  ForkId fork(uint64_t counter, uint32_t maker = kPeer) { return {worker_info(maker)->id(), counter}; }
  CargoEntry entry(CargoRole role, const RRefId& rref, std::optional<ForkId> fork = {},
                   std::optional<WorkerInfo> owner = {}) {
    return {.role = role, .rref = rref, .fork = fork, .owner = owner};
  }
  CargoEntry created(uint64_t counter) { return entry(CargoRole::created, object(counter), fork(counter)); }
  CargoEntry to_owner(uint64_t counter) { return entry(CargoRole::to_owner, object(counter)); }

  // A call without its cargo.
  Message bare_call(Kind kind, const Function& function, const Arguments& arguments, Duration time = Duration::max()) {
    Message message;
    message.kind = kind;
    wire::Writer writer(message);
    write_call_header(writer, function.id, function.signature_id);
    arguments(writer);
    stamp_call(message, {++last_call_}, time);
    return message;
  }
  Message call(Kind kind, const Function& function, const Arguments& arguments, const Entries& entries,
               Duration time = Duration::max()) {
    Message message = bare_call(kind, function, arguments, time);
    attach_section(message, Section::cargo, bytes_of(entries));
    return message;
  }
  Message creation(const Entries& entries) { return call(kRemoteCall, kept_greet(), text("you"), entries); }
  template <class T>
  Message control(Kind kind, T value) {
    return wire::encode_message(kind, value);
  }
  Message requests(std::vector<ForkRequest> list) {
    return control(kRRefForkRequest, ForkRequests{.number = ++last_number_, .requests = std::move(list)});
  }

  std::optional<Failure> says(Message message) { return worker_.from(kPeer, std::move(message)); }
  void expect_fine(Message message) {
    const std::optional<Failure> failure = says(std::move(message));
    EXPECT_FALSE(failure) << failure->message;
  }
  void expect_corrupt(Message message, const std::string& what) {
    const std::string before = worker_.held();
    const std::optional<Failure> failure = says(std::move(message));
    ASSERT_TRUE(failure) << what << " was taken for good";
    EXPECT_EQ(failure->code, Code::corrupt) << what << ": " << failure->message;
    worker_.run_work();
    EXPECT_EQ(worker_.held(), before) << what << " left something";
  }
  // The object `counter`, created by the peer, is there.
  void make_object(uint64_t counter) {
    expect_fine(creation({created(counter)}));
    worker_.run_work();
  }
  // What the peer was answered last.
  std::optional<Failure> answer() {
    std::optional<Failure> failure;
    for (const Message& message : worker_.said_to(kPeer)) {
      if (message.kind != kReply) continue;
      wire::Reader reader(message);
      failure = read_reply_header(reader).failure;
      if (!failure) failure = Failure{.code = Code{}, .message = "a result"};
    }
    return failure;
  }
  // Why the object is not there, as whoever uses it hears it.
  Failure use(uint64_t counter) {
    expect_fine(call(kCall, on_string(), index(0), {to_owner(counter)}));
    worker_.run_work();
    return answer().value_or(Failure{.message = "no answer"});
  }
  void expect_all_gone() {
    worker_.lose_everybody();
    EXPECT_EQ(worker_.held(), "");
  }

  HandWorker worker_;
  uint64_t last_call_ = 0;
  uint64_t last_number_ = 0;
};

// ---- cargo

TEST_F(HostileTest, WhatIsRightIsTaken) {
  make_object(1);
  expect_fine(call(kCall, Registered<length>::entry, index(0), {to_owner(1)}));
  worker_.run_work();
  EXPECT_EQ(answer().value().message, "a result");
  expect_fine(control(kRRefUserDelete, Forks{.number = ++last_number_, .forks = {fork(1)}}));
  worker_.run_work();
  EXPECT_EQ(worker_.held(), "");
}

TEST_F(HostileTest, EntriesThatMakeNoSense) {
  make_object(1);
  const WorkerInfo third = *worker_info(2);
  const WorkerInfo& self = *worker_.self();
  // A reference that is held here, so that its fork is known.
  expect_fine(call(kCall, Registered<hold>::entry, index(0), {entry(CargoRole::from_owner, object(70), fork(70))}));
  worker_.run_work();
  ASSERT_TRUE(held);

  using R = CargoRole;
  const std::vector<std::pair<std::string, CargoEntry>> creations = {
      {"a creation without a fork", entry(R::created, object(2))},
      {"a creation with another's fork", entry(R::created, object(2), fork(2, 2))},
      {"a creation with fork 0", entry(R::created, object(2), fork(0))},
      {"a creation in another's name", entry(R::created, object(2, 2), fork(2))},
      {"a creation in this worker's name", entry(R::created, object(2, 0), fork(2))},
      {"a creation with an owner", entry(R::created, object(2), fork(2), third)},
      {"a second creation", entry(R::created, object(1), fork(2))},
      {"a creation with a fork that is there", entry(R::created, object(2), fork(1))},
  };
  for (const auto& [what, bad] : creations) expect_corrupt(creation({bad}), what);

  const std::vector<std::pair<std::string, CargoEntry>> arguments = {
      {"an unknown object", entry(R::to_owner, object(2))},
      {"an unknown object of this worker", entry(R::to_owner, object(1, 0))},
      {"to the owner with a fork", entry(R::to_owner, object(1), fork(5))},
      {"to the owner with an owner", entry(R::to_owner, object(1), {}, self)},
      {"from the owner without a fork", entry(R::from_owner, object(5))},
      {"from the owner with another's fork", entry(R::from_owner, object(5), fork(5, 2))},
      {"from the owner with this worker's fork", entry(R::from_owner, object(5), fork(5, 0))},
      {"from the owner with fork 0", entry(R::from_owner, object(5), fork(0))},
      {"from the owner with a fork that is there", entry(R::from_owner, object(5), fork(70))},
      {"from the owner with an owner", entry(R::from_owner, object(5), fork(5), third)},
      {"shared without a fork", entry(R::shared, object(5), {}, third)},
      {"shared with another's fork", entry(R::shared, object(5), fork(5, 2), third)},
      {"shared with a fork that is there", entry(R::shared, object(5), fork(70), third)},
      {"shared without an owner", entry(R::shared, object(5), fork(5))},
      {"shared though this worker is the owner", entry(R::shared, object(1), fork(5), self)},
      {"shared by its owner", entry(R::shared, object(5), fork(5), *worker_info(kPeer))},
      {"to oneself, from another", entry(R::to_self, object(1))},
      {"to oneself, from another, with a fork", entry(R::to_self, object(70), fork(70))},
      {"an unknown role", entry(CargoRole{5}, object(1))},
      {"an unknown role", entry(CargoRole{255}, object(5), fork(5), third)},
  };
  for (const auto& [what, bad] : arguments) {
    expect_corrupt(call(kCall, replied_greet(), text("x"), {bad}), what);
    expect_corrupt(call(kReply, replied_greet(), text("x"), {bad}), what + " in a reply");
    expect_corrupt(call(kRRefFetch, on_string(), index(0), {bad}), what + " in a fetch");
    expect_corrupt(creation({bad, created(2)}), what + " in a creation");
    expect_corrupt(call(kCall, replied_greet(), text("x"), {entry(R::from_owner, object(6), fork(6)), bad}),
                   what + " behind a good one");
  }
  worker_.run_work();
  EXPECT_EQ(use(1).message, "a result") << "what was there is there still";
  held = {};
  expect_all_gone();
}

TEST_F(HostileTest, CreationsInTheWrongPlace) {
  expect_corrupt(call(kCall, replied_greet(), text("x"), {created(2)}), "a creation in a CALL");
  expect_corrupt(call(kReply, replied_greet(), text("x"), {created(2)}), "a creation in a REPLY");
  expect_corrupt(call(kRRefFetch, on_string(), index(0), {created(2)}), "a creation in a FETCH");
  expect_corrupt(creation({created(2), created(3)}), "two creations");
  expect_corrupt(creation({created(2), entry(CargoRole::from_owner, object(5), fork(5))}), "a creation in front");
  expect_corrupt(creation({}), "a creation of nothing");
  expect_corrupt(creation({entry(CargoRole::from_owner, object(5), fork(5))}), "a creation of nothing else");
  expect_corrupt(bare_call(kRemoteCall, kept_greet(), text("x")), "a creation without cargo");
  Message headless = creation({created(2)});
  headless.body.resize(5);
  expect_corrupt(headless, "a creation without a header");
  EXPECT_EQ(worker_.held(), "");
}

TEST_F(HostileTest, OneForkIsUsedOnce) {
  const CargoEntry from_owner = entry(CargoRole::from_owner, object(5), fork(5));
  const CargoEntry shared = entry(CargoRole::shared, object(6), fork(5), *worker_info(2));
  expect_corrupt(call(kCall, replied_greet(), text("x"), {from_owner, from_owner}), "twice");
  expect_corrupt(call(kCall, replied_greet(), text("x"), {from_owner, shared}), "in two ways");
  expect_corrupt(creation({from_owner, entry(CargoRole::created, object(2), fork(5))}), "also for the creation");
  EXPECT_EQ(worker_.held(), "");
  // Across messages: while the first is here.
  expect_fine(call(kCall, Registered<hold>::entry, index(0), {from_owner}));
  worker_.run_work();
  expect_corrupt(call(kCall, replied_greet(), text("x"), {shared}), "in two messages");
  held = {};
  expect_all_gone();
}

TEST_F(HostileTest, CargoThatDoesNotDecode) {
  make_object(1);
  const Bytes good = bytes_of({to_owner(1), entry(CargoRole::shared, object(6), fork(6), *worker_info(2)), created(7)});
  for (size_t size = 0; size < good.size(); ++size) {
    Message message = bare_call(kRemoteCall, kept_greet(), text("you"));
    attach_section(message, Section::cargo, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(size)));
    expect_corrupt(message, "the first " + std::to_string(size) + " bytes");
  }
  Bytes longer = good;
  longer.push_back(0xc0);
  Message trailing = bare_call(kRemoteCall, kept_greet(), text("you"));
  attach_section(trailing, Section::cargo, longer);
  expect_corrupt(trailing, "a byte too many");

  Message missing = bare_call(kCall, replied_greet(), text("you"));
  missing.body[0] = 0xc3;
  expect_corrupt(missing, "no cargo where there should be");

  const Bytes giant_count = {0xdd, 0xff, 0xff, 0xff, 0xff};
  Message giant = bare_call(kCall, replied_greet(), text("you"));
  attach_section(giant, Section::cargo, giant_count);
  expect_corrupt(giant, "four billion references");
  for (Kind kind : {kRRefForkRequest, kRRefAccept, kRRefChildAccept, kRRefUserDelete}) {
    Message message;
    message.kind = kind;
    message.body = {0x92, 0x01, 0xdd, 0xff, 0xff, 0xff, 0xff};
    expect_corrupt(message, "four billion of kind " + std::to_string(kind.value));
    message.body.clear();
    expect_corrupt(message, "an empty message of kind " + std::to_string(kind.value));
  }
}

// ---- values that name references

TEST_F(HostileTest, AnIndexThatIsNotThere) {
  make_object(1);
  const Arguments short_index = [](wire::Writer& writer) { writer.extension(2, Bytes{0, 0}); };
  const Arguments long_index = [](wire::Writer& writer) { writer.extension(2, Bytes{0, 0, 0, 0, 0}); };
  for (const Arguments& bad : {index(1), index(UINT32_MAX), index(0, 3), short_index, long_index, text("an RRef")}) {
    expect_fine(call(kCall, Registered<length>::entry, bad, {to_owner(1)}));
    worker_.run_work();
    EXPECT_EQ(answer().value().code, Code::corrupt);
    expect_fine(call(kCall, on_string(), bad, {to_owner(1)}));
    worker_.run_work();
    EXPECT_EQ(answer().value().code, Code::corrupt);
  }
  // An index without any cargo.
  expect_fine(bare_call(kCall, Registered<length>::entry, index(0)));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::corrupt);
  // The one that is to be created has no index.
  expect_fine(call(kRemoteCall, kept_on_string(), index(0), {created(2)}));
  worker_.run_work();
  EXPECT_EQ(use(2).code, Code::corrupt);
}

TEST_F(HostileTest, AFunctionOnAnObjectThatIsNotHere) {
  const Arguments nil = [](wire::Writer& writer) { writer.nil(); };
  expect_fine(bare_call(kCall, on_string(), nil));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::corrupt);
  expect_fine(call(kCall, on_string(), index(0), {entry(CargoRole::from_owner, object(5), fork(5))}));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::corrupt);
  expect_all_gone();
}

TEST_F(HostileTest, AnObjectOfAnotherTypeIsAnErrorThatNamesBoth) {
  const ReferencePtr number =
      worker_.references().own(rpc_detail::make_kept<int64_t>([] { return int64_t{5}; }), "test");
  const CargoEntry claim = entry(CargoRole::to_owner, number->rref);
  expect_fine(call(kCall, on_string(), index(0), {claim}));
  worker_.run_work();
  const Failure failure = answer().value();
  EXPECT_EQ(failure.code, Code::invalid_argument);
  EXPECT_NE(failure.message.find("is a long, not a std::"), std::string::npos) << failure.message;
  // The same for a result that stays here, a fetch, and local_value() in a handler.
  expect_fine(call(kRemoteCall, kept_on_string(), index(0), {claim, created(3)}));
  worker_.run_work();
  EXPECT_NE(use(3).message.find("is a long, not a std::"), std::string::npos);
  expect_fine(call(kCall, Registered<length>::entry, index(0), {claim}));
  worker_.run_work();
  EXPECT_NE(answer().value().message.find("is a long, not a std::"), std::string::npos);
}

// A program that asks by name for an RRef gets the entry of the function whose result stays: without a creation.
TEST_F(HostileTest, AFunctionWhoseResultStaysIsNotForCalls) {
  make_object(1);
  expect_fine(bare_call(kCall, kept_greet(), text("you")));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::invalid_argument);
  expect_fine(call(kCall, kept_on_string(), index(0), {to_owner(1)}));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::invalid_argument);
  expect_fine(call(kRRefFetch, kept_on_string(), index(0), {to_owner(1)}));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::invalid_argument);
}

TEST_F(HostileTest, AFunctionWithAReplyCreatesNothing) {
  make_object(1);
  expect_fine(call(kRemoteCall, replied_greet(), text("you"), {created(2)}));
  worker_.run_work();
  EXPECT_FALSE(answer()) << "a creation has no reply";
  EXPECT_EQ(use(2).code, Code::invalid_argument);
  expect_fine(call(kRemoteCall, on_string(), index(0), {to_owner(1), created(3)}));
  worker_.run_work();
  EXPECT_FALSE(answer());
  EXPECT_EQ(use(3).code, Code::invalid_argument);
}

// ---- control messages

TEST_F(HostileTest, UnknownAndLateWordsAreDropped) {
  make_object(1);
  const std::string before = worker_.held();
  for (Kind kind : {kRRefAccept, kRRefChildAccept, kRRefUserDelete}) {
    expect_fine(control(kind, Forks{.number = ++last_number_, .forks = {fork(99), fork(1, 2), {}}}));
  }
  EXPECT_FALSE(worker_.from(2, control(kRRefUserDelete, Forks{.number = 1, .forks = {fork(1)}}))) << "another's";
  expect_fine(control(kRRefUserDelete, Forks{.number = last_number_, .forks = {fork(1)}}));  // a repetition
  EXPECT_EQ(worker_.held(), before);
  expect_fine(control(kRRefUserDelete, Forks{.number = ++last_number_, .forks = {fork(1)}}));
  worker_.run_work();
  EXPECT_EQ(worker_.held(), "");
}

TEST_F(HostileTest, ARequestForAnUnknownObjectWaitsForItsCreation) {
  expect_fine(requests({{object(7, 2), fork(40, 2)}}));
  EXPECT_EQ(worker_.references().owned().objects().at(object(7, 2)).state, Owned::State::expected);
  expect_fine(call(kCall, on_string(), index(0), {entry(CargoRole::to_owner, object(7, 2))}));
  worker_.run_work();
  EXPECT_FALSE(answer());
  worker_.lose(*worker_info(2));
  worker_.run_work();
  EXPECT_EQ(answer().value().code, Code::worker_lost);
  // Once its creator is known to be lost it fails at once.
  expect_fine(requests({{object(8, 2), fork(41, 2)}}));
  EXPECT_EQ(worker_.references().owned().objects().at(object(8, 2)).state, Owned::State::failed);
  expect_all_gone();
}

TEST_F(HostileTest, ARequestWithAForkThatIsThereMakesNothing) {
  make_object(1);
  expect_fine(requests({{object(1), fork(40, 2)}}));
  const std::string before = worker_.held();
  expect_fine(requests({{object(1), fork(40, 2)}}));
  expect_fine(requests({{object(9, 2), fork(40, 2)}}));  // for an object that is not here
  EXPECT_EQ(worker_.held(), before);
  EXPECT_FALSE(
      worker_.from(3, control(kRRefForkRequest, ForkRequests{.number = 1, .requests = {{object(9, 2), fork(40, 2)}}})));
  EXPECT_EQ(worker_.held(), before) << "nor for somebody else";
  expect_all_gone();
}

TEST_F(HostileTest, AForkThatTheOwnerOrTheSenderMadeNeedsNoRequest) {
  make_object(1);
  expect_corrupt(requests({{object(1), fork(40, 2)}, {object(1), fork(1000, 0)}}), "the owner's own fork");
  expect_corrupt(requests({{object(1), fork(40)}}), "the sender's own fork");
  expect_corrupt(requests({{object(1), fork(0, 2)}}), "fork 0");
}

// Whoever guesses the id of an object that this worker will make must not get in the way of it.
TEST_F(HostileTest, AnObjectOfThisWorkerIsNeverExpected) {
  const auto own = [&] {
    return worker_.references().own(rpc_detail::make_kept<std::string>([] { return std::string("x"); }), "test");
  };
  ReferencePtr first = own();
  const uint64_t counter = first->rref.counter;
  expect_corrupt(requests({{object(counter + 1, 0), fork(40, 2)}}), "an object of the future");
  ReferencePtr second = own();
  EXPECT_EQ(second->rref.counter, counter + 1);
  const RRefId gone = first->rref;
  first.reset();
  second.reset();
  worker_.run_work();
  EXPECT_EQ(worker_.held(), "");
  expect_corrupt(requests({{gone, fork(41, 2)}}), "an object of the past");
}

// ---- calls whose result stays

TEST_F(HostileTest, AnUnknownFunctionIsAnErrorAtUse) {
  const Function unknown{.name = "nowhere", .signature = "()", .id = 77, .signature_id = 78};
  expect_fine(call(kRemoteCall, unknown, no_arguments, {created(2)}));
  EXPECT_EQ(worker_.work_count(), 0u);
  const Failure failure = use(2);
  EXPECT_EQ(failure.code, Code::no_such_function);
  EXPECT_NE(failure.message.find("HOLDFAST_EXPORT"), std::string::npos) << failure.message;
  EXPECT_NE(failure.message.find("worker0"), std::string::npos) << failure.message;
  // Known, but with other types: says which.
  const Function other{.name = "greet", .signature = "?", .id = kept_greet().id, .signature_id = 78};
  expect_fine(call(kRemoteCall, other, no_arguments, {created(3)}));
  const Failure differs = use(3);
  EXPECT_EQ(differs.code, Code::invalid_argument);
  EXPECT_NE(differs.message.find("greet(str)"), std::string::npos) << differs.message;
}

TEST_F(HostileTest, ACreationThatBeganTooLateFails) {
  expect_fine(call(kRemoteCall, kept_greet(), text("you"), {created(2)}, 5ms));
  worker_.advance(6ms);
  EXPECT_EQ(worker_.references().owned().objects().at(object(2)).state, Owned::State::failed);
  EXPECT_EQ(use(2).code, Code::timeout);
  EXPECT_EQ(worker_.node().calls().served_count(), 0u);
  // The clock is read only when the call begins.
  expect_fine(call(kRemoteCall, kept_greet(), text("you"), {created(3)}, 1us));
  worker_.advance(1us);
  worker_.run_work();
  EXPECT_EQ(use(3).code, Code::timeout);
}

TEST_F(HostileTest, ACreationThatNoThreadRunsFails) {
  expect_fine(creation({created(2)}));
  EXPECT_EQ(worker_.work_count(), 1u);
  worker_.drop_work();
  const Failure failure = use(2);
  EXPECT_EQ(failure.code, Code::cancelled);
  EXPECT_NE(failure.message.find("greet"), std::string::npos) << failure.message;
  EXPECT_EQ(worker_.node().calls().served_count(), 0u);
}

TEST_F(HostileTest, ACreationMayThrowAnything) {
  const Arguments number = [](wire::Writer& writer) { wire::encode(writer, int64_t{7}); };
  expect_fine(call(kRemoteCall, RegisteredKept<throws_a_number>::entry, number, {created(2)}));
  worker_.run_work();
  const Failure failure = use(2);
  EXPECT_EQ(failure.code, Code::remote_error);
  EXPECT_NE(failure.message.find("throws_a_number threw long"), std::string::npos) << failure.message;
}

TEST_F(HostileTest, TheSameCallTwiceIsCorruptAndItsObjectFails) {
  expect_fine(creation({created(2)}));
  --last_call_;
  const std::optional<Failure> failure = says(creation({created(3)}));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, Code::corrupt);
  worker_.run_work();
  EXPECT_EQ(use(2).message, "a result");
  EXPECT_EQ(use(3).code, Code::cancelled);
}

TEST_F(HostileTest, ALostCallersCreationRunsOnAndIsFreedWhenSettled) {
  expect_fine(creation({created(2)}));
  worker_.lose(*worker_info(kPeer));
  worker_.run_work();
  EXPECT_EQ(worker_.references().owned().objects().at(object(2)).state, Owned::State::ready);
  worker_.settle();
  worker_.run_work();
  EXPECT_EQ(worker_.held(), "");
}

// ---- a call that waits for its object

TEST_F(HostileTest, ACallThatNobodyWaitsForAnyMoreDoesNotRun) {
  static int runs;
  runs = 0;
  constexpr auto count = [](const std::string&) { return static_cast<int64_t>(++runs); };
  const Function& function = RegisteredOnObject<count, std::string>::entry;
  expect_fine(requests({{object(7, 2), fork(40, 2)}}));
  expect_fine(call(kCall, function, index(0), {entry(CargoRole::to_owner, object(7, 2))}));
  const CallId cancelled{last_call_};
  expect_fine(call(kCall, function, index(0), {entry(CargoRole::to_owner, object(7, 2))}, 5ms));
  expect_fine(call(kCall, function, index(0), {entry(CargoRole::to_owner, object(7, 2))}));
  worker_.run_work();
  const auto& waiting = worker_.references().owned().objects().at(object(7, 2)).waiting;
  EXPECT_EQ(waiting.size(), 3u);
  expect_fine(*cancel_message(cancelled));
  EXPECT_EQ(waiting.size(), 2u) << "it does not even wait";
  EXPECT_EQ(worker_.node().calls().served_count(), 2u);
  worker_.advance(6ms);
  Message late = creation({entry(CargoRole::created, object(7, 2), fork(7, 2))});
  EXPECT_FALSE(worker_.from(2, late));
  worker_.run_work();
  EXPECT_EQ(runs, 1) << "only the call that its caller still waits for";
  EXPECT_EQ(worker_.node().calls().served_count(), 0u);
  expect_all_gone();
}

// A coroutine on an object, whose caller gives up, and whose last holder too.
struct Guarded {
  ~Guarded() { ++ended; }
  Task<int64_t> wait() {
    co_await gate->future();
    co_return ++passed;
  }
  int64_t passed = 0;
  static inline std::unique_ptr<Promise<void>> gate;
  static inline int ended = 0;
};

TEST_F(HostileTest, AnObjectOutlivesTheCoroutinesThatRunOnIt) {
  Guarded::gate = std::make_unique<Promise<void>>();
  Guarded::ended = 0;
  expect_fine(call(kRemoteCall, RegisteredKept<rref_detail::make<Guarded>>::entry, no_arguments, {created(1)}));
  worker_.run_work();
  expect_fine(call(kCall, RegisteredOnObject<&Guarded::wait>::entry, index(0), {to_owner(1)}));
  worker_.run_work();
  Guarded::ended = 0;
  expect_fine(*cancel_message({last_call_}));
  expect_fine(control(kRRefUserDelete, Forks{.number = ++last_number_, .forks = {fork(1)}}));
  worker_.run_work();
  EXPECT_EQ(worker_.held(), "") << "for the tables it is over";
  EXPECT_EQ(Guarded::ended, 0) << "but not for the coroutine";
  Guarded::gate->set_value();
  EXPECT_EQ(Guarded::ended, 1);
}

// ---- random bytes

TEST_F(HostileTest, AnyBytesAsCargoOrControl) {
  const CargoEntry there = entry(CargoRole::to_owner, object(1));
  const Bytes good = bytes_of({there, entry(CargoRole::from_owner, object(6), fork(6)),
                               entry(CargoRole::shared, object(6), fork(7), *worker_info(2)), created(8)});
  const Bytes good_list =
      control(kRRefForkRequest,
              ForkRequests{.number = 1, .requests = {{object(7, 2), fork(40, 2)}, {object(1), fork(41, 2)}}})
          .body;
  for (uint64_t seed = 1; seed <= (test::kThreadSanitizer ? 300 : test::kSanitizer ? 1000 : 3000); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto spoil = [&](Bytes bytes) {
      if (random.chance(0.1)) bytes.resize(random.below(bytes.size() + 1));
      for (uint64_t n = random.below(4); n > 0 && !bytes.empty(); --n) {
        bytes[random.below(bytes.size())] = static_cast<uint8_t>(random.next());
      }
      return bytes;
    };
    HandWorker worker;
    (void)worker.from(kPeer, creation({created(1)}));
    worker.run_work();
    for (uint8_t number = 1; number <= 20; ++number) {
      Message message;
      if (random.chance(0.6)) {
        const bool keeps = random.chance(0.6);
        message = bare_call(keeps ? kRemoteCall : kCall, keeps ? kept_on_string() : on_string(),
                            index(static_cast<uint32_t>(random.below(4))), random.chance(0.5) ? 5ms : Duration::max());
        attach_section(message, Section::cargo,
                       spoil(random.chance(0.5) ? good : bytes_of({there, created(100u + number)})));
      } else {
        message.kind = Kind{static_cast<uint16_t>(random.between(kRRefForkRequest.value, kRRefUserDelete.value))};
        message.body = spoil(good_list);
        if (message.body.size() > 1) message.body[1] = number;
      }
      (void)worker.from(kPeer, std::move(message));
      if (random.chance(0.5)) worker.run_work();
      if (random.chance(0.2)) worker.advance(1ms);
    }
    worker.lose_everybody();
    ASSERT_EQ(worker.held(), "");
  }
}

}  // namespace
}  // namespace holdfast
