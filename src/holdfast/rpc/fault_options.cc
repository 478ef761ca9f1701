#include <holdfast/rpc/fault_options.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include <holdfast/base/error.h>
#include <holdfast/transport/faulty.h>
#include <holdfast/wire/kind.h>

namespace holdfast {

namespace {

constexpr std::string_view kSettings =
    "seed, workers, messages_to_fail, num_fail_sends, messages_to_delay, drop, duplicate, reorder, delay, delay_max, "
    "cut, "
    "kill, peer";

struct Probability {
  std::string_view name;
  double PeerFaults::*field;
};
constexpr Probability kProbabilities[] = {{"drop", &PeerFaults::drop},   {"duplicate", &PeerFaults::duplicate},
                                          {"delay", &PeerFaults::delay}, {"reorder", &PeerFaults::reorder},
                                          {"cut", &PeerFaults::cut},     {"kill", &PeerFaults::kill}};

struct TimeUnit {
  std::string_view name;
  double ns;
};
constexpr TimeUnit kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}};

Failure wrong_faults(std::string message) {
  return {.code = Code::invalid_argument, .message = "faults: " + std::move(message)};
}
[[noreturn]] void refuse_faults(std::string message) { throw_failure(wrong_faults(std::move(message))); }

template <class T>
bool read_number(std::string_view text, T& value, std::string_view* rest = nullptr) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (rest != nullptr) *rest = text.substr(static_cast<size_t>(end - text.data()));
  return error == std::errc() && (rest != nullptr || end == text.data() + text.size());
}

template <class T>
T whole_number(std::string_view name, std::string_view text) {
  T value = 0;
  if (!read_number(text, value)) refuse_faults(fmt::format("{}={} is not a whole number from 0 on", name, text));
  return value;
}

Duration parse_time(std::string_view name, std::string_view text) {
  double value = 0;
  std::string_view rest;
  if (read_number(text, value, &rest) && std::isfinite(value)) {
    for (const TimeUnit& unit : kUnits) {
      if (rest != unit.name) continue;
      constexpr double kLongestNs = 9e18;
      return Duration(static_cast<Duration::rep>(std::clamp(value * unit.ns, -kLongestNs, kLongestNs)));
    }
  }
  refuse_faults(
      fmt::format("{}={} is not a time: write a number and one of ns, us, ms, s, min, such as 200ms", name, text));
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

void set_delays(PeerFaults& faults, std::string_view value) {
  faults.messages_to_delay.clear();
  for (const std::string& entry : split(value)) {
    const size_t colon = entry.find(':');
    if (colon == std::string::npos) {
      refuse_faults(fmt::format("messages_to_delay has \"{}\": write KIND:TIME, such as CALL:200ms", entry));
    }
    faults.messages_to_delay[entry.substr(0, colon)] =
        parse_time("messages_to_delay", std::string_view(entry).substr(colon + 1));
  }
}

void set_for_peer(PeerFaults& faults, std::string_view name, std::string_view value) {
  for (const Probability& probability : kProbabilities) {
    if (name != probability.name) continue;
    if (!read_number(value, faults.*probability.field)) {
      refuse_faults(fmt::format("{}={} is not a probability, a number from 0 to 1", name, value));
    }
    return;
  }
  if (name == "messages_to_fail") {
    faults.messages_to_fail = split(value);
  } else if (name == "num_fail_sends") {
    faults.num_fail_sends = whole_number<uint32_t>(name, value);
  } else if (name == "messages_to_delay") {
    set_delays(faults, value);
  } else if (name == "delay_max") {
    faults.delay_max = parse_time(name, value);
  } else {
    refuse_faults(fmt::format("\"{}\" is not a setting; there are {}", name, kSettings));
  }
}

Status check_peer(const PeerFaults& faults, const KindNames& known) {
  const auto unknown_kind = [&](std::string_view where, const std::string& kind) {
    return wrong_faults(
        fmt::format("{} has \"{}\", which is no kind of message here; there are {}", where, kind, known.all()));
  };
  for (const std::string& kind : faults.messages_to_fail) {
    if (known.find(kind) == nullptr) return unknown_kind("messages_to_fail", kind);
  }
  for (const auto& [kind, time] : faults.messages_to_delay) {
    if (known.find(kind) == nullptr) return unknown_kind("messages_to_delay", kind);
    if (time < Duration::zero()) {
      return wrong_faults(
          fmt::format("messages_to_delay has a negative time for {}: a delay is a time from 0 on, such as "
                      "200ms",
                      kind));
    }
  }
  for (const Probability& probability : kProbabilities) {
    const double value = faults.*probability.field;
    if (!(value >= 0 && value <= 1)) {
      return wrong_faults(fmt::format("{} is {}: a probability is from 0 to 1", probability.name, value));
    }
  }
  if (faults.delay_max < Duration::zero()) {
    return wrong_faults("delay_max is negative: it is a time from 0 on, such as 10ms");
  }
  return {};
}

}  // namespace

FaultPlan PeerFaults::frame_plan() const {
  return {.cut = cut, .drop = drop, .duplicate = duplicate, .delay = delay, .reorder = reorder, .delay_max = delay_max};
}

bool FaultOptions::any_for_messages() const {
  return PeerFaults::any_for_messages() ||
         std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.second.any_for_messages(); });
}

bool FaultOptions::any_for_frames() const {
  return PeerFaults::any_for_frames() ||
         std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.second.any_for_frames(); });
}

bool FaultOptions::tampers() const {
  return PeerFaults::tampers() ||
         std::any_of(peers.begin(), peers.end(), [](const auto& peer) { return peer.second.tampers(); });
}

bool FaultOptions::made_by(const std::string& worker) const {
  return workers.empty() || std::find(workers.begin(), workers.end(), worker) != workers.end();
}

const PeerFaults& FaultOptions::towards(const std::string& peer) const {
  const auto found = peers.find(peer);
  return found == peers.end() ? *this : found->second;
}

FaultOptions FaultOptions::parse(std::string_view text) {
  FaultOptions faults;
  PeerFaults* current = &faults;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      const std::string_view name = std::string_view(word).substr(0, equals);
      if (equals == std::string::npos) {
        refuse_faults(fmt::format("\"{}\" is not of the form name=value; the names are {}", word, kSettings));
      }
      const std::string_view value = std::string_view(word).substr(equals + 1);
      if (name == "peer") {
        if (value.empty()) refuse_faults("peer= needs the name of a worker");
        current = &faults.peers.try_emplace(std::string(value), faults).first->second;
      } else if (name != "seed" && name != "workers") {
        set_for_peer(*current, name, value);
      } else if (current != &faults) {
        refuse_faults(fmt::format("{} stands after peer, but is not for one peer: put it first", name));
      } else if (name == "seed") {
        faults.seed = whole_number<uint64_t>(name, value);
      } else {
        faults.workers = split(value);
      }
    }
  }
  return faults;
}

std::string read_faults(const std::string& text_or_file) {
  if (text_or_file.find('=') != std::string::npos) return text_or_file;
  std::ifstream file(text_or_file);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file) {
    refuse_faults(fmt::format("\"{}\" is neither name=value nor a file that can be read", text_or_file));
  }
  return text.str();
}

FaultOptions FaultOptions::load(const std::string& text_or_file) { return parse(read_faults(text_or_file)); }

Status check(const FaultOptions& faults, const KindNames& known) {
  if (Status status = check_peer(faults, known); !status.ok()) return status;
  for (const auto& [name, peer] : faults.peers) {
    if (Status status = check_peer(peer, known); !status.ok()) return status;
  }
  return {};
}

}  // namespace holdfast
