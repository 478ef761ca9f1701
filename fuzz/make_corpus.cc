// Writes the first inputs of the fuzz programs, made from the messages that real workers send: make_corpus DIRECTORY.
// The files have names that begin with "seed_"; what a fuzzer has found since stands beside them under other names.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <holdfast/backward/messages.h>
#include <holdfast/base/random.h>
#include <holdfast/cluster/messages.h>
#include <holdfast/link/messages.h>
#include <holdfast/rpc/messages.h>
#include <holdfast/rref/cargo.h>
#include <holdfast/rref/messages.h>
#include <holdfast/wire/frame.h>

#include "functions.h"
#include "input.h"
#include "value_types.h"

namespace holdfast::fuzz {
namespace {

std::filesystem::path root;

void write(const std::string& target, const std::string& name, const Output& output) {
  std::filesystem::create_directories(root / target);
  std::ofstream file(root / target / ("seed_" + name), std::ios::binary);
  file.write(reinterpret_cast<const char*>(output.bytes().data()), static_cast<std::streamsize>(output.bytes().size()));
}

WorkerInfo worker(uint32_t rank, uint32_t incarnation) {
  return {.name = "worker" + std::to_string(rank),
          .rank = {rank},
          .incarnation = {incarnation},
          .address = "address" + std::to_string(rank)};
}
// As the fuzzed workers of rref.cc, call.cc and backward.cc know each other.
WorkerInfo other(uint32_t rank) { return worker(rank, rank + 10); }

template <class T>
Message said(Kind kind, const T& value) {
  return wire::encode_message(kind, value);
}
Message said(Kind kind) { return {.kind = kind}; }

void attach(Message& message, const Bytes& bytes) {
  const auto owner = std::make_shared<const Bytes>(bytes);
  message.attachments.push_back({.owner = owner, .data = owner->data(), .bytes = owner->size()});
}

// ---- wire

void frames() {
  const auto stream = [](uint8_t flags, const std::vector<Message>& messages, bool preface = false) {
    Output out;
    out.byte(flags).byte(7);
    if (preface) out.append(kPreface);
    uint64_t sequence = 0;
    for (const Message& message : messages) {
      const FrameHeader header{.kind = message.kind, .sequence = sequence++, .acknowledged = 3, .credit_bytes = 100};
      out.append(encode_frame({header, std::make_shared<const Message>(message)}));
    }
    return out;
  };
  Message with_attachments = said(Kind{32}, std::string("call"));
  attach(with_attachments, Bytes(40, 1));
  attach(with_attachments, {});
  attach(with_attachments, Bytes(3, 2));
  const Message hello = said(kHello, Hello{.job = "job", .from = worker(1, 5), .to_incarnation = {1}, .epoch = 1});
  write("frame", "untrusted", stream(4, {hello, said(kAck), said(kPing)}));
  write("frame", "becomes_trusted", stream(0, {hello, said(kAck), said(kPing), with_attachments, hello}));
  write("frame", "trusted", stream(2, {with_attachments, said(kAck), with_attachments}));
  write("frame", "with_preface", stream(3, {hello}, true));
  // The beginning of a frame that is too large to be read through a buffer.
  Message large = said(Kind{33});
  attach(large, Bytes(100 * 1024, 0));
  write("frame", "large", Output().append(ByteView(stream(2, {large}).bytes()).first(300)));
}

void rings() {
  constexpr size_t kWrite = 0, kRead = 2, kFallAsleep = 4, kWaitForRoom = 5, kWake = 6, kScribble = 7;
  Output honest;
  for (size_t side : {0, 1, 0, 0, 0}) {
    honest.byte(kFallAsleep).byte(1 - side).byte(kWrite).byte(side).two_bytes(50'000).byte(kWake).byte(side);
    honest.byte(kWaitForRoom).byte(side).byte(kRead).byte(1 - side).two_bytes(30'000).byte(kWake).byte(1 - side);
  }
  write("rings", "honest", honest);
  Output hostile;
  hostile.byte(kWrite).byte(0).two_bytes(9'000);
  for (size_t field : {0, 128, 256, 384, 2048, 2176}) {
    hostile.byte(kScribble).byte(0).two_bytes(field).append(Bytes(8, uint8_t{0xff}));
    hostile.byte(kRead).byte(1).two_bytes(9'000).byte(kWrite).byte(1).two_bytes(9'000).byte(kFallAsleep).byte(0);
  }
  write("rings", "hostile", hostile);
}

void tls_records() {
  constexpr size_t kAsItIs = 0, kOfAType = 1, kData = 2;
  constexpr uint8_t kKeyUpdate[] = {24, 0, 0, 1, 0}, kHead[] = {23, 3, 3, 0, 40};
  const auto record = [](Output& out, size_t how, size_t piece_max, ByteView content, uint8_t type = 0) {
    out.byte(how).two_bytes(piece_max);
    if (how == kOfAType) out.byte(type);
    out.two_bytes(content.size()).append(content);
  };
  Output honest;
  honest.two_bytes(100);
  for (size_t bytes : {1, 64, 200, 0, 99, 100, 101}) record(honest, kData, 50, Bytes(bytes, 7));
  write("tls_records", "honest", honest);
  Output renewed;
  renewed.two_bytes(20'000);
  record(renewed, kData, 1000, Bytes(64, 7));
  record(renewed, kOfAType, 3, kKeyUpdate, 22);
  write("tls_records", "renewed", renewed);
  Output ended;
  ended.two_bytes(20'000);
  record(ended, kOfAType, 1000, Bytes{2, 48}, 21);
  write("tls_records", "ended", ended);
  Output hostile;
  hostile.two_bytes(20'000);
  record(hostile, kData, 1000, Bytes(64, 7));
  record(hostile, kAsItIs, 3, kHead);
  record(hostile, kAsItIs, 1000, Bytes(40, 7));
  write("tls_records", "hostile", hostile);
}

template <class T>
void value(const std::string& name, uint8_t which, const T& value) {
  write("value", name, Output().byte(which).append(wire::encode_message({}, value).body));
}

void values() {
  value("everything", 0, Everything());
  Anything list{std::vector<Anything>{{true}, {int64_t{-7}}, {2.5}, {std::string("text")}, {Bytes{1, 2}}, {}}};
  value("anything", 1, Anything{std::map<std::string, Anything>{{"a", list}, {"b", {int64_t{1} << 40}}}});
  value("tree", 2, Tree{1, "root", {{2, "leaf", {}}, {3, "branch", {{4, "", {}}}}}});
  value("numbers", 3, Numbers{{{1.5, true}}, {}, {{0.1, false}}});
  value("lists", 4, Lists{{-1, {"a", "b"}}, {70000, {}}});
  value("text", 5, std::string(300, 'x'));
  value("bytes", 6, std::vector<Bytes>{{1, 2, 3}, {}, Bytes(40, 9)});
  write("value", "reads",
        Output().byte(7).append(Bytes{0xc0, 0xc3, 5,    0xd1, 0x80, 0,    0xcb, 0, 0,    0, 0, 0,    0, 0, 0,
                                      0xa1, 'x',  0xc4, 1,    0,    0xd4, 2,    0, 0x92, 1, 2, 0x81, 1, 2}));
}

// ---- link

Output& frame(Output& out, size_t connection, const Message& message, uint8_t sequence = 0, uint8_t acknowledged = 0,
              uint16_t credit = 0) {
  return out.byte(1).byte(connection).byte(sequence).byte(acknowledged).two_bytes(credit).message(message);
}

void handshakes() {
  const auto hello = [](uint32_t rank, uint64_t epoch, const std::string& job = "") {
    return said(
        kHello,
        Hello{.job = job, .from = worker(rank, rank + 4), .to_rank = {0}, .to_incarnation = {1}, .epoch = epoch});
  };
  Output greeted;
  greeted.byte(0).byte(0);
  frame(greeted, 0, hello(1, 1));
  for (uint8_t number = 1; number <= 3; ++number) frame(greeted, 0, said(Kind{96}, std::string("message")), number);
  frame(greeted, 0, said(kPing)).byte(5).byte(12);
  frame(greeted, 0, said(kAck)).byte(4).byte(0);
  write("handshake", "greeted", greeted);

  Output refused;
  refused.byte(0).byte(0).byte(0).byte(0);
  frame(refused, 0, hello(1, 1, "other"));
  frame(refused, 1, hello(0, 1));
  frame(refused, 2, said(kAck));
  refused.byte(5).byte(13);
  write("handshake", "refused", refused);

  // This worker dials, and both do.
  Output dialled;
  dialled.byte(0).byte(6).byte(0).byte(1).byte(9).byte(7).byte(0);
  frame(dialled, 0, said(kWelcome, Welcome{.epoch = 1}));
  frame(dialled, 0, said(kAck), 0, 1, 9);
  dialled.byte(6).byte(1).byte(0).byte(3).byte(7).byte(0);
  frame(dialled, 0, said(kRefused, Refused{.reason = RefusedReason::busy, .text = "busy", .epoch = 2}));
  dialled.byte(5).byte(11).byte(0);
  frame(dialled, 1, hello(2, 9));
  write("handshake", "dialled", dialled);

  Output unreliable;
  unreliable.byte(1).byte(0);
  frame(unreliable, 0, hello(1, 1));
  frame(unreliable, 0, said(Kind{96}), 2);
  frame(unreliable, 0, said(kResend));
  unreliable.byte(6).byte(0).byte(1).byte(4).byte(5).byte(9).byte(9).byte(0).byte(5).byte(8).byte(0);
  write("handshake", "unreliable", unreliable);
}

void link_pairs() {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Random random(seed);
    Output out;
    out.byte(seed & 1);
    // Mostly sends, dials, deliveries and time; a few faults.
    for (int i = 0; i < 150; ++i) {
      constexpr std::array<uint8_t, 16> kEvents = {0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 8, 9, 5, 7, 10, 11};
      const uint64_t event = kEvents[random.below(i % 8 == 0 ? 16 : 12)];
      out.byte(2 * event + random.below(2)).byte(random.below(event == 8 ? 14 : 4)).byte(random.below(16));
    }
    write("link_pair", std::to_string(seed), out);
  }
}

// ---- cluster

void clusters() {
  const auto join_of = [](uint32_t rank) {
    return Join{.job = "job",
                .rank = rank,
                .world_size = 3,
                .address = "host:1",
                .instance = 100 + rank,
                .frame_bytes_max = 1000};
  };
  const auto join = [&](uint32_t rank) { return said(kJoin, join_of(rank)); };
  const auto client = [](Output& out, size_t connection, const Message& message) {
    out.byte(1).byte(connection).message(message);
  };
  Output world;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    world.byte(0);
    client(world, rank, join(rank));
  }
  const Message heartbeat = said(kHeartbeat, Heartbeat{.counter = 1});
  client(world, 0, heartbeat);
  client(world, 1, said(kLookup, Lookup{.request = 1, .name = "worker2"}));
  client(world, 1, said(kLookup, Lookup{.request = 2, .rank = 7}));
  Output lost = world;
  for (size_t i = 0; i < 3; ++i) client(world, i, said(kQuiet, Quiet{.quiet = true, .activity = 4}));
  for (size_t i = 0; i < 3; ++i) client(world, i, said(kQuiet, Quiet{.round = 1, .quiet = true, .activity = 4}));
  for (size_t i = 0; i < 3; ++i) client(world, 0, said(kLeave, Text{"done"}));
  write("coordinator", "whole_life", world);
  lost.byte(7).byte(2).byte(1);
  client(lost, 0, said(kHeartbeat, Heartbeat{.counter = 2, .losses_seen = 1, .losses_settled = 1}));
  client(lost, 1, said(kHeartbeat, Heartbeat{.counter = 2, .losses_seen = 1, .losses_settled = 1}));
  lost.byte(5).byte(1).byte(0);
  client(lost, 1, join(1));
  client(lost, 2, heartbeat);
  lost.byte(6).byte(14);
  client(lost, 0, heartbeat);
  write("coordinator", "losses", lost);
  Output refused;
  refused.byte(0);
  client(refused, 0, heartbeat);
  refused.byte(0);
  client(refused, 0, said(kJoin, Join{.job = "other", .world_size = 3}));
  client(refused, 0, said(kJoin, Join{.job = "job", .name = "a name", .world_size = 3, .instance = 9}));
  refused.byte(6).byte(13);
  write("coordinator", "refused", refused);
  // The last one makes the world complete: first a map fits, then one does not.
  for (const int8_t target : {int8_t{0}, int8_t{5}}) {
    Output mapped;
    for (uint32_t rank = 0; rank < 3; ++rank) {
      Join with_map = join_of(rank);
      with_map.devices = DeviceFacts{.counts = {{DeviceNumber::cuda, 2}}, .devices = {}, .maps = {}};
      with_map.devices->maps["worker1"] = {{{DeviceNumber::cuda, 1}, {DeviceNumber::cuda, target}}};
      mapped.byte(0);
      client(mapped, rank, said(kJoin, with_map));
    }
    // A newcomer with the same map.
    mapped.byte(7).byte(0).byte(0).byte(0);
    Join again = join_of(0);
    again.instance = 200;
    again.devices = DeviceFacts();
    again.devices->maps["worker1"] = {{{}, {DeviceNumber::cuda, target}}};
    client(mapped, 3, said(kJoin, again));
    write("coordinator", target == 0 ? "maps" : "wrong_maps", mapped);
  }

  const auto coordinator = [](Output& out, const Message& message) { out.byte(0).message(message); };
  const Message accepted = said(kAccepted, Accepted{.self = worker(3, 7), .world_size = 8, .lease_ms = 10000});
  Output member;
  member.byte(4);
  coordinator(member, accepted);
  coordinator(member, said(kWaiting, Text{"7 of 8"}));
  coordinator(member, said(kReady));
  const DeviceMap map = {{{DeviceNumber::cuda, 1}, {}}};
  coordinator(member, said(kReady, Ready{{{.rank = {1}, .incarnation = {2}, .map = map}}}));
  member.byte(10).byte(7).byte(1).byte(1).byte(9);
  coordinator(member, said(kFound, Found{.request = 1, .worker = worker(1, 2)}));
  member.byte(7).byte(2).byte(0).byte(9);
  coordinator(member, said(kFound, Found{.request = 2, .text = "nobody"}));
  for (uint64_t number = 1; number <= 2; ++number) {
    coordinator(member, said(kLost, Lost{.number = number, .worker = worker(number, 2), .reason = "gone"}));
  }
  member.byte(9).byte(2);
  coordinator(member, said(kSettled, Counter64{2}));
  Output fenced = member;
  member.byte(8).byte(0).byte(1).byte(4);
  coordinator(member, said(kCheck, Counter64{1}));
  coordinator(member, said(kReleased));
  write("member", "whole_life", member);
  fenced.byte(5).byte(6).byte(9).byte(4);
  coordinator(fenced, accepted);
  fenced.byte(10);
  coordinator(fenced, said(kFenced, Text{"lost"}));
  write("member", "fenced", fenced);
  Output refused_member;
  refused_member.byte(4);
  coordinator(refused_member, said(kJoinRefused, Text{"no"}));
  write("member", "refused", refused_member);
}

// ---- calls and references

template <class... Values>
Message call(Kind kind, const Function& function, uint64_t number, const Values&... values) {
  Message message{.kind = kind};
  wire::Writer writer(message);
  write_call_header(writer, function.id, function.signature_id);
  (wire::encode(writer, values), ...);
  stamp_call(message, {number}, std::chrono::seconds(number % 2));
  return message;
}

void from(Output& out, uint32_t rank, const Message& message) { out.byte(0).byte(rank - 1).message(message); }

void calls() {
  Output served;
  from(served, 1, call(kCall, Registered<greet>::entry, 1, std::string("you")));
  from(served, 1, call(kCall, Registered<add>::entry, 2, int64_t{1}, int32_t{2}));
  from(served, 2,
       call(kCall, Registered<total>::entry, 3, std::vector<Bytes>{{1, 2}, {3}},
            std::optional(std::map<std::string, double>{{"a", 1}})));
  served.byte(3);
  from(served, 1, call(kCall, Registered<throws_a_number>::entry, 4, int64_t{7}));
  from(served, 1, call(kCall, Registered<nothing>::entry, 5));
  from(served, 1, *cancel_message({5}));
  served.byte(3).byte(7).byte(0);
  Message sections = call(kCall, Registered<nothing>::entry, 6);
  attach_section(sections, Section::flow, {1, 2});
  attach_section(sections, Section::cargo, {0x90});
  from(served, 1, sections);
  served.byte(3);
  write("call", "served", served);

  Output made;
  for (uint32_t i = 0; i < 3; ++i) made.byte(5).byte(0).byte(16);
  made.byte(5).byte(1).byte(4);
  Message reply{.kind = kReply};
  wire::Writer writer(reply);
  write_reply_header(writer, {(uint64_t{1} << 32)});
  writer.integer(3);
  from(made, 1, reply);
  from(made, 1,
       *failed_reply({(uint64_t{1} << 32) | 1},
                     {.code = Code::remote_error, .message = "bad", .worker = "worker1", .type = "T"}));
  made.byte(4).byte(10);
  write("call", "made", made);
}

RRefId object(uint64_t counter, uint32_t creator = 1) { return {other(creator).id(), counter}; }
ForkId fork(uint64_t counter, uint32_t maker = 1) { return {other(maker).id(), counter}; }

Message with_cargo(Message message, const std::vector<CargoEntry>& entries) {
  attach_section(message, Section::cargo, wire::encode_message({}, entries).body);
  return message;
}

// The value on the wire that stands for a reference: its index in the cargo.
Message on_object(Kind kind, const Function& function, uint64_t number, const std::vector<CargoEntry>& entries) {
  Message message = call(kind, function, number);
  wire::Writer(message).extension(2, Bytes{0, 0, 0, 0});
  return with_cargo(std::move(message), entries);
}

void references() {
  using R = CargoRole;
  const auto created = [](uint64_t counter) {
    return CargoEntry{.role = R::created, .rref = object(counter), .fork = fork(counter)};
  };
  const CargoEntry to_owner{.role = R::to_owner, .rref = object(1)};
  Output owner;
  from(owner, 1, with_cargo(call(kRemoteCall, RegisteredKept<greet>::entry, 1, std::string("you")), {created(1)}));
  owner.byte(5);
  from(owner, 1, on_object(kCall, RegisteredOnObject<size_of, std::string>::entry, 2, {to_owner}));
  from(owner, 1,
       on_object(kRemoteCall, RegisteredKeptOnObject<size_of, std::string>::entry, 3, {to_owner, created(2)}));
  from(owner, 1, on_object(kCall, Registered<pass_on>::entry, 5, {to_owner}));
  from(owner, 1, with_cargo(call(kRemoteCall, RegisteredKept<throws_a_number>::entry, 7, int64_t{7}), {created(3)}));
  owner.byte(5);
  from(owner, 3,
       said(kRRefForkRequest,
            ForkRequests{.number = 1, .requests = {{object(1), fork(40, 2)}, {object(7, 2), fork(41, 2)}}}));
  from(owner, 1, said(kRRefUserDelete, Forks{.number = 1, .forks = {fork(1), fork(2)}}));
  owner.byte(7).byte(8);
  from(owner, 3, said(kRRefUserDelete, Forks{.number = 2, .forks = {fork(40, 2)}}));
  owner.byte(5).byte(8).byte(1).byte(9);
  write("rref", "owner", owner);

  Output user;
  from(user, 1,
       on_object(kCall, Registered<pass_on>::entry, 1, {{.role = R::from_owner, .rref = object(5), .fork = fork(5)}}));
  user.byte(5);
  from(user, 1,
       on_object(kCall, Registered<pass_on>::entry, 3,
                 {{.role = R::shared, .rref = object(6, 2), .fork = fork(6), .owner = other(2)}}));
  user.byte(5).byte(7).byte(6);
  from(user, 2, said(kRRefAccept, Forks{.number = 1, .forks = {fork(6)}}));
  from(user, 2, said(kRRefChildAccept, Forks{.number = 2, .forks = {{other(0).id(), 1}}}));
  user.byte(11).byte(5).byte(10).byte(8).byte(0);
  write("rref", "user", user);
}

// ---- backward

void backwards() {
  const auto pass = [](uint32_t root, uint64_t counter) {
    return PassId{{other(root).id(), 1}, other(root).id(), counter};
  };
  const auto header = [&](PassMode mode, uint64_t counter) {
    return PassHeader{.pass = pass(1, counter), .root = other(1), .mode = mode};
  };
  const auto gradient = [](const PassHeader& header, uint64_t send) {
    Message message = said(kGradient, GradientBody{.header = header, .send = {send}, .body = {1, 2, 3}});
    attach(message, Bytes(8, 1));
    return message;
  };
  Output part;
  part.byte(8).byte(0).byte(1).byte(2).byte(4).byte(1).byte(2).byte(5).byte(0);
  from(part, 1, said(kMark, Mark{.header = header(PassMode::smart, 1), .sends = {{1}, {2}}}));
  part.byte(4);
  from(part, 1, gradient(header(PassMode::smart, 1), 1));
  from(part, 2, gradient(header(PassMode::smart, 1), 2));
  part.byte(4);
  from(part, 1, said(kMarked, PassOnly{pass(1, 1)}));
  from(part, 1, said(kPassEnd, PassOnly{pass(1, 1)}));
  from(part, 1, gradient(header(PassMode::fast, 2), 3));
  part.byte(4);
  from(part, 1, said(kCleanupContext, CleanupContext{.context = {other(1).id(), 1}, .all_ended_below = 1}));
  write("backward", "part", part);

  // The first of the answers is what the root's own walk reaches: send 3 of worker 1.
  Output root;
  root.byte(8).byte(0).byte(1).byte(1).byte(3).byte(1).byte(1).byte(3).byte(0).byte(7).byte(0).byte(1).byte(15).byte(4);
  const PassId own = pass(0, 1);
  from(root, 1, said(kContextReached, ContextReached{{other(0).id(), 1}}));
  from(
      root, 1,
      said(kReport,
           Report{.pass = own, .processed = {{3}}, .spawned = {{{2}, {12}, {4}}}, .waiting = 1, .waiting_names = "f"}));
  from(root, 2, said(kReport, Report{.pass = own, .processed = {{4}}}));
  root.byte(4);
  from(root, 1, said(kReport, Report{.pass = own, .status = PartStatus::held}));
  from(root, 1, said(kReport, Report{.pass = own, .status = PartStatus::done}));
  from(root, 2, said(kReport, Report{.pass = own, .status = PartStatus::done}));
  root.byte(11).byte(0).byte(7).byte(0).byte(0).byte(10).byte(4);
  from(root, 1,
       said(kPassError, PassError{.pass = pass(0, 2),
                                  .code = static_cast<uint8_t>(Code::remote_error),
                                  .message = "bad",
                                  .worker = "worker1",
                                  .type = "T"}));
  root.byte(9).byte(2).byte(0);
  write("backward", "root", root);
}

}  // namespace
}  // namespace holdfast::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "Usage: %s DIRECTORY\n", argv[0]);
    return 2;
  }
  using namespace holdfast::fuzz;
  root = argv[1];
  frames();
  rings();
  tls_records();
  values();
  handshakes();
  link_pairs();
  clusters();
  calls();
  references();
  backwards();
  return 0;
}
