#include <holdfast/sim/explore.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include <fmt/format.h>

#include <holdfast/sim/explore_run.h>

namespace holdfast::sim {

namespace {

struct HashOfState {
  size_t operator()(const StateHash& hash) const { return hash.first; }
};

// A choice that need not be taken where it could be, since the same was tried in another order.
struct Sleeper {
  uint64_t identity;
  uint32_t changes;  // ExploreRun::changes
};
using Sleep = std::vector<Sleeper>;

bool contains(const Sleep& sleep, const Sleeper& wanted) {
  return std::ranges::any_of(sleep, [&](const Sleeper& one) { return one.identity == wanted.identity; });
}

// Those that sleep on when `taken` has been.
Sleep still_asleep(const Sleep& sleep, const Sleeper& taken) {
  Sleep left;
  for (const Sleeper& one : sleep) {
    if ((one.changes & taken.changes) == 0) left.push_back(one);
  }
  return left;
}

// Depth first, for it can go on from where it is; breadth first, and in all orders, only where the shortest path is
// wanted.
class Search {
 public:
  Search(const Scenario& scenario, bool breadth_first) : scenario_(scenario), breadth_first_(breadth_first) {
    report_.scenario = scenario.name;
    report_.fault = scenario.fault();
  }

  ExploreReport run() {
    waiting_.push_back({});
    steps_.push_back({});  // stands for the beginning
    while (!waiting_.empty() && report_.complete && !found()) {
      Waiting next = std::move(breadth_first_ ? waiting_.front() : waiting_.back());
      breadth_first_ ? waiting_.pop_front() : waiting_.pop_back();
      follow(std::move(next));
    }
    report_.states = seen_.size();
    return std::move(report_);
  }

 private:
  static constexpr uint32_t kRoot = UINT32_MAX;
  // A path is the step before its last, and the number of the choice taken then.
  struct Step {
    uint32_t before = kRoot;
    uint32_t choice = 0;
  };
  struct Waiting {
    Step step;
    Sleep sleep;  // after it
  };

  bool found() const { return breadth_first_ && report_.violations > 0; }

  std::vector<uint32_t> path_to(Step last) const {
    std::vector<uint32_t> path;
    for (; last.before != kRoot; last = steps_[last.before]) path.push_back(last.choice);
    return {path.rbegin(), path.rend()};
  }

  // Leads a new world along that path, and from there on as far as there is something new.
  void follow(Waiting start) {
    ExploreRun run(scenario_);
    ++report_.executions;
    const std::vector<uint32_t> path = path_to(start.step);
    for (const uint32_t choice : path) run.take(run.choices().at(choice));
    uint32_t here = start.step.before == kRoot ? 0 : add_step(start.step);
    for (size_t length = path.size();; ++length) {
      std::vector<Waiting> next = arrive(run, here, length, std::move(start.sleep));
      const bool goes_on = !breadth_first_ && !next.empty();
      for (size_t i = next.size(); i-- > (goes_on ? 1 : 0);) waiting_.push_back(std::move(next[i]));
      if (!goes_on) return;
      start = std::move(next[0]);
      run.take(run.choices()[start.step.choice]);
      here = add_step(start.step);
    }
  }

  uint32_t add_step(const Step& step) {
    ++report_.transitions;
    steps_.push_back(step);
    return static_cast<uint32_t>(steps_.size() - 1);
  }

  // What is to be tried from here: what does not sleep, or, if the state was seen before, no longer does.
  std::vector<Waiting> arrive(const ExploreRun& run, uint32_t here, size_t length, Sleep sleep) {
    const std::vector<Choice> choices = run.choices();
    const auto [seen, is_new] = seen_.try_emplace(run.state());
    const Sleep slept = std::move(seen->second);
    if (is_new && !look(run, here, length, choices.empty())) return {};
    if (!is_new) std::erase_if(sleep, [&](const Sleeper& one) { return !contains(slept, one); });
    seen->second = sleep;

    std::vector<Waiting> next;
    for (uint32_t i = 0; i < choices.size(); ++i) {
      const Sleeper choice{run.identity(choices[i]), run.changes(choices[i])};
      if (contains(sleep, choice) || (!is_new && !contains(slept, choice))) continue;
      next.push_back({{here, i}, still_asleep(sleep, choice)});
      if (!breadth_first_) sleep.push_back(choice);
    }
    return next;
  }

  // At a new state. False: the search ends here.
  bool look(const ExploreRun& run, uint32_t here, size_t length, bool final) {
    report_.path_longest = std::max(report_.path_longest, length);
    if (seen_.size() >= scenario_.states_max) report_.complete = false;
    std::string wrong = run.wrong();
    if (wrong.empty() && final) wrong = run.wrong_at_the_end();
    if (final) ++report_.final_states;
    if (wrong.empty()) return !final;
    if (++report_.violations == 1) {
      report_.violation = std::move(wrong);
      trace_to_ = here;
    }
    return false;
  }

 public:
  // In words: only after run().
  std::vector<std::string> trace() const {
    std::vector<std::string> lines;
    ExploreRun run(scenario_);
    for (const uint32_t choice : path_to(steps_[trace_to_])) {
      const Choice taken = run.choices().at(choice);
      lines.push_back(run.text_of(taken));
      run.take(taken);
    }
    return lines;
  }

 private:
  const Scenario& scenario_;
  const bool breadth_first_;
  ExploreReport report_;
  std::deque<Waiting> waiting_;
  std::vector<Step> steps_;
  std::unordered_map<StateHash, Sleep, HashOfState> seen_;  // with what was not tried there
  uint32_t trace_to_ = 0;
};

Scenario scenario(std::string name, uint32_t workers, std::vector<Operation> program) {
  Scenario scenario;
  scenario.name = std::move(name);
  scenario.workers = workers;
  scenario.program = std::move(program);
  return scenario;
}

// The owner is worker 0 in all of them.
std::vector<Scenario> programs() {
  using What = Operation::What;
  const Operation create{What::create, 1, 0};
  const Operation share{What::share, 1, 2};
  return {
      scenario("create, fetch", 2, {create, {What::fetch, 1}}),
      scenario("create, share", 3, {create, share}),
      scenario("create, share, fetch", 3, {create, share, {What::fetch, 2}}),
      scenario("own, share, share on", 3, {{What::create, 0, 0}, {What::share, 0, 1}, share}),
      scenario("create, share twice", 3, {create, share, share}),
      scenario("create, share, share back", 3, {create, share, {What::share, 2, 1}}),
      scenario("create, share, share home", 3, {create, share, {What::share, 2, 0}}),
  };
}

}  // namespace

std::string Scenario::fault() const {
  if (cut) return handshakes ? "cut, handshakes" : "cut";
  return death ? fmt::format("death of worker{}", *death) : "none";
}

ExploreReport explore(const Scenario& scenario) {
  ExploreReport report = Search(scenario, false).run();
  if (report.violations == 0) return report;
  Search shortest(scenario, true);
  report.violation = shortest.run().violation;
  report.trace = shortest.trace();
  return report;
}

std::vector<Scenario> small_worlds(bool quick) {
  std::vector<Scenario> list;
  const std::vector<Scenario> all = programs();
  for (size_t i = 0; i < all.size(); ++i) {
    const Scenario& program = all[i];
    const bool small = i < 2;                                      // in states
    if (quick && program.name == "create, share twice") continue;  // the largest
    list.push_back(program);
    if (!quick || small) {
      list.push_back(program);
      list.back().cut = true;
    }
    if (quick ? program.workers == 2 : small) {
      list.push_back(program);
      list.back().cut = list.back().handshakes = true;
    }
    const bool deaths = !quick || small || program.name == "own, share, share on";
    for (uint32_t rank = 0; rank < program.workers && deaths; ++rank) {
      list.push_back(program);
      list.back().death = rank;
    }
  }
  return list;
}

std::string explore_table_head() {
  return fmt::format("{:26} {:16} {:>10} {:>12} {:>12} {:>8} {:>8} {:>11}", "program", "fault", "states", "transitions",
                     "executions", "finals", "longest", "violations");
}

std::string explore_table_row(const ExploreReport& report) {
  return fmt::format("{:26} {:16} {:>10} {:>12} {:>12} {:>8} {:>8} {:>11}{}", report.scenario, report.fault,
                     report.states, report.transitions, report.executions, report.final_states, report.path_longest,
                     report.violations, report.complete ? "" : "  (incomplete)");
}

}  // namespace holdfast::sim
